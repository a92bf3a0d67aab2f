# run_processes.sh MARK SIGNAL SPARED CALLER: sends SIGNAL (0: none) to every process of this host that has MARK in its
# environment, and to all that these have started; prints their process ids. The process SPARED gets no signal. CALLER is
# the process that asks, in case it belongs to the run itself.
# shellcheck shell=sh
mark=$1 signal=$2 spared=$3 caller=$4
marked=$(grep -lzxF -e "$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3 | tr '\n' ' ')
[ -n "$marked" ] || exit 0
# A process can lose the mark (env -i, sudo), and one that loses its parent is adopted by the launcher: so follow parents.
found=$(grep -HE '^(State|PPid):' /proc/[0-9]*/status 2>/dev/null | awk -F '[/:\t ]+' -v marked="$marked" \
  -v not_ours="$$ $caller" -v spared="$spared" '
  BEGIN {
    count = split(not_ours, list, " ")
    for (i = 1; i <= count; i++) other[list[i]] = 1
    count = split(marked, list, " ")
    for (i = 1; i <= count; i++) if (!(list[i] in other)) ours[list[i]] = 1
  }
  $5 == "State" { alive[$3] = $6 != "Z" && $6 != "X" }
  $5 == "PPid" { parent[$3] = $6 }
  END {
    do {
      more = 0
      for (pid in parent) if (!(pid in ours) && !(pid in other) && (parent[pid] in ours)) more = ours[pid] = 1
    } while (more)
    for (pid in ours) if (alive[pid] && pid != spared) print pid
  }')
for pid in $found; do
  # It may have ended meanwhile, or belong to another user: the next look tells.
  if [ "$signal" != 0 ]; then kill -"$signal" "$pid" 2>/dev/null; fi
  echo "$pid"
done
