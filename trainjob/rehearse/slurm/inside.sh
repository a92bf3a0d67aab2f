#!/bin/sh
# The first process of a private Slurm's namespaces: starts the daemons, and ends when its standard input does.
# The kernel then ends every other process of the namespace, and the mounts go with the last of them.
# Usage: inside.sh FOLDER [NODE…], with slurm.conf, gres.conf, hosts, key and settings in FOLDER
# shellcheck disable=SC2154 # settings: devices, address, root (of another release; else empty), accounting and every_address (1 or empty)
set -eu
folder=$1
shift
here=$(dirname "$0")
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
private=$folder/private
SLURM_CONF=$folder/slurm.conf
export SLURM_CONF
# shellcheck source=/dev/null
. "$folder/settings"

# Runs a program of the release's root, or where it is the installed one, of this host.
in_root() {
  if [ -n "$root" ]; then chroot "$folder/root" "$@"; else "$@"; fi
}

hostname login
mount --make-rshared /
ip link set lo up
ip address add "$address/32" dev lo
if [ -n "$every_address" ]; then ip route add local default dev lo; fi
mount --bind "$folder/hosts" /etc/hosts
mount -t tmpfs -o mode=755 trainjob "$private"
mkdir "$private/state"
if [ -s "$folder/mounts" ]; then
  # shellcheck source=mounts.sh
  . "$here/mounts.sh"
fi
# slurmd asks su for root's environment, and an ordinary user's root can't read what su looks into.
if [ -e /etc/shadow ] && [ ! -r /etc/shadow ]; then
  echo 'root:*:20000:0:99999:7:::' >"$private/shadow"
  mount --bind "$private/shadow" /etc/shadow
fi
for device in $devices; do
  # Slurm gives a job a device only if it is one, and an ordinary user may not make any.
  if ! mknod -m 666 "$private/$device" c 1 3 2>/dev/null; then
    : >"$private/$device"
    mount --bind /dev/null "$private/$device"
  fi
done
if [ -n "$root" ]; then
  # shellcheck source=release_root.sh
  . "$here/release_root.sh"
fi

in_root install -o munge -g munge -m 400 "$folder/key" "$private/munge.key"
in_root install -d -o munge -g munge -m 755 "$private/munge"
# --force: the folder may be a user's, which munged warns of.
in_root setpriv --reuid munge --regid munge --clear-groups munged --force --num-threads=2 \
  --key-file "$private/munge.key" --socket "$private/munge/socket" --pid-file "$private/munge/pid" \
  --log-file "$private/munge/log" --seed-file "$private/munge/seed"

if [ -n "$accounting" ]; then
  in_root sh "$folder/accounting" "$folder"
fi
in_root slurmctld
for node in "$@"; do
  unshare --uts --mount --propagation slave sh "$here/node.sh" "$folder" "$node"
done
: >"$folder/started"
exec 3<&0
cat <&3 >/dev/null
