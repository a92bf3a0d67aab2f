# remove_run.sh FOLDER PART: removes the run directory FOLDER, and PART, an interrupted copy of it. Exits with 45 if FOLDER
# is no run directory.
# shellcheck shell=sh
if [ -e "$1" ]; then
  [ -f "$1/job.json" ] || exit 45
  rm -rf -- "$1"
fi
rm -rf -- "$2"
