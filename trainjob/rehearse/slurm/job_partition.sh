#!/bin/sh
# shellcheck disable=SC2154 # what the other file sets
# The Prolog and the Epilog of a site whose jobs get a V-IPU partition of their own: this file has both names. The file
# `job-partition` beside it exports whose controller it is, and sets `programs`, `name` and `ipus`.
folder=$(dirname "$0")
# shellcheck source=/dev/null
. "$folder/job-partition"
PATH=$programs:$PATH
exec >/dev/null 2>&1
case ${0##*/} in
  prolog) vipu get partition "$name" || vipu create partition "$name" --size "$ipus" --reconfigurable ;;
  # Another node of the job may have removed it meanwhile, and an epilog that fails drains its node.
  epilog) vipu get partition "$name" && vipu remove partition "$name" || exit 0 ;;
esac
