# replace_files.sh FOLDER: unpacks the tar archive on its input into the run directory FOLDER, and removes the stop file of
# an earlier attempt. Exits with 44 if there is no such directory.
# shellcheck shell=sh
cd "$1" 2>/dev/null || exit 44
if [ -L "$1" ] || [ -n "$(find . -prune \( ! -user "$(id -u)" -o -perm -020 -o -perm -002 \) -print)" ]; then
  echo "it is a link, belongs to somebody else, or others may write in it: ls -ld $1" >&2
  exit 1
fi
rm -f stop
exec tar -xpf -
