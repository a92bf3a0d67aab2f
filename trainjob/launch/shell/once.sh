# shellcheck shell=bash
# The steps that a run takes once before its ranks start. They run here, where the prologue has run: outside of containers.
# Everything set here begins with TRAINJOB_, because it stands beside names of the user's.

# once_for_job PYTHON OPTION…: stays until the steps have ended; one that fails ends the ranks' shell.
once_for_job() {
  TRAINJOB_SIGNALLED='' TRAINJOB_PARENT=$BASHPID
  trap 'TRAINJOB_SIGNALLED=1' TERM INT HUP
  if ! "$1" -c 'import sys; sys.exit(sys.version_info < (3, 8))'; then
    say "steps of once: run by Python 3.8 or newer, and on $HOSTNAME $1 is older or missing: load one in prologue"
    exit 1
  fi
  "$1" -m trainjob.launch.once --parent "$TRAINJOB_PARENT" "${@:2}" "$TRAINJOB_RUN_DIR" &
  TRAINJOB_STEPS=$!
  trap 'TRAINJOB_SIGNALLED=1; kill -TERM "$TRAINJOB_STEPS" 2>/dev/null || true' TERM INT HUP
  if [[ -n "$TRAINJOB_SIGNALLED" ]]; then kill -TERM "$TRAINJOB_STEPS" 2>/dev/null || true; fi
  wait_for "$TRAINJOB_STEPS" || exit
  if [[ -n "$TRAINJOB_SIGNALLED" ]]; then exit 143; fi
  trap - TERM INT HUP
}
