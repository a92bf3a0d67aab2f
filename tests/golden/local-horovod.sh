#!/usr/bin/env bash
# 'digits-cnn on full'
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

# What the job sets, PATH or any other name, holds for its ranks and not for this script, which keeps the record.
(
trap '' USR1
export GREETING='it'"'"'s $HOME; `date`'
export OMP_NUM_THREADS=2
if [[ -z "${TRAINJOB_DATA_DIR:-}" ]]; then TRAINJOB_DATA_DIR="$HOME"'/data sets'; fi
export TRAINJOB_DATA_DIR
if [[ "${TRAINJOB_PROLOGUE:-}" != skip ]]; then
  set +u
  module load python/3.11
  source "$HOME/site.sh"
  set -u
fi
if [[ -z "${TRAINJOB_PYTHON:-}" ]]; then TRAINJOB_PYTHON="$HOME"'/venvs/torch 2/bin/python'; fi

cd -- "$TRAINJOB_RUN_DIR/code"
# As everywhere on one machine, ranks may outnumber cores and root, the user of most containers, may train: Open MPI
# asks to be told so.
exec "$TRAINJOB_PYTHON" -m trainjob.train.starter --parent "$$" "$TRAINJOB_RUN_DIR" -- \
  mpirun --allow-run-as-root --oversubscribe --bind-to none \
  -np 4 \
  "$TRAINJOB_PYTHON" -m trainjob.train.launch --launcher openmpi \
  --accelerator cpu \
  --port 23456 \
  --interface lo \
  --secrets-file "$HOME"/.config/trainjob/secrets.env \
  "$TRAINJOB_RUN_DIR" -- "$TRAINJOB_PYTHON" -m trainjob.train "$TRAINJOB_RUN_DIR"
) &
launcher=$!
trap 'cancelled=1; kill -TERM "$launcher" 2>/dev/null || true' TERM INT HUP
trap 'kill -USR1 "$launcher" 2>/dev/null || true' USR1
wait_for "$launcher"
