# grown_files.sh MOST_BYTES: reads lines of "OFFSET PATH". Writes, for each file that is longer, a line of
# "OFFSET SIZE PATH" and then SIZE bytes from OFFSET on, at most MOST_BYTES. A file that became shorter is sent from 0 on.
# shellcheck shell=sh
while IFS=' ' read -r offset path; do
  [ -f "$path" ] || continue
  size=$(wc -c <"$path")
  size=$((size))
  if [ "$size" -lt "$offset" ]; then offset=0; fi
  if [ "$size" -eq "$offset" ]; then continue; fi
  if [ $((size - offset)) -gt "$1" ]; then size=$((offset + $1)); fi
  printf '%s %s %s\n' "$offset" "$((size - offset))" "$path"
  tail -c +"$((offset + 1))" "$path" | head -c "$((size - offset))"
done
