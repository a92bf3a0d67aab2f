#!/bin/sh
# Makes ROOT, which has a Podman, the file system of a new mount namespace, says `ready`, and stays until its input
# closes; then it removes all containers. TEMPORARY is seen there at its own path; images are in memory. The processes
# and the network are the machine's own. Usage, as root: unshare --mount sh podman_machine.sh ROOT TEMPORARY
set -eu
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
# crun takes version 2 alone, and the machine may have version 1.
mount -t cgroup2 none "$root/sys/fs/cgroup"
mkdir -p "$root$2" "$root/var/lib/containers"
for folder in run var/tmp var/lib/containers; do mount -t tmpfs -o mode=755 tmpfs "$root/$folder"; done
mount --bind "$2" "$root$2"
mkdir -p "$root/run/outside"
cd "$root"
pivot_root . run/outside
cd /
umount --lazy /run/outside
echo ready
cat >/dev/null
podman rm --all --force --time 0 >/dev/null 2>&1 || true
