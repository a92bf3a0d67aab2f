# resolve_folder.sh FOLDER: prints the absolute path of FOLDER without symbolic links, which need not exist yet; nothing is
# created. Exits with 40 (a part of the path is no folder), 41 (it can't be written) or 42 (it is not absolute), and
# prints the part of the path that is to blame.
# shellcheck shell=sh
# shellcheck disable=SC2088 # a tilde in quotes is what is looked for
case $1 in
  "~") set -- "$HOME" ;;
  "~/"*) set -- "$HOME/${1#??}" ;;
esac
case $1 in /*) ;; *) exit 42 ;; esac
existing=$1
while [ ! -e "$existing" ]; do existing=$(dirname -- "$existing"); done
if [ ! -d "$existing" ]; then
  echo "$existing"
  exit 40
fi
if [ ! -w "$existing" ] || [ ! -x "$existing" ]; then
  echo "$existing"
  exit 41
fi
cd -- "$existing" || exit 41
resolved=$(pwd -P)
printf '%s%s\n' "${resolved%/}" "${1#"${existing%/}"}"
