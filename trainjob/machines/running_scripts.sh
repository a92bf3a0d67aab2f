# running_scripts.sh: reads lines of "PID START_TIME". Prints the name of this host, then a line for each: alive or gone.
# shellcheck shell=sh
read -r host </proc/sys/kernel/hostname
printf '%s\n' "$host"
while read -r pid started; do
  # A zombie has ended, and so has a process whose id now belongs to a process that started at another time.
  { read -r stat <"/proc/$pid/stat"; } 2>/dev/null || stat=') Z'
  # shellcheck disable=SC2086 # the fields of proc(5), from the third on
  set -- ${stat##*) }
  if [ "$1" != Z ] && [ "${20:-}" = "$started" ]; then echo alive; else echo gone; fi
done
