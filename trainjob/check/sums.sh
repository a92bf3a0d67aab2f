#!/bin/sh
# show FOLDER: prints the manifest of a data set. sums FOLDER: names its files that differ from the checksums on
# standard input, which are in sha256sum's form.
# shellcheck disable=SC2088,SC2016 # the argument is text, as it stands in a cluster file
case $2 in
  "~/"*) folder=$HOME/${2#??} ;;
  '$XDG_DATA_HOME/'*) folder=${XDG_DATA_HOME:-$HOME/.local/share}/${2#*/} ;;
  *) folder=$2 ;;
esac
case $1 in
  show) cat -- "$folder/manifest.json" ;;
  sums) cd -- "$folder" && sha256sum -c --quiet - ;;
esac
