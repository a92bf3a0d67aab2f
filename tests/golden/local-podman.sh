#!/usr/bin/env bash
# Job digits-cnn on gpus: 4 instances on 1 host, 4 replicas, global batch 16, engine ddp
# By hand: bash job.sh
# shellcheck disable=SC1003,SC1010,SC1090,SC1091,SC1112,SC2016,SC2034,SC2088,SC2089,SC2090,SC2154
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
[[ -e job.json && -d code/trainjob/launch/shell ]] ||
  { echo "trainjob: $PWD is no run directory, which has job.json and code/ beside its job.sh: trainjob render -o FOLDER writes one" >&2; exit 1; }
library=SHA256-OF-THE-SHELL-LIBRARY
found=$(LC_ALL=C; cd ./code/trainjob/launch/shell && sha256sum -- *.sh | sha256sum)
[[ "$found" == "$library  -" ]] ||
  { echo "trainjob: the shell library in $PWD/code/trainjob/launch/shell has sha256 ${found%% *}, and this script and job.json were rendered with $library: submit the job again, or put back the code that came with this script" >&2; exit 1; }
. code/trainjob/launch/shell/local.sh
engine=podman
begin_run

# What the job sets, PATH or any other name, holds for its ranks and not for this script, which keeps the record.
(
  trap '' USR1
  use_python python3
  cd -- "$TRAINJOB_RUN_DIR/code"
  if [[ "${TRAINJOB_CONTAINER:-}" != none ]]; then
    contain_ranks CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES
    exec "$TRAINJOB_HOST_PYTHON" -m trainjob.launch --launcher local --ranks-in-containers --instances 4 --parent "$$" --accelerator gpu --node-check on \
      "$TRAINJOB_RUN_DIR" -- "$TRAINJOB_ENGINE" run "${TRAINJOB_CONTAINED[@]}" \
      --device nvidia.com/gpu=all \
      --entrypoint "$TRAINJOB_PYTHON" localhost/trainjob:cuda -m trainjob.launch --launcher container --accelerator gpu \
      "$TRAINJOB_RUN_DIR" -- "$TRAINJOB_PYTHON" -m trainjob.train "$TRAINJOB_RUN_DIR"
  fi
  exec "$TRAINJOB_PYTHON" -m trainjob.launch --launcher local --instances 4 --parent "$$" --accelerator gpu --node-check on \
    "$TRAINJOB_RUN_DIR" -- "$TRAINJOB_PYTHON" -m trainjob.train "$TRAINJOB_RUN_DIR"
) &
wait_for_ranks
