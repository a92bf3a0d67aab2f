#!/bin/sh
# Makes ROOT the file system of new namespaces, since Apptainer refuses to work in a mere chroot, and runs a command there
# as its ordinary user, who sees the folders SEEN at their own paths. Usage, as root:
#   unshare --net --mount --pid --uts --ipc --fork --kill-child --mount-proc sh apptainer_machine.sh ROOT SEEN... -- COMMAND...
set -eu
root=$1
shift
id=4321
mount --make-rprivate /
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
for folder in run tmp root "home/somebody"; do
  mount -t tmpfs -o mode=755 tmpfs "$root/$folder"
done
chmod 1777 "$root/tmp"
chown "$id:$id" "$root/home/somebody"
# A desktop's udev lets everybody use it, which Apptainer mounts its images by; a machine without udev may not.
mknod -m 666 "$root/run/fuse" c 10 229
mount --bind "$root/run/fuse" "$root/dev/fuse"
while [ "$1" != -- ]; do
  mkdir -p "$root$1"
  mount --bind "$1" "$root$1"
  shift
done
shift
ip link set lo up
mkdir -p "$root/run/outside"
cd "$root"
pivot_root . run/outside
cd /
umount --lazy /run/outside
exec setpriv --reuid "$id" --regid "$id" --clear-groups --inh-caps=-all \
  env --ignore-environment --chdir=/home/somebody HOME=/home/somebody USER=somebody LANG=C.UTF-8 "PATH=$PATH" "$@"
