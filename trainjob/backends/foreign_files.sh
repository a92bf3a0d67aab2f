# foreign_files.sh FOLDER: prints what others than this user can have put into the run directory FOLDER where it would be
# executed or trained on, and exits with 1 if there is any.
# shellcheck shell=sh
if [ -L "$1" ]; then
  echo "$1 is a link"
  exit 1
fi
cd -- "$1" || exit 1
me=$(id -u)
found=$(find . -prune \( ! -user "$me" -o -perm -020 -o -perm -002 \) -print)
# Nobody else reaches what is in a folder that is this user's alone.
if [ -z "$found" ] && [ -n "$(find . -prune ! -perm -010 ! -perm -001 -print)" ]; then exit 0; fi
for name in job.json job.sh job.sbatch submission.json code; do
  if [ ! -e "$name" ] && [ ! -L "$name" ]; then continue; fi
  found=$found$(find "$name" -path code/project -prune -o \
    \( ! -user "$me" -o -type l -o -perm -020 -o -perm -002 \) -print)
done
# The project's links are the user's own, and so are those beside checkpoints.
for name in code/project checkpoints attempt state; do
  if [ ! -e "$name" ]; then continue; fi
  found=$found$(find "$name" \( ! -user "$me" -o ! -type l \( -perm -020 -o -perm -002 \) \) -print)
done
if [ -z "$found" ]; then exit 0; fi
printf '%s\n' "$found" | head -n 3
exit 1
