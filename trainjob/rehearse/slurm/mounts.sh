# shellcheck shell=sh
# shellcheck disable=SC2154 # folder and private are set by inside.sh, which sources this
# What jobs may write to: copies of folders, whose newest files are in memory, below $private/overlays; folders of
# temporary files; and what the user names. Everything else is made read-only.
# $folder/mounts has four lines for each: a number, how (overlay | home | writable | scratch), the folder, and where.

# Covers the folder $1 by one in memory, with all that is in it: what is added to it is seen in these namespaces alone.
cover() {
  covers=$((covers + 1))
  copy=$private/overlays/cover-$covers
  mkdir "$copy"
  mount -t tmpfs -o mode=755 trainjob "$copy"
  for entry in "${1%/}"/* "${1%/}"/.[!.]*; do
    name=$copy/${entry##*/}
    if [ -L "$entry" ]; then
      cp -P "$entry" "$name"
    elif [ -d "$entry" ]; then
      mkdir "$name"
      mount --rbind "$entry" "$name"
    elif [ -e "$entry" ]; then
      : >"$name"
      mount --bind "$entry" "$name"
    fi
  done
}

# Makes the folder $1, whose parents may be missing.
make_folder() {
  above=$1
  while [ ! -d "$above" ]; do above=$(dirname "$above"); done
  if [ "$above" != / ]; then
    cover "$above"
    mount --rbind "$copy" "$above"
  fi
  mkdir -p "$1"
}

# No root is replaced while mounts are shared with the nodes to come.
mount --make-rprivate /
mkdir "$private/overlays"
covers=0
# Many files make folders of their cluster that are not here (mkdir -p /scratch/me).
cover /
cd "$copy" || exit
pivot_root . .
umount --lazy .
cd / || exit

# Calls a function for each of $folder/mounts, with its four lines.
for_each_mount() {
  while IFS= read -r number && IFS= read -r kind && IFS= read -r source && IFS= read -r target; do
    "$1"
  done <"$folder/mounts"
}

# Makes one below $private/overlays, while nothing covers another yet. A home that no overlay takes is left out.
prepare_mount() {
  made=$private/overlays/made-$number
  written=$private/overlays/$number
  work=$private/overlays/work-$number
  if [ "$kind" = scratch ]; then return; fi
  mkdir "$made"
  if [ "$kind" = writable ]; then
    mount --rbind "$source" "$made"
    return
  fi
  mkdir "$written" "$work"
  chown --reference="$source" "$written"
  chmod --reference="$source" "$written"
  # By a relative name, in which no sign has a meaning to mount.
  if (cd "$source" && mount -t overlay -o "lowerdir=.,upperdir=$written,workdir=$work" trainjob "$made"); then
    if [ "$kind" = home ]; then for_each_mounted show_below_home; fi
  else
    [ "$kind" = home ] || exit 1
    rmdir "$made"
  fi
}

# Calls a function for each place where something is mounted, with $at, its $options and the $rest of what
# /proc/self/mountinfo says of the newest mount there.
for_each_mounted() {
  tac /proc/self/mountinfo >"$private/mounted"
  places=:
  while read -r _ _ _ _ at options rest; do
    case $places in *":$at:"*) continue ;; esac
    places=$places$at:
    at=$(printf '%b' "$at")
    "$1"
  done <"$private/mounted"
}

# An overlay does not show other file systems below its folder.
show_below_home() {
  case $at in "$source"/*) mount --rbind "$at" "$made${at#"$source"}" || : ;; esac
}

put_mount() {
  if [ "$kind" = scratch ]; then
    mountpoint -q "$target" || mount --rbind "$target" "$target"
  elif [ -d "$private/overlays/made-$number" ]; then
    [ -d "$target" ] || make_folder "$target"
    mount --rbind "$private/overlays/made-$number" "$target"
  fi
}

note_if_writable() {
  case $kind in writable | scratch) case $at/ in "$target"/*) is_writable=1 ;; esac ;; esac
}

# What has no device of ours, and is not to be written to, gets read-only, by the options that it has.
protect() {
  case $at in / | /proc | /proc/* | /sys | /sys/* | /dev | /dev/* | "$private" | "$private"/*) return ;; esac
  case " $rest" in *' - '*' trainjob '*) return ;; esac
  case $options in ro | ro,*) return ;; esac
  is_writable=
  for_each_mount note_if_writable
  [ -z "$is_writable" ] || return 0
  case $options in *,*) options=ro,${options#*,} ;; *) options=ro ;; esac
  # One that another covers can't be reached, by nobody.
  mount -o "remount,bind,$options" "$at" 2>"$private/refused" || [ ! -w "$at" ] || { cat "$private/refused" >&2; exit 1; }
}

for_each_mount prepare_mount
for_each_mount put_mount
while IFS= read -r file; do
  make_folder "$(dirname "$file")"
  : >"$file"
done <"$folder/empty-files"
for_each_mounted protect
# Root could have the kernel run a program outside of all this.
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro,nosuid,nodev,noexec /proc/sys
mount --make-rshared /
