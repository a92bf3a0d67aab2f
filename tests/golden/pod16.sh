#!/usr/bin/env bash
# 'main on pod16'
# By hand, on the pod's launch host: bash job.sh
# shellcheck disable=SC1003,SC1010,SC1090,SC1091,SC2016,SC2088,SC2089,SC2090
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
TRAINJOB_RUN_DIR=$(pwd -P)
export TRAINJOB_RUN_DIR
cancelled='' launcher=''

write_word() {
  printf '%s\n' "$2" >".$1.part"
  sync ".$1.part" 2>/dev/null || true
  mv -f ".$1.part" "$1"
}

begin_attempt() {
  local last=0
  if [[ -s attempt ]]; then read -r last <attempt; fi
  export TRAINJOB_ATTEMPT=$((last + 1))
  rm -f state requeue .terminated failure.json exit_code
  write_word attempt "$TRAINJOB_ATTEMPT"
  write_word state RUNNING
}

is_stale() { [[ "$(cat attempt 2>/dev/null)" != "${TRAINJOB_ATTEMPT:-none}" ]]; }

end_attempt() {
  local code=$1 state
  trap '' TERM INT HUP USR1
  if is_stale; then return; fi
  state=$(state_at_end "$code")
  write_word exit_code "$code"
  write_word state "$state"
}

state_at_end() {
  if [[ -n "$cancelled" ]]; then
    printf 'CANCELLED\n'
  elif [[ -e requeue ]]; then
    printf 'STOPPED\n'
  elif (($1 == 0)); then
    printf 'COMPLETED\n'
  else
    printf 'FAILED\n'
  fi
}

wait_for() {
  while kill -0 "$1" 2>/dev/null; do
    wait "$1" || true
  done
  wait "$1"
}

end_group() {
  local step
  for ((step = 0; step < 100; step++)); do
    if [[ -z "$launcher" ]] || ! kill -TERM -- "-$launcher" 2>/dev/null; then return 0; fi
    sleep 0.1
  done
  kill -KILL -- "-$launcher" 2>/dev/null || true
}

clean_up() {
  trap '' TERM INT HUP USR1
  end_group
  if is_stale; then return 0; fi
  if [[ -n "$cancelled" ]]; then rm -f stop; fi
}

mkdir -p logs checkpoints
begin_attempt
trap 'code=$?; clean_up; end_attempt "$code"' EXIT
trap 'cancelled=1; exit 143' TERM INT HUP
export MASTER_ADDR=127.0.0.1
MASTER_PORT=$((20000 + $(cksum <<<"$TRAINJOB_RUN_DIR $TRAINJOB_ATTEMPT" | cut -d ' ' -f 1) % 12768))
export MASTER_PORT

# What the job sets, PATH or any other name, holds for its ranks and not for this script, which keeps the record.
# A group of its own: poprun, mpirun and what they start here can be told together.
set -m
(
export POPLAR_LOG_LEVEL=WARN
if [[ -z "${TRAINJOB_DATA_DIR:-}" ]]; then TRAINJOB_DATA_DIR=/localdata; fi
export TRAINJOB_DATA_DIR
if [[ -z "${TRAINJOB_PYTHON:-}" ]]; then TRAINJOB_PYTHON=python3; fi
cd -- "$TRAINJOB_RUN_DIR/code"
exec poprun \
  --num-instances=4 \
  --num-replicas=8 \
  --ipus-per-replica=1 \
  --num-ilds=1 \
  --vipu-server-port=8090 \
  --print-topology=yes \
  "$TRAINJOB_PYTHON" -m trainjob.train.launch --launcher openmpi \
  --accelerator ipu \
  --working-folder code/project \
  --command-of-job "$TRAINJOB_RUN_DIR"
) &
launcher=$!
set +m
trap 'cancelled=1; kill -TERM -- "-$launcher" 2>/dev/null || true' TERM INT HUP
wait_for "$launcher"
