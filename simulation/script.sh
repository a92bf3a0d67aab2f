# shellcheck shell=bash disable=SC2034,SC2119,SC2120,SC2154 # the world sets and reads names of its own
# What a job script of a simulated world finds in the place of Slurm, clock and files: bash reads this before the script
# (BASH_ENV). Every call is a line to the world on a socket, which answers when its virtual time has come.

cd -- "$SIM_FOLDER" || exit 1
# shellcheck disable=SC2218 # the builtin: the function of that name comes later
exec >>logs/scheduler.out 2>&1
export -n SIM_FOLDER SIM_PORT SIM_JOB SIM_STOPS SIM_NOW BASH_ENV
unset BASH_ENV
# Without its special meaning, the world sets it.
unset EPOCHREALTIME
EPOCHREALTIME=$SIM_NOW RANDOM=$SIM_JOB
SIM_INSIDE=0 SIM_STEP=0 SIM_COUNTS='' SIM_LIMIT='' SIM_SYNCED='' SIM_ENDED=''
read -ra SIM_STOPS <<<"$SIM_STOPS"

# sim VERB WORDS…: sets SIM_CODE and SIM_PRINTED. Signals that came meanwhile are raised here, and their traps may call the
# world, too.
sim() {
  local SIM_INSIDE=1 IFS=$'\x1f' SIM_SIGNAL SIM_SIGNALS SIM_BESIDE=0 SIM_READ SIM_TEXT=''
  # What runs beside the script prints where the script does; a command substitution prints into a pipe.
  if ((BASH_SUBSHELL > 0)) && [[ ! -p /dev/fd/1 ]]; then SIM_BESIDE=1; fi
  {
    printf '%s\n' "$SIM_JOB"$'\x1f'"$BASHPID"$'\x1f'"$SIM_BESIDE"$'\x1f'"$SIM_STEP"$'\x1f'"$SIM_LIMIT"$'\x1f'"$PWD"$'\x1f'"${*//$'\n'/ }" >&99
    # By number, bash reads a block at once; up to a line feed, a byte.
    read -r -N 99999 -u 99 SIM_TEXT || true
  } 99<>"/dev/tcp/127.0.0.1/$SIM_PORT" || builtin kill -KILL $$ # the world is gone
  # Neither `read` nor an array: the one would read a byte at a time, the other expand what is a pattern.
  SIM_READ=${SIM_TEXT%%"$IFS"*} SIM_TEXT=${SIM_TEXT#*"$IFS"}
  EPOCHREALTIME=${SIM_TEXT%%"$IFS"*} SIM_TEXT=${SIM_TEXT#*"$IFS"}
  SIM_SIGNALS=${SIM_TEXT%%"$IFS"*} SIM_TEXT=${SIM_TEXT#*"$IFS"}
  SIM_ENDED=${SIM_TEXT%%"$IFS"*} SIM_TEXT=${SIM_TEXT#*"$IFS"}
  for SIM_SIGNAL in ${SIM_SIGNALS//,/"$IFS"}; do
    # What a trap does is the script's own again.
    if [[ -n "$SIM_COUNTS" ]]; then trap "$SIM_COUNTS" DEBUG; fi
    SIM_INSIDE=0
    builtin kill "-$SIM_SIGNAL" $$
    SIM_INSIDE=1
  done
  SIM_CODE=$SIM_READ SIM_PRINTED=${SIM_TEXT%$'\n'}
}

sim_command() {
  local SIM_INSIDE=1
  sim "$@"
  if [[ "$SIM_CODE" == 0 ]]; then printf '%s' "$SIM_PRINTED"; else printf '%s' "$SIM_PRINTED" >&2; fi
  return "$SIM_CODE"
}

scontrol() { sim_command scontrol "$@"; }
scancel() { sim_command scancel "$@"; }
sbatch() { sim_command sbatch "$@"; }
squeue() { sim_command squeue "$@"; }
sinfo() { sim_command sinfo "$@"; }
srun() {
  local SIM_INSIDE=1
  sim srun "$TRAINJOB_RUN_DIR" "$TRAINJOB_ATTEMPT" "$TRAINJOB_TOKEN"
  printf '%s' "$SIM_PRINTED" >&2
  return "$SIM_CODE"
}
sleep() { sim_command sleep "$@"; }
getent() { return 0; }
timeout() {
  local SIM_LIMIT=$3
  shift 3
  "$@"
}
# The only Python that a script starts says what the attempt's end means: the world asks the same code.
python3() { sim_command ending "${@:6}"; }
# `exec "$TRAINJOB_SRUN"` runs the function above.
exec() {
  "$@"
  builtin exit $?
}
# Between two calls of the world no process of the script ends.
kill() {
  if [[ "$1" == -0 ]]; then [[ " $SIM_ENDED " != *" ${!#} "* ]]; else sim_command kill "$@"; fi
}
wait() {
  local SIM_INSIDE=1
  sim wait "$@"
  if [[ "$SIM_CODE" == 0 ]]; then builtin wait "$@"; else return "$SIM_CODE"; fi
}
sync() { SIM_SYNCED=$1; }
mv() { sim_command mv "$SIM_SYNCED" "$@"; }
rm() { sim_command rm "$@"; }
mkdir() { sim_command mkdir "$@"; }
stat() { sim_command stat "$@"; }
cat() {
  local SIM_TEXT=''
  if [[ ! -f "$1" ]]; then
    printf 'cat: %s: No such file or directory\n' "$1" >&2
    return 1
  fi
  IFS= read -r -d '' SIM_TEXT <"$1" || true
  printf '%s' "$SIM_TEXT"
}

# The library of a history is its own: nobody changes it, so its digest is what the script expects.
sha256sum() { if (($# == 0)); then printf '%s  -\n' "$library"; fi; }

# Before some commands of the script itself the world lets it wait, or kills it. Commands are counted from `begin_run` on, in
# this shell: only then have functions the attribute with which bash keeps the trap in them. It costs more than they do.
sim_stop() {
  SIM_STOPS=("${SIM_STOPS[@]:1}")
  sim pause
}
sim_count() {
  local SIM_NAMES
  mapfile -t SIM_NAMES < <(compgen -A function)
  declare -ft "${SIM_NAMES[@]}"
  declare +ft "${SIM_OURS[@]}"
  SIM_COUNTS='((SIM_INSIDE || BASH_SUBSHELL || ++SIM_STEP != ${SIM_STOPS[0]:-0})) || sim_stop'
  trap "$SIM_COUNTS" DEBUG
}
if ((${#SIM_STOPS[@]} > 0)); then
  mapfile -t SIM_OURS < <(compgen -A function)
  trap 'if [[ "$BASH_COMMAND" == begin_run ]]; then sim_count; fi' DEBUG
fi
