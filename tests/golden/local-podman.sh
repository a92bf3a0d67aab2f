#!/usr/bin/env bash
# 'digits-cnn on gpus'
# By hand: bash job.sh
# shellcheck disable=SC1003,SC1010,SC1091,SC2016,SC2088,SC2089,SC2090
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
TRAINJOB_RUN_DIR=$(pwd -P)
export TRAINJOB_RUN_DIR
cancelled=''

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

mkdir -p logs checkpoints
begin_attempt
trap 'end_attempt $?' EXIT
trap 'cancelled=1; exit 143' TERM INT HUP

engine=$(command -v podman) || engine=podman
python=$(command -v python3) || python=python3

# What the job sets, PATH or any other name, holds for its ranks and not for this script, which keeps the record.
(
trap '' USR1
if [[ -z "${TRAINJOB_PYTHON:-}" ]]; then TRAINJOB_PYTHON=python3; fi

cd -- "$TRAINJOB_RUN_DIR/code"
if [[ "${TRAINJOB_CONTAINER:-}" != none ]]; then
  volumes=(--volume "$TRAINJOB_RUN_DIR:$TRAINJOB_RUN_DIR")
  if [[ -d "${TRAINJOB_DATA_DIR:-}" ]]; then volumes+=(--volume "$TRAINJOB_DATA_DIR:$TRAINJOB_DATA_DIR:ro"); fi
  user=()
  if (($(id -u) != 0)); then user=(--userns keep-id); fi
  variables=()
  for name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TRAINJOB_RUN_DIR TRAINJOB_ATTEMPT TRAINJOB_COMPILE_ONLY OMP_NUM_THREADS GLOO_SOCKET_IFNAME NCCL_SOCKET_IFNAME TRAINJOB_DATA_DIR TRAINJOB_DEVICE TRAINJOB_MAX_UPDATES CUDA_VISIBLE_DEVICES; do
    variables+=(--env "$name")
  done
  exec "$python" -m trainjob.train.launch --launcher local --ranks-in-containers \
    --instances 4 \
    --accelerator gpu \
    --parent "$$" "$TRAINJOB_RUN_DIR" -- \
    "$engine" run --rm --interactive --pull never --log-driver none --label "trainjob.run=$TRAINJOB_RUN_DIR" \
    --network host --ipc host --security-opt label=disable "${user[@]}" "${volumes[@]}" "${variables[@]}" \
    --device nvidia.com/gpu=all \
    --workdir "$TRAINJOB_RUN_DIR/code" --entrypoint "$TRAINJOB_PYTHON" localhost/trainjob:cuda \
    -m trainjob.train.launch --launcher container \
    --accelerator gpu \
    "$TRAINJOB_RUN_DIR" -- "$TRAINJOB_PYTHON" -m trainjob.train "$TRAINJOB_RUN_DIR"
fi
exec "$TRAINJOB_PYTHON" -m trainjob.train.launch --launcher local \
  --instances 4 \
  --accelerator gpu \
  --parent "$$" "$TRAINJOB_RUN_DIR" -- "$TRAINJOB_PYTHON" -m trainjob.train "$TRAINJOB_RUN_DIR"
) &
launcher=$!
trap 'cancelled=1; kill -TERM "$launcher" 2>/dev/null || true' TERM INT HUP
trap 'kill -USR1 "$launcher" 2>/dev/null || true' USR1
wait_for "$launcher"
