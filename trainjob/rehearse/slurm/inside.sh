#!/bin/sh
# The first process of a private Slurm's namespaces: starts the daemons, and ends when its standard input does.
# The kernel then ends every other process of the namespace, and the mounts go with the last of them.
# Usage: inside.sh FOLDER DEVICES [NODE…], with slurm.conf, gres.conf, hosts and key in FOLDER
set -eu
folder=$1 devices=$2
shift 2
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
private=$folder/private
SLURM_CONF=$folder/slurm.conf
export SLURM_CONF

hostname login
ip link set lo up
# With nothing but loopback no name is looked up (getaddrinfo's AI_ADDRCONFIG): any second address will do.
ip address add 10.213.0.1/32 dev lo
mount --bind "$folder/hosts" /etc/hosts
mount -t tmpfs -o mode=755 trainjob "$private"
mkdir "$private/state"
for device in $devices; do
  mknod -m 666 "$private/$device" c 1 3
done

install -o munge -g munge -m 400 "$folder/key" "$private/munge.key"
install -d -o munge -g munge -m 755 "$private/munge"
# --force: the folder may be a user's, which munged warns of.
setpriv --reuid munge --regid munge --clear-groups munged --force --num-threads=2 --key-file "$private/munge.key" \
  --socket "$private/munge/socket" --pid-file "$private/munge/pid" --log-file "$private/munge/log" \
  --seed-file "$private/munge/seed"

slurmctld
for node in "$@"; do
  # A host name of its own, for logs that say where a rank ran.
  # shellcheck disable=SC2016 # the inner shell expands its own
  unshare --uts sh -c 'hostname "$1" && exec slurmd -N "$1"' sh "$node"
done
: >"$folder/started"
exec 3<&0
cat <&3 >/dev/null
