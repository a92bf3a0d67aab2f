# present_files.sh: reads paths, one a line, and writes a tar archive of those that exist, folders without their content.
# shellcheck shell=sh
# The test costs no process; only what exists is given to the one tar.
while IFS= read -r path; do
  if [ -e "$path" ]; then printf '%s\n' "$path"; fi
done | tar -cPf - --no-recursion -T -
