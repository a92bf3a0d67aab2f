# shellcheck shell=bash
# What a page says about the environment of its ranks. These functions run beside names that the user has chosen, so
# everything they set begins with TRAINJOB_. What a rehearsal has redirected stays as it is.

# Before the prologue, which may change them.
TRAINJOB_LIMITS_FOUND=$(ulimit -Sa)

# What the prologue has set with ulimit holds on this node alone: the launcher sets it on each. The last words of a line are
# the letter and the value: "open files (-n) 1024".
export_limits() {
  local TRAINJOB_LINE
  TRAINJOB_LIMITS=''
  while IFS= read -r TRAINJOB_LINE; do
    if [[ $'\n'"$TRAINJOB_LIMITS_FOUND"$'\n' != *$'\n'"$TRAINJOB_LINE"$'\n'* && "$TRAINJOB_LINE" =~ -([a-z])\)\ +([a-z0-9]+)$ ]]; then
      TRAINJOB_LIMITS+="${BASH_REMATCH[1]}=${BASH_REMATCH[2]} "
    fi
  done < <(ulimit -Sa)
  if [[ -n "$TRAINJOB_LIMITS" ]]; then export TRAINJOB_LIMITS; else unset TRAINJOB_LIMITS; fi
}

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

# use_python PROGRAM | WORD…: the interpreter that starts the launcher and the ranks. A path is also what a user's own
# command finds as `python`: its folder comes first on PATH. Words, such as `uv run python`, are asked once which one it is,
# in the job's copy of the project. A rehearsal has set both.
use_python() {
  if [[ -z "${TRAINJOB_PYTHON:-}" ]]; then
    TRAINJOB_PYTHON=$1
    if (($# > 1)); then
      if ! TRAINJOB_PYTHON=$(
        cd -- "$TRAINJOB_RUN_DIR/code/project" 2>/dev/null || cd -- "$TRAINJOB_RUN_DIR" || exit
        "$@" -c 'import sys; print(sys.executable)' </dev/null
      ); then
        echo "trainjob: no interpreter: $* failed (python: in the cluster file)" >&2
        return 1
      fi
    fi
    if [[ "$TRAINJOB_PYTHON" == /* ]]; then export PATH="${TRAINJOB_PYTHON%/*}:$PATH"; fi
  fi
  # With PYTHONSAFEPATH Python does not look in the working folder, where the runtime lies.
  if [[ -n "${PYTHONSAFEPATH:-}" ]]; then export PYTHONPATH="$TRAINJOB_RUN_DIR/code${PYTHONPATH:+:$PYTHONPATH}"; fi
  export_limits
  # The last of the settings: what comes next starts the ranks. The prologue may have changed the folder.
  if [[ -n "${TRAINJOB_ATTEMPT:-}" ]]; then
    (
      cd -- "$TRAINJOB_RUN_DIR" && note_event launch
      # For judge, where this host has no Python of its own.
      TRAINJOB_FILE=$TRAINJOB_PYTHON
      if [[ "$TRAINJOB_FILE" != /* || ! -x "$TRAINJOB_FILE" ]]; then TRAINJOB_FILE=$(command -v "$TRAINJOB_FILE") || true; fi
      keep_word .python "$TRAINJOB_FILE"
    )
  fi
}
