# squeue.sh FORMAT: lists all jobs of this user, with those that ended a moment ago. One call, however many jobs there are.
# shellcheck shell=sh
exec squeue --noheader --array --states=all --user="$(id -un)" --format="$1"
