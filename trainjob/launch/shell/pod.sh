# shellcheck shell=bash disable=SC2034 # the page uses what is set here
# A job on an IPU-POD, started by poprun on the pod's launch host. The page sets `first_host`, where ranks meet, and
# `port` where the site has fixed one; `stops_by_file` where the ranks watch for the file `stop`.

TRAINJOB_SHELL=${BASH_SOURCE[0]%/*}
# shellcheck source=record.sh
. "$TRAINJOB_SHELL/record.sh"
# shellcheck source=settings.sh
. "$TRAINJOB_SHELL/settings.sh"
# shellcheck source=sdk.sh
. "$TRAINJOB_SHELL/sdk.sh"
# shellcheck source=mpi.sh
. "$TRAINJOB_SHELL/mpi.sh"
# shellcheck source=partition.sh
. "$TRAINJOB_SHELL/partition.sh"
# shellcheck source=group.sh
. "$TRAINJOB_SHELL/group.sh"
# shellcheck source=once.sh
. "$TRAINJOB_SHELL/once.sh"
first_host=127.0.0.1 port='' stops_by_file=''

# From here on the folder says RUNNING, and whatever ends this script is written down.
begin_run() {
  TRAINJOB_RUN_DIR=$(pwd -P)
  export TRAINJOB_RUN_DIR
  TRAINJOB_RUN_ID=${TRAINJOB_RUN_DIR##*/}
  mkdir -p logs checkpoints
  usr1=''
  trap 'usr1=received' USR1
  begin_attempt
  trap 'end_run $?' EXIT
  trap 'cancelled=1; exit 143' TERM INT HUP
  export MASTER_ADDR=$first_host
  # The same on every host, and another one for every run and attempt.
  MASTER_PORT=${port:-$((20000 + $(cksum <<<"$TRAINJOB_RUN_DIR $TRAINJOB_ATTEMPT" | cut -d ' ' -f 1) % 12768))}
  export MASTER_PORT
}

clean_up() {
  trap '' TERM INT HUP USR1
  end_group
  if is_stale; then return 0; fi
  if [[ -n "$cancelled" ]]; then rm -f stop; fi
  remove_partition
}

# end_run CODE
end_run() {
  clean_up
  end_attempt "$1"
  end_script "$1"
}

ask_or_cancel() {
  if [[ -n "$cancelled" ]]; then kill_group TERM; fi
  cancelled=1
  : >stop
}

# Stays until the ranks have ended. mpirun gives a rank one second between TERM and KILL, so ranks of ours are asked by
# file: they checkpoint, and stop at the same block. Whoever asks a second time ends them at once.
wait_for_ranks() {
  launcher=$!
  set +m
  if [[ -n "$stops_by_file" ]]; then
    trap_each ask_or_cancel TERM INT HUP
    trap 'note_event signal USR1; : >stop' USR1
  else
    trap_each 'cancelled=1; kill_group TERM' TERM INT HUP
    # mpirun hands it on to the launchers; a starter that doesn't take it is left alone.
    trap 'note_event signal USR1; if takes_usr1 "$launcher"; then kill -USR1 "$launcher" 2>/dev/null || true; fi' USR1
  fi
  if [[ -n "$usr1" ]]; then kill -USR1 $$; fi
  watch_time_limit
  wait_for "$launcher"
}
