#!/bin/sh
# The daemon of one node, under a host name of its own, for logs that say where a rank ran.
# Usage: unshare --uts --mount sh node.sh FOLDER NODE, with settings in FOLDER
# shellcheck disable=SC2154 # settings: slurmd, words of a command, and confined (1 or empty)
set -eu
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
# shellcheck source=/dev/null
. "$1/settings"
hostname "$2"
# As by default on Debian and Ubuntu: a node's own name means an address that no other node reaches.
{ echo "127.0.1.1 $2"; sed "s/ $2\\b//" "$1/hosts"; } >"$1/private/hosts-$2"
mount --bind "$1/private/hosts-$2" /etc/hosts
# Else a job could undo what protects the files of its user.
confined=${confined:+setpriv --bounding-set=-sys_admin,-sys_ptrace}
eval "exec $confined $slurmd -N \"\$2\""
