# shellcheck shell=bash disable=SC2034 # the page uses what is set here
# A job under Slurm. The page sets:
#   starter       srun, or poprun or mpirun, which start the ranks from the first node of the job
#   max_attempts  how often the job starts at most without being asked to
#   preemption    what this site does: requeue, cancel, user-signal
#   counted_from  the update that the task begins with; empty for a command, which may count nothing
#   interface, port   where ranks meet; empty: the first node's name, and a free port
#   container, image  what ranks run inside of: apptainer, pyxis, docker or podman, and its image
#   queues_follow_up  1 where a follow-up job is queued before the work starts
#   retries, retry_mem, retry_time  how many attempts may ask for more, and sbatch's options with which they do
#   is_sweep      1 where every element of the array has a job.json of its own
# and before it sources this file:
#   login_environment  1 where ranks get what the user's login shell sets
#   node_groups, job_ranks  how many groups of nodes the job has, where they differ, and its ranks on all of them

TRAINJOB_SHELL=${BASH_SOURCE[0]%/*}
# shellcheck source=slurm_environment.sh
. "$TRAINJOB_SHELL/slurm_environment.sh"
clean_environment
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
# shellcheck source=slurm_container.sh
. "$TRAINJOB_SHELL/slurm_container.sh"
# shellcheck source=rendezvous.sh
. "$TRAINJOB_SHELL/rendezvous.sh"
# shellcheck source=excluded_nodes.sh
. "$TRAINJOB_SHELL/excluded_nodes.sh"
# shellcheck source=retry.sh
. "$TRAINJOB_SHELL/retry.sh"
# shellcheck source=requeue.sh
. "$TRAINJOB_SHELL/requeue.sh"
# shellcheck source=step.sh
. "$TRAINJOB_SHELL/step.sh"
# shellcheck source=once.sh
. "$TRAINJOB_SHELL/once.sh"
# shellcheck source=roles.sh
. "$TRAINJOB_SHELL/roles.sh"
starter=srun max_attempts=1 preemption=requeue counted_from='' interface='' port='' container='' image='' is_sweep=''
queues_follow_up='' retries=0 retry_mem=() retry_time=()
# `received` once USR1 has arrived, `passed` while it is handed on.
usr1=''
# Of a follow-up job: the job that it follows, which is the script's argument.
follows=''
if [[ "${1:-}" =~ ^[0-9]+(_[0-9]+)?$ ]]; then follows=$1; fi
# The process that notes the image's digest.
noting=''
# What the controller showed when this script was told to end: once the job waits again, it no longer knows of a preemption.
shown_when_told=''
# The signals by which this script is told to end.
told_by='TERM INT HUP'
# 1 where ranks are asked by the input of their srun.
requests=''

# From here on the folder says RUNNING, and whatever ends this script is written down.
begin_run() {
  refuse_without_slurm
  TRAINJOB_SUBMITTED_IN=$PWD
  enter_element
  # Slurm runs a copy of the script: the run directory is where sbatch was called, not where the copy lies.
  export TRAINJOB_RUN_DIR=$PWD
  [[ -d logs && -d checkpoints ]] || mkdir -p logs checkpoints
  trap 'usr1=received' USR1
  # shellcheck disable=SC2064,SC2086 # names of signals
  trap 'cancelled=1; exit 143' $told_by
  trap 'end_run $?' EXIT
  begin_job
  if has_engine; then end_containers "$container"; fi
  open_requests
  share_token
  meet_on_first_node
  if is_group; then prepare_mpirun; fi
  # Neither this nor the next starts a process. `read` fails at the end of a file, and has read it all the same.
  IFS= read -r -d '' TRAINJOB_ON_EACH_NODE <"$TRAINJOB_SUBMITTED_IN/$TRAINJOB_SHELL/on_each_node.sh" || [[ -n "${TRAINJOB_ON_EACH_NODE:-}" ]]
  # Found before the job sets a PATH of its own.
  hash srun 2>/dev/null || true
  TRAINJOB_SRUN=${BASH_CMDS[srun]:-srun}
  step_printed=$(size_of_output)
}

refuse_without_slurm() {
  if [[ -z "${SLURM_JOB_ID:-}" ]]; then
    say "this script is for Slurm; in its folder: sbatch job.sbatch"
    exit 1
  fi
}

# Each element of an array has a run directory of its own, below the one they were submitted in; the code is shared.
enter_element() {
  if [[ -z "${SLURM_ARRAY_TASK_ID:-}" ]]; then return 0; fi
  if [[ -n "$is_sweep" && ! -e "tasks/$SLURM_ARRAY_TASK_ID/job.json" ]]; then
    say "the sweep has nothing for array element $SLURM_ARRAY_TASK_ID: those it has are in $PWD/tasks"
    exit 1
  fi
  mkdir -p "tasks/$SLURM_ARRAY_TASK_ID/logs"
  cd -- "tasks/$SLURM_ARRAY_TASK_ID" || exit 1
  exec >>logs/scheduler.out 2>&1
  if [[ ! -e job.json ]]; then cp ../../job.json .job.json.part && mv -f .job.json.part job.json; fi
  ln -sfn ../../code code
}

# Every node must see this very word: another folder of the same name, or an old copy, has another one.
share_token() {
  export TRAINJOB_TOKEN="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}.$RANDOM$RANDOM"
  keep_word .token "$TRAINJOB_TOKEN"
}

# What srun reads, and hands to the launcher of every rank. A signal would do, were it not that Slurm sends it to ranks as
# well, which may not handle it yet, or never. An engine's containers have no input of ours, nor have all groups of nodes.
open_requests() {
  requests=''
  if ! is_group && ! has_engine && [[ -z "${node_groups:-}" ]] && : {TRAINJOB_REQUESTS}<> <(:); then
    requests=1
  else
    : {TRAINJOB_REQUESTS}</dev/null
  fi
}

# hosts_of_job comma|range: the nodes of this job, as poprun reads them.
hosts_of_job() {
  if [[ "$1" == range ]]; then
    printf '%s\n' "$SLURM_JOB_NODELIST"
  else
    scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd ,
  fi
}

is_group() { [[ "$starter" != srun ]]; }

clean_up() {
  if has_engine; then end_containers "$container"; fi
  if ! is_group; then return 0; fi
  trap '' TERM INT HUP USR1
  end_group
  if is_stale; then return 0; fi
  if [[ -n "$cancelled" ]]; then rm -f stop; fi
  if [[ -n "$TRAINJOB_REMOVES_PARTITION" ]]; then remove_partition; fi
}

# end_run CODE
end_run() {
  clean_up
  if [[ -n "$noting" ]]; then end_noting "$1"; fi
  end_job "$1"
}

# Stays until the ranks have ended.
wait_for_ranks() {
  launcher=$!
  set +m
  if [[ -n "$image" && "${TRAINJOB_CONTAINER:-}" != none ]]; then
    note_image >/dev/null 2>&1 &
    noting=$!
  fi
  # shellcheck disable=SC2086 # names of signals
  trap_each 'cancelled=1; when_told' $told_by
  trap 'keep_asking' USR1
  if [[ -n "$usr1" ]]; then keep_asking; fi
  watch_time_limit
  if is_group; then wait_for "$launcher"; else wait_for_step; fi
}

when_told() { shown_when_told=$(show_job); }

# Hands USR1 on: to the launchers by their srun's input, or by a file that they look for; to mpirun until the ranks end,
# because it drops a signal that comes too early. The launcher passes it on once.
keep_asking() {
  if [[ "$usr1" == passed ]]; then return 0; fi
  usr1=passed
  note_event signal USR1
  if [[ -n "$requests" ]]; then
    printf 'USR1\n' >&"$TRAINJOB_REQUESTS"
    return 0
  fi
  if ! is_group; then
    write_word .request "$TRAINJOB_ATTEMPT"
    return 0
  fi
  while kill -0 -- "-$launcher" 2>/dev/null; do
    if takes_usr1 "$launcher"; then
      kill -USR1 -- "-$launcher" 2>/dev/null || true
      sleep 5
    else
      sleep 0.1
    fi
  done &
}
