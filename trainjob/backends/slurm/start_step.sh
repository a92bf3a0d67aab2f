# start_step.sh FOLDER ATTEMPT JOB NAME LIMIT_S WORDS...: calls WORDS, an srun in JOB for the run NAME in FOLDER, in a session of its
# own, and stays until its script has begun ATTEMPT. Exits with 1 where srun ended before, which is then certain, and with 124
# after LIMIT_S seconds. The step needs its srun no longer once it has begun.
# It starts few processes: the run has begun meanwhile, and needs what there is of CPUs.
# shellcheck shell=bash
folder=$1 attempt=$2 job=$3 name=$4 limit_s=$5
shift 5
cd -- "$folder" || exit 1
if [ ! -O . ]; then
  printf 'run directory %s belongs to somebody else\n' "$folder" >&2
  exit 1
fi
if [[ $(stat -c %a .) != *00 ]]; then umask 022; fi
[[ -d logs ]] || mkdir -p logs || exit 1

has_begun() {
  local word=
  if [[ -f attempt ]]; then read -r word <attempt; fi 2>/dev/null
  [[ "$word" == "$attempt" ]]
}

# An earlier try may have started it, and lost the answer.
if [[ -e .srun ]] && squeue --steps --noheader --jobs="$job" --format=%j | grep -qxF -e "$name"; then
  pid=
else
  TZ=UTC0 printf -v header -- '--- attempt %s · step · %s · %(%Y-%m-%dT%H:%M:%SZ)T ---' "$attempt" "$HOSTNAME" -1
  printf '%s\n' "$header" >>logs/scheduler.out || exit 1
  (
    trap - INT QUIT
    exec setsid "$@" </dev/null >.srun 2>&1
  ) &
  pid=$!
fi
# Nothing ever comes from it: to read from it is to wait.
exec {silence}<> <(:)
SECONDS=0
until has_begun; do
  if ((SECONDS >= limit_s)); then
    if [[ -n "$pid" ]]; then kill "$pid" 2>/dev/null; fi
    exit 124
  fi
  if [[ -n "$pid" ]] && ! kill -0 "$pid" 2>/dev/null; then
    if has_begun; then exit 0; fi
    printed=$(<logs/scheduler.out)
    { cat .srun; printf '%s\n' "${printed##*"$header"}"; } >&2
    exit 1
  fi
  read -rt 0.02 -u "$silence" _
done
exit 0
