# remove_partitions.sh FOLDER SERVER: removes the V-IPU partitions that the run in FOLDER has made. The job script notes
# the name of a partition in the file `partition` only where it did not exist before; an array has such a file for each
# element, and under Slurm `.vipu` holds the path of the program on the nodes.
# shellcheck shell=sh
if [ -n "$2" ]; then export VIPU_CLI_API_HOST="$2"; fi
code=0
for folder in "$1" "$1"/tasks/*; do
  cd "$folder" 2>/dev/null && [ -s partition ] || continue
  name=$(cat partition)
  vipu=$(cat .vipu 2>/dev/null)
  command -v "${vipu:=vipu}" >/dev/null 2>&1 || vipu=vipu
  if ! command -v "$vipu" >/dev/null 2>&1; then
    echo "partition $name: vipu is not on this host" >&2
    code=1
  elif "$vipu" get partition "$name" >/dev/null 2>&1 && ! "$vipu" remove partition "$name"; then
    code=1
  else
    rm -f partition
  fi
done
exit "$code"
