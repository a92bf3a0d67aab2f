#!/usr/bin/env bash
# ''"'"'; touch canary; $(touch canary) # on bad?touch canary?'
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
if [[ -z "${TRAINJOB_PYTHON:-}" ]]; then TRAINJOB_PYTHON=python3; fi

cd -- "$TRAINJOB_RUN_DIR/code"
exec "$TRAINJOB_PYTHON" -m trainjob.train.launch --launcher local \
  --instances 1 \
  --accelerator cpu \
  --working-folder code/project \
  --parent "$$" "$TRAINJOB_RUN_DIR" -- echo '' ' ' - -- -x --instances=9 --parent 'a b' 'it'"'"'s' 'say "hi"' '$HOME' '$(touch canary)' '`touch canary`' '; touch canary #' '&& touch canary' '| touch canary' ''"'"' ; touch canary ; '"'"'' '
 touch canary
' ''$'\r''
' '	' '\' 'a\nb' '!!' '*' '~' '~/x' 'a=~/x' '{a,b}' '# no comment' '<(touch canary)' '{{ 7 * 7 }}' '{% raw %}' %s%n @file then '==1' 'näh ✓ 数' 'origin' '[31m' ' '
) &
launcher=$!
trap 'cancelled=1; kill -TERM "$launcher" 2>/dev/null || true' TERM INT HUP
trap 'kill -USR1 "$launcher" 2>/dev/null || true' USR1
wait_for "$launcher"
