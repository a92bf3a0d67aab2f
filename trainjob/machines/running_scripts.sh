# running_scripts.sh [SIGNAL]: reads lines of "PID START_TIME HOST FOLDER", a job script each. Prints a line for each: alive,
# gone, or elsewhere, if it was started on another host. Those that are alive get SIGNAL.
# shellcheck shell=sh
signal=${1:-}
read -r host </proc/sys/kernel/hostname
while read -r pid started its_host folder; do
  if [ "$its_host" != "$host" ]; then
    echo elsewhere
    continue
  fi
  # A zombie has ended, and so has a process whose id now belongs to a process that started at another time.
  { read -r stat <"/proc/$pid/stat"; } 2>/dev/null || stat=') Z'
  # shellcheck disable=SC2086 # the fields of proc(5), from the third on
  set -- ${stat##*) }
  is_alive=
  if [ "$1" != Z ] && [ "${20:-}" = "$started" ]; then
    # A copy of a run directory names the process of the original. It is the process that says whose it is: by its mark,
    # or by its working folder if the run directory was moved. Records of earlier versions have no folder.
    # shellcheck disable=SC3013 # every sh of Linux knows -ef
    if [ -z "$folder" ] || grep -qzxF -e "TRAINJOB_RUN_DIR=$folder" "/proc/$pid/environ" 2>/dev/null ||
      [ "/proc/$pid/cwd" -ef "$folder" ]; then
      is_alive=yes
    fi
  fi
  if [ -z "$is_alive" ]; then
    echo gone
    continue
  fi
  # It may have ended meanwhile.
  if [ -n "$signal" ]; then kill -"$signal" "$pid" 2>/dev/null; fi
  echo alive
done
