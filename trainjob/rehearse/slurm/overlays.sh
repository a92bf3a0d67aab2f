# shellcheck shell=sh
# shellcheck disable=SC2154 # folder and private are set by inside.sh, which sources this
# Folders in which jobs may write what nobody else sees: the newest files are in memory, below $private/overlays.

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
number=0
while IFS= read -r source && IFS= read -r target; do
  written=$private/overlays/$number
  mkdir "$written" "$private/overlays/work-$number"
  chown --reference="$source" "$written"
  chmod --reference="$source" "$written"
  [ -d "$target" ] || make_folder "$target"
  # By a relative name, in which no sign has a meaning to mount.
  (cd "$source" && mount -t overlay -o "lowerdir=.,upperdir=$written,workdir=$private/overlays/work-$number" trainjob "$target")
  number=$((number + 1))
done <"$folder/overlays"
while IFS= read -r file; do
  make_folder "$(dirname "$file")"
  : >"$file"
done <"$folder/empty-files"
mount --make-rshared /
