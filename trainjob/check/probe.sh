#!/bin/sh
# Prints facts about a machine, as lines `name value`, and changes nothing.
#
# Arguments are NAME=VALUE, and what is not named isn't looked at. A path may begin with ~/. With `unpack=yes`, standard
# input is a tar file: the runtime and the user's project, for the interpreter to import a task from, or the project and
# the questions about a script. The last line is `complete yes`: without it, something that was sourced or started has
# ended this shell.
set -u

fact() { printf '%s %s\n' "$1" "$2"; }

# shellcheck disable=SC2088,SC2016 # the argument is text, as it stands in a cluster file
at_home() {
  case $1 in
    "~") printf '%s' "$HOME" ;;
    "~/"*) printf '%s/%s' "$HOME" "${1#??}" ;;
    '$XDG_DATA_HOME/'*) printf '%s/%s' "${XDG_DATA_HOME:-$HOME/.local/share}" "${1#*/}" ;;
    *) printf '%s' "$1" ;;
  esac
}

# Not `command -v`, which finds what the shell itself has: ranks are started without one.
can_run() {
  case $1 in
    */*) [ ! -d "$1" ] && [ -x "$1" ] ;;
    *) found_on "$PATH" "$1" >/dev/null ;;
  esac
}

# found_on PATH PROGRAM: prints where it is.
found_on() (
  IFS=:
  for folder in $1; do
    if [ ! -d "$folder/$2" ] && [ -x "$folder/$2" ]; then
      printf '%s' "$folder/$2"
      exit 0
    fi
  done
  exit 1
)

# A job does not have the PATH of the shell that submits it: where that shell finds another program of this name.
look_at_caller() {
  case $2 in */*) return ;; esac
  at=$(found_on "${path_of_caller:-}" "$2") || return 0
  if [ "$at" != "$(found_on "$PATH" "$2")" ]; then fact "$1-of-caller" "$at"; fi
}

# enable_sdk is that of launch/shell/sdk.sh, which stands before this file where a machine has an SDK.
look_at_sdk() {
  for script in "$1"/poplar-*/enable.sh; do
    if [ -r "$script" ]; then fact sdk "$(basename "$(dirname "$script")")"; fi
  done
  enable_sdk "$1" >/dev/null 2>&1 || true
}

look_at_program() {
  program=$1
  if can_run "$1"; then fact program yes; else fact program no; fi
  look_at_caller program "$1"
}

# Whether the program, an interpreter, has the module: found, and not imported.
look_at_module() {
  "$program" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' "$1" \
    </dev/null >/dev/null 2>&1 || fact module no
}

look_at_mpirun() { fact mpirun "$(mpirun --version 2>/dev/null | head -n 1)"; }

look_at_data() {
  if [ -r "$1" ]; then fact data "$(sha256sum <"$1" | cut -d ' ' -f 1)"; else fact data no; fi
}

free_mb() { df -Pm -- "$1" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4; }

look_at_file() { if [ -e "$2" ]; then fact "$1" yes; else fact "$1" no; fi; }

look_at_disk() {
  if [ ! -d "$1" ]; then
    fact stage absent
  elif [ ! -w "$1" ] || [ ! -x "$1" ]; then
    fact stage read-only
  fi
}

# A link in a folder where everybody may write, such as /tmp, leads where its owner wants.
look_at_link() {
  # shellcheck disable=SC2012 # stat has other options on every system
  case $(ls -ldL -- "$(dirname -- "$1")" | cut -c 1-10) in d???????w?) ;; *) return 0 ;; esac
  if [ -n "$(find "$1" -prune \( -user 0 -o -user "$(id -u)" \))" ]; then return 0; fi
  fact runs-dir-link "$1"
  return 1
}

# Others may rename what is in a folder that they may write in, unless it has the sticky bit: every folder above counts,
# and those above each link on the way.
find_open_folder() {
  at=$1
  while
    # shellcheck disable=SC2012 # stat has other options on every system
    case $(ls -ldL -- "$at" | cut -c 1-10) in
      d???????w[!tT]) fact runs-dir-open "$at"; return 1 ;;
    esac
    if [ -L "$at" ]; then
      look_at_link "$at" || return 1
      to=$(readlink "$at")
      case $to in /*) ;; *) to=$(dirname -- "$at")/$to ;; esac
      (find_open_folder "$to") || return 1
    fi
    [ "$at" != / ]
  do
    at=$(dirname -- "$at")
  done
}

# The nearest folder above that exists must be able to take a new one.
look_at_runs_dir() {
  case $1 in
    /*) ;;
    *) fact runs-dir relative; return ;;
  esac
  above=$1
  while [ ! -e "$above" ]; do
    if [ -L "$above" ]; then look_at_link "$above" || :; fi
    above=$(dirname -- "$above")
  done
  find_open_folder "$above" || :
  fact runs-mb "$(free_mb "$above")"
  if [ ! -d "$above" ]; then
    fact runs-dir "file $above"
  elif [ ! -w "$above" ] || [ ! -x "$above" ]; then
    fact runs-dir "read-only $above"
  elif [ "$above" != "$1" ]; then
    fact runs-dir absent
  else
    # shellcheck disable=SC2012 # stat has other options on every system
    fact runs-dir "folder $(ls -di -- "$1" | sed 's/^ *//; s/ .*//')"
  fi
}

