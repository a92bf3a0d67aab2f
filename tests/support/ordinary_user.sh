#!/bin/sh
# Runs a command as an ordinary user, with a line in /etc/subuid and without a password for sudo, who sees the folders
# NEEDED, wherever they are. Usage, as root: unshare --mount sh ordinary_user.sh HOME SUBORDINATE NEEDED... -- COMMAND...
set -eu
home=$1 subordinate=$2
shift 2
id=4321
mount --make-rprivate /
staging=$(mktemp -d)
mount -t tmpfs -o mode=755 tmpfs "$staging"

# The interpreter or the checkout may lie in root's home, where nobody else may look.
number=0
hidden=
while [ "$1" != -- ]; do
  if ! setpriv --reuid "$id" --regid "$id" --clear-groups test -x "$1"; then
    number=$((number + 1))
    mkdir "$staging/$number"
    mount --bind "$1" "$staging/$number"
    top=${1#/}
    hidden="$hidden /${top%%/*}"
    printf '%s\n' "$1" >"$staging/$number.path"
  fi
  shift
done
shift
for top in $(printf '%s\n' $hidden | sort -u); do
  mount -t tmpfs -o mode=755 tmpfs "$top"
done
while [ "$number" -gt 0 ]; do
  path=$(cat "$staging/$number.path")
  mkdir -p "$path"
  mount --move "$staging/$number" "$path"
  number=$((number - 1))
done

for name in passwd subuid subgid; do
  cp "/etc/$name" "$staging/$name" 2>/dev/null || : >"$staging/$name"
  [ -e "/etc/$name" ] || : >"/etc/$name"
done
echo "somebody:x:$id:$id::$home:/bin/sh" >>"$staging/passwd"
if [ "$subordinate" = yes ]; then
  echo "somebody:100000:65536" | tee -a "$staging/subuid" >>"$staging/subgid"
fi
for name in passwd subuid subgid; do
  chmod 644 "$staging/$name"
  mount --bind "$staging/$name" "/etc/$name"
done
exec setpriv --reuid "$id" --regid "$id" --clear-groups --inh-caps=-all "$@"
