#!/usr/bin/env bash
# Job mine on full: 4 instances on 1 host, engine command
# Ranks run, as job.json has it: python train.py --lr 0.1 --note 'a b'
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
begin_run

# What the job sets, PATH or any other name, holds for its ranks and not for this script, which keeps the record.
(
  trap '' USR1
  export EPOCHS=3
  export GREETING=mine
  export OMP_NUM_THREADS=2
  use_data "$HOME"'/data sets'
  if [[ "${TRAINJOB_PROLOGUE:-}" != skip ]]; then
    set +u
    module load python/3.11
    source "$HOME/site.sh"
    set -u
  fi
  use_python "$HOME"'/venvs/torch 2/bin/python'
  cd -- "$TRAINJOB_RUN_DIR/code"
  exec "$TRAINJOB_PYTHON" -m trainjob.launch --launcher local --instances 4 --parent "$$" --accelerator cpu --working-folder 'code/project/src/deep er' --port 23456 --interface lo --secrets-file "$HOME"/.config/trainjob/secrets.env \
    --command-of-job "$TRAINJOB_RUN_DIR"
) &
wait_for_ranks
