# shellcheck shell=bash
# What a page says about the environment of its ranks. These functions run beside names that the user has chosen, so
# everything they set begins with TRAINJOB_. What a rehearsal has redirected stays as it is.

# use_sdk FOLDER VENV: either may be empty. A rehearsal has neither.
use_sdk() {
  if [[ "${TRAINJOB_PROLOGUE:-}" == skip ]]; then return 0; fi
  if [[ -n "$1" ]]; then enable_sdk "$1"; fi
  if [[ -n "$2" ]]; then use_venv "$2"; fi
}

# use_data FOLDER: where prepared data sets lie.
use_data() {
  if [[ -z "${TRAINJOB_DATA_DIR:-}" ]]; then TRAINJOB_DATA_DIR=$1; fi
  export TRAINJOB_DATA_DIR
}

# use_python PROGRAM: the interpreter that starts the launcher and the ranks. A path is also what a user's own command
# finds as `python`: its folder comes first on PATH. A rehearsal has set both.
use_python() {
  if [[ -z "${TRAINJOB_PYTHON:-}" ]]; then
    TRAINJOB_PYTHON=$1
    if [[ "$1" == /* ]]; then export PATH="${1%/*}:$PATH"; fi
  fi
  # With PYTHONSAFEPATH Python does not look in the working folder, where the runtime lies.
  if [[ -n "${PYTHONSAFEPATH:-}" ]]; then export PYTHONPATH="$TRAINJOB_RUN_DIR/code${PYTHONPATH:+:$PYTHONPATH}"; fi
  # The last of the settings: what comes next starts the ranks. The prologue may have changed the folder.
  if [[ -n "${TRAINJOB_ATTEMPT:-}" ]]; then (cd -- "$TRAINJOB_RUN_DIR" && note_event launch); fi
}
