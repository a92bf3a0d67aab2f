#!/usr/bin/env bash
# Job digits-cnn on pod256: 32 instances on 16 hosts, 256 replicas, global batch 1024, engine ipu
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
first_host=host-1 stops_by_file=1
begin_run

# What the job sets, PATH or any other name, holds for its ranks and not for this script, which keeps the record.
set -m
(
  trap '' USR1
  export POPLAR_LOG_LEVEL=WARN
  use_data /localdata
  use_python python3
  cd -- "$TRAINJOB_RUN_DIR/code"
  forward_names POPLAR_LOG_LEVEL
  exec poprun \
    --host=host-1,host-2,host-3,host-4,host-5,host-6,host-7,host-8,host-9,host-10,host-11,host-12,host-13,host-14,host-15,host-16 --num-instances=32 --num-replicas=256 --ipus-per-replica=1 --num-ilds=4 \
    --vipu-server-port=8090 \
    --print-topology=yes \
    --mpi-local-args="$TRAINJOB_MPI_LOCAL" \
    "$TRAINJOB_PYTHON" -m trainjob.launch --launcher openmpi --accelerator ipu \
    "$TRAINJOB_RUN_DIR" -- "$TRAINJOB_PYTHON" -m trainjob.train "$TRAINJOB_RUN_DIR"
) &
wait_for_ranks
