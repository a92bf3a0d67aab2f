#compdef trainjob
# Completes the words of `trainjob` in zsh: trainjob says what fits, as arguments of _arguments.
_trainjob() {
  eval "$(_TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _TRAINJOB_COMPLETE=complete_zsh trainjob 2>/dev/null)"
}
# In a folder of fpath, this file is the function that is called; else it is sourced.
if [[ $funcstack[1] == _trainjob ]]; then
  _trainjob "$@"
else
  compdef _trainjob trainjob
fi