# Of a secrets file, only its mode and the numbers of malformed lines come out.
look_at_secrets() {
  if [ ! -e "$1" ]; then
    fact secrets missing
  elif [ ! -f "$1" ]; then
    fact secrets folder
  elif [ ! -r "$1" ]; then
    fact secrets unreadable
  else
    # shellcheck disable=SC2012
    fact secrets "$(ls -ldn -- "$1" | cut -c 1-10)"
    # A file of the kernel has no size, and reading it may wait.
    [ -s "$1" ] || return 0
    malformed=$(grep -nvE '^[[:space:]]*(#|$)|^[A-Za-z_][A-Za-z0-9_]*=' <"$1" | cut -d : -f 1 | tr '\n' ' ')
    if [ -n "$malformed" ]; then fact secrets-malformed "$malformed"; fi
  fi
}

look_at_network() {
  case $1 in
    */*) fact network "$(ip -o -4 addr show to "$1" 2>/dev/null | head -n 1 | cut -d ' ' -f 2)" ;;
    *) if [ -e "/sys/class/net/$1" ]; then fact network "$1"; else fact network ''; fi ;;
  esac
}

look_at_cache() {
  folder=$1
  while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
  fact cache-mb "$(free_mb "$folder")"
}

log_in_to() {
  answer=$(ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=10 -- "$1" true 2>&1 </dev/null) ||
    fact no-ssh "$1: $(printf '%s' "$answer" | tail -n 1)"
}

# What runs here does so in a folder of its own, which is gone afterwards.
make_sandbox() {
  if [ -n "$sandbox" ]; then return 0; fi
  sandbox=$(mktemp -d) || return
  trap 'rm -rf "$sandbox"' EXIT
  mkdir "$sandbox/project"
  if [ "$unpack" = yes ]; then tar -C "$sandbox" -xf - || fact task-error 'the project could not be unpacked'; fi
}

# The interpreter of a script: the program that is given, or the one that its first line names (torchrun).
look_at_script() {
  at=$1
  case $at in */*) ;; *) at=$(found_on "$PATH" "$1") || return 0 ;; esac
  case ${at##*/} in
    python*) ;;
    *) at=$(LC_ALL=C sed -n '1{s/^#! *\(\/[^ ]*python[0-9.]*\)$/\1/p;}' "$at" 2>/dev/null) ;;
  esac
  if [ -z "$at" ] || ! can_run "$at"; then return 0; fi
  make_sandbox || return
  (
    cd "$sandbox" || exit
    PYTHONDONTWRITEBYTECODE=1 exec "$at" -c "$script_report" <script-questions
  )
}

look_at_interpreter() {
  look_at_caller interpreter "$1"
  if ! can_run "$1"; then
    fact interpreter no
    return
  fi
  make_sandbox || return
  (
    cd "$sandbox" || exit
    export PYTHONPATH=".${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
    exec "$1" -c "$report" "$questions" </dev/null
  )
  fact interpreter-exit "$?"
}

unpack=no
sandbox=''
script_report=''
report=''
questions=''
# shellcheck disable=SC3045 # ulimit -l: dash and busybox have it
for word in "$@"; do
  value=${word#*=}
  case $word in
    export=*) export "${value?}" ;;
    first-on-path=*) PATH=$(at_home "$value"):$PATH ;;
    sdk=*) look_at_sdk "$(at_home "$value")" ;;
    poprun=*) if can_run poprun; then fact poprun yes; else fact poprun no; fi ;;
    program=*) look_at_program "$(at_home "$value")" ;;
    module=*) look_at_module "$value" ;;
    mpirun=*) look_at_mpirun ;;
    data=*) look_at_data "$(at_home "$value")" ;;
    image=*) look_at_file image "$(at_home "$value")" ;;
    init-from=*) look_at_file init-from "$(at_home "$value")" ;;
    stage=*) look_at_disk "$(at_home "$value")" ;;
    runs-dir=*) look_at_runs_dir "$(at_home "$value")" ;;
    secrets=*) look_at_secrets "$(at_home "$value")" ;;
    network=*) look_at_network "$value" ;;
    cache=*) look_at_cache "$(at_home "$value")" ;;
    memlock=*)
      fact memlock "$(ulimit -l)"
      if [ -e /dev/infiniband ]; then fact infiniband yes; fi
      ;;
    nofile=*) fact nofile "$(ulimit -n)" ;;
    user=*) fact user "$(id -u) $(id -un)" ;;
    ssh=*) log_in_to "$value" ;;
    unpack=*) unpack=$value ;;
    report=*) report=$value ;;
    questions=*) questions=$value ;;
    script-report=*) script_report=$value ;;
    script-program=*) look_at_script "$(at_home "$value")" ;;
    python=*) look_at_interpreter "$(at_home "$value")" ;;
  esac
done
fact complete yes
