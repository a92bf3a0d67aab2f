# begin_sending.sh PART TARGET: makes the folder PART, into which a copy goes that becomes TARGET. Prints whether rsync is
# there, then the size and name of each file that an interrupted copy has left. Exits with 17 if TARGET exists.
# shellcheck shell=sh
if [ -e "$2" ]; then exit 17; fi
if [ ! -d "$1" ]; then mkdir -p "$(dirname -- "$1")" && mkdir -m 700 "$1" || exit 1; fi
cd "$1" || exit 1
command -v rsync || echo none
find . -type f -exec wc -c {} +
