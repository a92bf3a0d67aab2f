# shellcheck shell=bash
# Completes the words of `trainjob` in bash: trainjob says what fits.
_trainjob_completion() {
  local IFS=$'\n'
  # One line a word; paths are left to bash. mapfile is bash 4, and macOS still has 3.2.
  # shellcheck disable=SC2207
  COMPREPLY=($(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _TRAINJOB_COMPLETE=complete_bash "$1" 2>/dev/null))
  # The value of NAME= comes next, without a space.
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
    compopt -o nospace 2>/dev/null
  fi
  return 0
}
complete -o default -F _trainjob_completion trainjob
