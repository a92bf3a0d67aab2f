#!/bin/sh
# Logs in to each host as mpirun will: without a question, and only where the host's key is known. PORT HOST...
port=$1
shift
for host in "$@"; do
  ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=20 -p "$port" "$host" true </dev/null || {
    code=$?
    echo "$(id -un) can't log in to $host" >&2
    exit "$code"
  }
done
