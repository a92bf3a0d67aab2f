#!/bin/sh
# Writes down what the daemons of some nodes, and all that they start, do with files, until its input ends.
# Usage: count_operations.sh OUTPUT PIDFILE…, which writes OUTPUT.1, OUTPUT.2 and so on, and then OUTPUT.ready
set -eu
output=$1
shift
tracers=''
number=0
# Not close, lseek, fstat and the like: they do not reach a file server.
calls=%file,read,pread64,write,pwrite64,getdents64,ftruncate,fsync,fdatasync,flock
for file in "$@"; do
  number=$((number + 1))
  daemon=$(cat "$file")
  strace -f -qq -y -e trace="$calls" -e signal=none -s 0 -o "$output.$number" -p "$daemon" </dev/null &
  tracers="$tracers $!"
  until grep -q '^TracerPid:[[:space:]]*[1-9]' "/proc/$daemon/status"; do
    kill -0 $! || exit 1
    sleep 0.1
  done
done
: >"$output.ready"
cat >/dev/null
# shellcheck disable=SC2086 # process ids, a word each
kill $tracers
wait || true
