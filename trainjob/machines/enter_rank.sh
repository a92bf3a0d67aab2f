#!/bin/bash
# enter_rank.sh ENGINE FOLDER RANK [COMMAND…]: becomes COMMAND, or a shell, next to a rank of the run in FOLDER on this
# host: in its folder and with its environment; in its container where it has one. ENGINE is docker, podman or nothing.
engine=$1 folder=$2 rank=$3
shift 3
terminal=()
if [ -t 0 ]; then terminal=(--tty); fi

complain() {
  echo "trainjob: $1" >&2
  exit 1
}

# Prints the container of the rank: the launcher outside hands RANK in.
container_of_rank() {
  local id
  for id in $("$engine" ps --quiet --filter "label=trainjob.run=$folder"); do
    if "$engine" inspect --format '{{range .Config.Env}}{{println .}}{{end}}' "$id" | grep -qx "RANK=$rank"; then echo "$id"; fi
  done
}

# Prints the rank's first process: of those with both marks in their environment the oldest that leads a session, or the
# oldest, because not every launcher gives its ranks a session.
process_of_rank() {
  local environ pid fields
  for environ in /proc/[0-9]*/environ; do
    if tr '\0' '\n' 2>/dev/null <"$environ" | grep -qxF "TRAINJOB_RUN_DIR=$folder" &&
      tr '\0' '\n' 2>/dev/null <"$environ" | grep -qx "RANK=$rank"; then
      pid=${environ#/proc/} pid=${pid%/environ}
      read -r -a fields <<<"$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null)"
      if [ -n "${fields[19]:-}" ]; then echo "$((fields[3] != pid)) ${fields[19]} $pid"; fi
    fi
  done 2>/dev/null | sort -n -k 1,1 -k 2,2 | sed -n '1s/.* //p'
}

if [ -n "$engine" ]; then
  id=$(container_of_rank | head -n 1)
  if [ -z "$id" ]; then complain "no container of rank $rank runs on $HOSTNAME"; fi
  if [ $# -eq 0 ]; then set -- sh -c 'command -v bash >/dev/null && exec bash --norc; exec sh'; fi
  exec "$engine" exec --interactive "${terminal[@]}" "$id" "$@"
fi

pid=$(process_of_rank)
if [ -z "$pid" ]; then complain "no process of rank $rank of the run in $folder is on $HOSTNAME"; fi
environment=()
while IFS= read -r -d '' pair; do environment+=("$pair"); done <"/proc/$pid/environ"
if [ -n "${TERM:-}" ]; then environment+=("TERM=$TERM"); fi
if [ $# -eq 0 ]; then set -- bash --noprofile --norc; environment+=("PS1=rank $rank:\\w\\$ "); fi

# Apptainer and Pyxis put a rank into namespaces of its own.
if [ "$(readlink "/proc/$pid/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ]; then
  user=()
  if [ "$(readlink "/proc/$pid/ns/user")" != "$(readlink /proc/self/ns/user)" ]; then user=(--user --preserve-credentials); fi
  exec nsenter --target "$pid" "${user[@]}" --mount --root --wd -- env -i "${environment[@]}" "$@"
fi
cd -- "$(readlink "/proc/$pid/cwd")" || complain "the folder of rank $rank is gone"
exec env -i "${environment[@]}" "$@"
