#!/usr/bin/env bash
# Job ; touch canary; $(touch canary) # on bad\ntouch canary\n: 2 instances on 2 hosts, engine command
# Ranks run, as job.json has it: echo '' ' ' - -- -x --instances=9 --parent 'a b' 'it'"'"'s' 'say "hi"' '$HOME' '$(touch canary)' '`touch canary`' '; touch canary #' '&& touch canary' '| touch … (420 characters)
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
first_host=a interface='' port=''
begin_run_on_hosts

# What the job sets, PATH or any other name, holds for its ranks and not for this script, which keeps the record.
(
  trap '' USR1
  export V0=''
  export V1=' '
  export V10='$HOME'
  export V11='$(touch canary)'
  export V12='`touch canary`'
  export V13='; touch canary #'
  export V14='&& touch canary'
  export V15='| touch canary'
  export V16=''"'"' ; touch canary ; '"'"''
  export V17='
 touch canary
'
  export V18=''$'\r''
'
  export V19='	'
  export V2=-
  export V20='\'
  export V21='a\nb'
  export V22='!!'
  export V23='*'
  export V24='~'
  export V25='~/x'
  export V26='a=~/x'
  export V27='{a,b}'
  export V28='# no comment'
  export V29='<(touch canary)'
  export V3=--
  export V30='{{ 7 * 7 }}'
  export V31='{% raw %}'
  export V32=%s%n
  export V33=@file
  export V34=then
  export V35='==1'
  export V36='näh ✓ 数'
  export V37='origin'
  export V38='[31m'
  export V39=' '
  export V4=-x
  export V5=--instances=9
  export V6=--parent
  export V7='a b'
  export V8='it'"'"'s'
  export V9='say "hi"'
  use_python python3
  cd -- "$TRAINJOB_RUN_DIR/code"
  use_ssh
  forward_names V0 V1 V10 V11 V12 V13 V14 V15 V16 V17 V18 V19 V2 V20 V21 V22 V23 V24 V25 V26 V27 V28 V29 V3 V30 V31 V32 V33 V34 V35 V36 V37 V38 V39 V4 V5 V6 V7 V8 V9
  exec "$TRAINJOB_PYTHON" -m trainjob.launch.ranks.starter --parent "$$" "$TRAINJOB_RUN_DIR" -- \
    mpirun --allow-run-as-root --bind-to none -np 2 --map-by ppr:1:node --host a:1,b:1 \
    ${TRAINJOB_FORWARDED[@]+"${TRAINJOB_FORWARDED[@]}"} \
    "$TRAINJOB_PYTHON" -m trainjob.launch --launcher openmpi --accelerator cpu --working-folder code/project --token "$TRAINJOB_TOKEN" \
    --command-of-job "$TRAINJOB_RUN_DIR"
) &
wait_for_ranks
