# start_script.sh FOLDER SCRIPT ATTEMPT [SEARCH_PATH]: runs the job script SCRIPT of the run directory FOLDER, detached,
# with this PATH. Prints its process id, its start time (clock ticks since boot) and the host.
# shellcheck shell=bash
folder=$1 script=$2 attempt=$3 search_path=${4:-}
cd -- "$folder" || exit 1
# Looked at once more from inside, where it can no longer be replaced.
if [ ! -O . ]; then
  printf 'run directory %s belongs to somebody else\n' "$folder" >&2
  exit 1
fi
# Where others may read the run, nobody but its owner writes in it, whatever the umask is.
if [[ $(stat -c %a .) != *00 ]]; then umask 022; fi
mkdir -p logs || exit 1
printf -- '--- attempt %s · %s · %s · %s ---\n' "$attempt" "$script" "$(hostname)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
  >>logs/scheduler.out || exit 1
if [ -n "$search_path" ]; then export PATH="$search_path"; fi
export TRAINJOB_RUN_DIR=$folder
# A background command ignores INT and QUIT, and the job script has to be able to trap them. It gets a session of its
# own, so that it outlives the connection. setsid replaces the subshell: the process id stays the same.
(
  trap - INT QUIT
  exec setsid bash "$script" </dev/null >>logs/scheduler.out 2>&1
) &
pid=$!
# Its session must have begun before we leave; it may also be over already.
while { read -r stat <"/proc/$pid/stat"; } 2>/dev/null; do
  # shellcheck disable=SC2086 # the fields of proc(5), from the third on: state, parent, group, session
  set -- ${stat##*) }
  if [ "$4" = "$pid" ] || [ "$1" = Z ]; then break; fi
  sleep 0.01
done
# Process ids are reused; a process id with a start time is unique until the next boot.
printf '%s %s %s\n' "$pid" "${20:-gone}" "$(hostname)"
