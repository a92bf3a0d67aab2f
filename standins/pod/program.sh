#!/bin/sh
# The stand-in `poprun`, `vipu` or `gc-monitor`, whichever name this file has been given. The file `standins` beside it
# sets `python`, the interpreter, and `main`, the Python program that plays all of them.
folder=$(dirname "$0")
# shellcheck source=/dev/null
. "$folder/standins"
# shellcheck disable=SC2154 # both are set by that file
exec "$python" "$main" "${0##*/}" "$@"
