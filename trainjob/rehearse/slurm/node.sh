#!/bin/sh
# The daemon of one node, under a host name of its own, for logs that say where a rank ran.
# Usage: unshare --uts sh node.sh FOLDER NODE, with settings in FOLDER
# shellcheck disable=SC2154 # settings: slurmd, words of a command
set -eu
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
# shellcheck source=/dev/null
. "$1/settings"
hostname "$2"
eval "exec $slurmd -N \"\$2\""
