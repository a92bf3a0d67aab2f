#!/usr/bin/env bash
# 'digits-cnn on pod'
# By hand, on the pod's launch host: bash job.sh
# shellcheck disable=SC1003,SC1010,SC1090,SC1091,SC2016,SC2088,SC2089,SC2090
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
TRAINJOB_RUN_DIR=$(pwd -P)
export TRAINJOB_RUN_DIR
cancelled='' launcher=''
TRAINJOB_PARTITION=p64

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

export VIPU_CLI_API_HOST=pod-ctl
note_partition() {
  local listed
  if listed=$(vipu list partitions 2>/dev/null) && ! grep -qwF -e "$TRAINJOB_PARTITION" <<<"$listed"; then
    write_word partition "$TRAINJOB_PARTITION"
  fi
}

remove_partition() {
  if [[ -s partition ]] && vipu get partition "$TRAINJOB_PARTITION" >/dev/null 2>&1; then
    vipu remove partition "$TRAINJOB_PARTITION" || true
  fi
  rm -f partition
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
  remove_partition
}

mkdir -p logs checkpoints
begin_attempt
trap 'code=$?; clean_up; end_attempt "$code"' EXIT
trap 'cancelled=1; exit 143' TERM INT HUP
note_partition
export MASTER_ADDR=pod-host1
MASTER_PORT=$((20000 + $(cksum <<<"$TRAINJOB_RUN_DIR $TRAINJOB_ATTEMPT" | cut -d ' ' -f 1) % 12768))
export MASTER_PORT
export POPTORCH_CACHE_DIR="$TRAINJOB_RUN_DIR"/executables
mkdir -p -- "$POPTORCH_CACHE_DIR"

# What the job sets, PATH or any other name, holds for its ranks and not for this script, which keeps the record.
# A group of its own: poprun, mpirun and what they start here can be told together.
set -m
(
if [[ "${TRAINJOB_PROLOGUE:-}" != skip ]]; then
  # The vendor's scripts read what is not set, and refuse to be run twice.
  if [[ "${POPLAR_SDK_ENABLED:-}" != /opt/poplar_sdk/* ]]; then
    unset POPLAR_SDK_ENABLED
    set +u
    for TRAINJOB_ENABLE in /opt/poplar_sdk/poplar-*/enable.sh /opt/poplar_sdk/popart-*/enable.sh; do
      source "$TRAINJOB_ENABLE" || true
    done
    set -u
  fi
  if [[ -z "${POPLAR_SDK_ENABLED:-}" ]]; then
    echo "trainjob: no SDK was enabled: sdk.path is the folder that holds poplar-*/enable.sh, and it is" /opt/poplar_sdk >&2
    exit 1
  fi
  export VIRTUAL_ENV=/shared/venvs/poptorch-3.3
  export PATH="$VIRTUAL_ENV/bin:$PATH"
fi
export POPLAR_LOG_LEVEL=WARN
if [[ -z "${TRAINJOB_DATA_DIR:-}" ]]; then TRAINJOB_DATA_DIR=/localdata; fi
export TRAINJOB_DATA_DIR
if [[ "${TRAINJOB_PROLOGUE:-}" != skip ]]; then
  set +u
  ulimit -l
  set -u
fi
if [[ -z "${TRAINJOB_PYTHON:-}" ]]; then TRAINJOB_PYTHON=/shared/venvs/poptorch-3.3/bin/python; fi
cd -- "$TRAINJOB_RUN_DIR/code"
export TRAINJOB_COMPILE_ONLY=1
TRAINJOB_NETWORK=${TRAINJOB_INTERFACE:-eno1}
TRAINJOB_MPI_GLOBAL="--mca oob_tcp_if_include $TRAINJOB_NETWORK --mca btl_tcp_if_include $TRAINJOB_NETWORK"
TRAINJOB_MPI_LOCAL=''
# Values travel beside the line, not on it: only names that are set are asked for.
for TRAINJOB_NAME in PATH LD_LIBRARY_PATH PYTHONPATH OPAL_PREFIX CPATH VIRTUAL_ENV POPLAR_SDK_ENABLED POPLAR_ENGINE_OPTIONS POPTORCH_CACHE_DIR IPUOF_VIPU_API_TIMEOUT MASTER_ADDR MASTER_PORT TRAINJOB_ATTEMPT TRAINJOB_COMPILE_ONLY TRAINJOB_DATA_DIR TRAINJOB_DEVICE TRAINJOB_INTERFACE TRAINJOB_MAX_UPDATES POPLAR_LOG_LEVEL; do
  if [[ -v "$TRAINJOB_NAME" ]]; then TRAINJOB_MPI_LOCAL+=" -x $TRAINJOB_NAME"; fi
done
TRAINJOB_MPI_LOCAL=${TRAINJOB_MPI_LOCAL# }
exec poprun \
  --vv \
  --host='pod-host[1-4]' \
  --num-instances=4 \
  --num-replicas=64 \
  --ipus-per-replica=1 \
  --vipu-server-host=pod-ctl \
  --vipu-server-timeout=600 \
  --vipu-partition="$TRAINJOB_PARTITION" \
  --print-topology=yes \
  --process-placement=spreadnuma \
  --executable-cache-path="$POPTORCH_CACHE_DIR" \
  --sync-type=ST_POD_NATIVE_DEFAULT \
  --offline-mode=yes \
  --mpi-global-args="$TRAINJOB_MPI_GLOBAL" \
  --mpi-local-args="$TRAINJOB_MPI_LOCAL" \
  "$TRAINJOB_PYTHON" -m trainjob.train.launch --launcher openmpi \
  --accelerator ipu \
  --interface eno1 \
  "$TRAINJOB_RUN_DIR" -- "$TRAINJOB_PYTHON" -m trainjob.train "$TRAINJOB_RUN_DIR"
) &
launcher=$!
set +m
# mpirun gives a rank a second: asked by file, ranks checkpoint and stop at the same block. Asked again: now.
trap 'if [[ -n "$cancelled" ]]; then kill -TERM -- "-$launcher" 2>/dev/null || true; fi; cancelled=1; : >stop' TERM INT HUP
trap ': >stop' USR1
wait_for "$launcher"
