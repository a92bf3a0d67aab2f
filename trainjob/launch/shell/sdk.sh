# shellcheck shell=bash
# The one procedure that enables a Poplar SDK. Job scripts source this file, and so do the probes of `trainjob check`:
# it needs nothing of the other files, and never ends the shell that sources it.

# enable_sdk FOLDER: source poplar-*/enable.sh and popart-*/enable.sh below FOLDER, unless they already were.
# Returns 1, and says why, when no SDK was enabled.
enable_sdk() {
  # The vendor's scripts see the positional parameters of this function, and assign names of their own.
  local TRAINJOB_SDK=$1 TRAINJOB_ENABLE TRAINJOB_OPTIONS=$-
  shift
  # They refuse to be sourced twice, and say so with a status that has to be ignored.
  if [[ "${POPLAR_SDK_ENABLED:-}" == "$TRAINJOB_SDK"/* ]]; then return 0; fi
  unset POPLAR_SDK_ENABLED
  # They read variables that may be unset.
  set +u
  for TRAINJOB_ENABLE in "$TRAINJOB_SDK"/poplar-*/enable.sh "$TRAINJOB_SDK"/popart-*/enable.sh; do
    # A pattern that matches nothing stays as it is, and POSIX shells end when they source a file that is missing.
    if [[ -r "$TRAINJOB_ENABLE" ]]; then
      # shellcheck source=/dev/null
      source "$TRAINJOB_ENABLE" || true
    fi
  done
  if [[ "$TRAINJOB_OPTIONS" == *u* ]]; then set -u; fi
  if [[ -z "${POPLAR_SDK_ENABLED:-}" ]]; then
    printf 'trainjob: no SDK was enabled: sdk.path is the folder that holds poplar-*/enable.sh, and it is %s\n' \
      "$TRAINJOB_SDK" >&2
    return 1
  fi
}

# use_venv FOLDER: what an activate script does that matters to programs.
use_venv() {
  export VIRTUAL_ENV=$1
  export PATH="$VIRTUAL_ENV/bin:$PATH"
}
