# write_word.sh PATH WORD: writes a file of one line, moved into place so that nobody reads half of it.
# shellcheck shell=sh
folder=${1%/*}
if [ ! -d "$folder" ]; then mkdir -- "$folder"; fi
printf '%s\n' "$2" >"$1.part" && mv -f -- "$1.part" "$1"
