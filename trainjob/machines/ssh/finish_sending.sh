# finish_sending.sh PART TARGET: moves a complete copy to its place. Exits with 17 if TARGET exists.
# shellcheck shell=sh
if [ -e "$2" ]; then exit 17; fi
mv "$1" "$2"
