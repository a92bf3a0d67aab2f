# shellcheck shell=bash
# A job on this machine, without a scheduler. The page sets `engine` where each rank runs in a container.

TRAINJOB_SHELL=${BASH_SOURCE[0]%/*}
# shellcheck source=record.sh
. "$TRAINJOB_SHELL/record.sh"
# shellcheck source=settings.sh
. "$TRAINJOB_SHELL/settings.sh"
# shellcheck source=mpi.sh
. "$TRAINJOB_SHELL/mpi.sh"
# shellcheck source=container.sh
. "$TRAINJOB_SHELL/container.sh"
# shellcheck source=once.sh
. "$TRAINJOB_SHELL/once.sh"
# shellcheck source=roles.sh
. "$TRAINJOB_SHELL/roles.sh"
engine=''

# From here on the folder says RUNNING, and whatever ends this script is written down.
begin_run() {
  TRAINJOB_RUN_DIR=$(pwd -P)
  export TRAINJOB_RUN_DIR
  mkdir -p logs checkpoints
  usr1=''
  trap 'usr1=received' USR1
  begin_attempt
  trap 'end_run $?' EXIT
  trap 'cancelled=1; exit 143' TERM INT HUP
  if [[ -n "$engine" ]]; then find_engine "$engine"; fi
}

# end_run CODE
end_run() {
  end_attempt "$1"
  end_script "$1"
}

cancel_ranks() {
  cancelled=1
  kill -TERM "$launcher" 2>/dev/null || true
}

# Stays until the ranks have ended, and hands on what this script is told: TERM ends them, USR1 asks for a checkpoint.
wait_for_ranks() {
  launcher=$!
  trap_each cancel_ranks TERM INT HUP
  trap 'ask_for_checkpoint' USR1
  if [[ -n "$usr1" ]]; then ask_for_checkpoint; fi
  watch_time_limit
  wait_for "$launcher"
}

ask_for_checkpoint() {
  note_event signal USR1
  until takes_usr1 "$launcher" || ! kill -0 "$launcher" 2>/dev/null; do sleep 0.05; done
  kill -USR1 "$launcher" 2>/dev/null || true
}
