#!/usr/bin/env bash
# Job digits-cnn on hosts-gpu: 2 instances on 1 host, 2 replicas, global batch 8, engine ddp
# By hand: on the host that starts jobs, bash job.sh
# shellcheck disable=SC1003,SC1010,SC1090,SC1091,SC1112,SC2016,SC2034,SC2088,SC2089,SC2090,SC2154
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
[[ -e job.json && -d code/trainjob/launch/shell ]] ||
  { echo "trainjob: $PWD is no run directory, which has job.json and code/ beside its job.sh: trainjob render -o FOLDER writes one" >&2; exit 1; }
library=SHA256-OF-THE-SHELL-LIBRARY
found=$(LC_ALL=C; cd ./code/trainjob/launch/shell && sha256sum -- *.sh | sha256sum)
[[ "$found" == "$library  -" ]] ||
  { echo "trainjob: the shell library in $PWD/code/trainjob/launch/shell has sha256 ${found%% *}, and this script and job.json were rendered with $library: submit the job again, or put back the code that came with this script" >&2; exit 1; }
. code/trainjob/launch/shell/hosts.sh
begin_run_on_hosts

# What the job sets, PATH or any other name, holds for its ranks and not for this script, which keeps the record.
(
  trap '' USR1
  use_data /localdata
  use_python python3
  cd -- "$TRAINJOB_RUN_DIR/code"
  use_ssh
  forward_names
  exec "$TRAINJOB_PYTHON" -m trainjob.launch.ranks.starter --parent "$$" "$TRAINJOB_RUN_DIR" -- \
    mpirun --allow-run-as-root --bind-to none -np 2 --map-by ppr:2:node --host host-1:2 \
    ${TRAINJOB_FORWARDED[@]+"${TRAINJOB_FORWARDED[@]}"} \
    "$TRAINJOB_PYTHON" -m trainjob.launch --launcher openmpi --accelerator gpu --node-check on --token "$TRAINJOB_TOKEN" \
    "$TRAINJOB_RUN_DIR" -- "$TRAINJOB_PYTHON" -m trainjob.train "$TRAINJOB_RUN_DIR"
) &
wait_for_ranks
