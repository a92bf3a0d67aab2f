#!/usr/bin/env bash
# Job digits-cnn on pod: 8 instances on 4 hosts, 64 replicas, global batch 256, engine ipu
# By hand: on the pod's launch host, bash job.sh
# shellcheck disable=SC1003,SC1010,SC1090,SC1091,SC1112,SC2016,SC2034,SC2088,SC2089,SC2090,SC2154
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
[[ -e job.json && -d code/trainjob/launch/shell ]] ||
  { echo "trainjob: $PWD is no run directory, which has job.json and code/ beside its job.sh: trainjob render -o FOLDER writes one" >&2; exit 1; }
library=SHA256-OF-THE-SHELL-LIBRARY
found=$(LC_ALL=C; cd ./code/trainjob/launch/shell && sha256sum -- *.sh | sha256sum)
[[ "$found" == "$library  -" ]] ||
  { echo "trainjob: the shell library in $PWD/code/trainjob/launch/shell has sha256 ${found%% *}, and this script and job.json were rendered with $library: submit the job again, or put back the code that came with this script" >&2; exit 1; }
. code/trainjob/launch/shell/pod.sh
first_host=pod-host1 stops_by_file=1
begin_run
TRAINJOB_PARTITION=p64
export VIPU_CLI_API_HOST=pod-ctl
note_partition

# What the job sets, PATH or any other name, holds for its ranks and not for this script, which keeps the record.
set -m
(
  trap '' USR1
  use_sdk '/opt/sdk 2.6' "$HOME"/venvs/poptorch-2.6
  use_cache "$HOME"'/caches/a b'
  export POPLAR_LOG_LEVEL=WARN
  use_data /localdata
  use_python "$HOME"/venvs/poptorch-2.6/bin/python
  cd -- "$TRAINJOB_RUN_DIR/code"
  poprun_on eno1
  forward_names POPLAR_LOG_LEVEL
  exec poprun \
    --host=pod-host1,pod-host2,pod-host3,pod-host4 --num-instances=8 --num-replicas=64 --ipus-per-replica=1 \
    --vipu-server-host=pod-ctl --vipu-server-timeout=600 --vipu-partition="$TRAINJOB_PARTITION" \
    --print-topology=yes --numa-aware=yes --executable-cache-path="$POPTORCH_CACHE_DIR" \
    --mpi-global-args="$TRAINJOB_MPI_GLOBAL" --mpi-local-args="$TRAINJOB_MPI_LOCAL" \
    "$TRAINJOB_PYTHON" -m trainjob.launch --launcher openmpi --accelerator ipu --interface eno1 \
    "$TRAINJOB_RUN_DIR" -- "$TRAINJOB_PYTHON" -m trainjob.train "$TRAINJOB_RUN_DIR"
) &
wait_for_ranks
