# shellcheck shell=bash disable=SC2034,SC2154 # what the page sets, and other files read
# A run inside an allocation that its user holds. This script is a step on the first node, and the ranks are another one of
# the same name. The run ends by itself before the allocation does, and nobody starts it again. The page sets:
#   hosts, ranks_per_host   how many nodes of the allocation the run takes, and the ranks on each
#   cpus_per_rank           the CPUs of a rank, where the allocation has as many
# and time_limit_s, if the run is to end earlier.

own_step=${SLURM_STEP_ID:-}
# Of the job that holds the nodes, an element of an array perhaps: they say nothing about this run.
unset SLURM_RESTART_COUNT "${!SLURM_ARRAY_@}"
# shellcheck source=slurm.sh
. "${BASH_SOURCE[0]%/*}/slurm.sh"
run_of_job=$own_step
# How long before the end of the allocation its runs have ended: TERM, a checkpoint, KILL.
allocation_margin_s=30
# A signal to a step reaches all processes there: srun, which is one of them, kills its ranks at TERM, and ignores URG.
told_by='TERM INT HUP URG'

begin_job() {
  local shown word=''
  if [[ -z "$own_step" ]]; then
    say "this script is for a step of an allocation; in its folder: srun --jobid=JOB --overlap --nodes=1 --ntasks=1 --mem=0 bash job.sh"
    exit 1
  fi
  job=$SLURM_JOB_ID
  # What its submission has seen is a moment old for the first attempt.
  if [[ ! -e attempt ]]; then read_word .allocation; fi
  shown=$word
  if [[ "$shown" != "JobId=$job "*' NodeList='[!\ \(]* ]]; then shown=$(shown_allocation); fi
  take_nodes "$shown"
  begin_attempt
  write_word job_id "$job"
  keep_word .nodes "$SLURM_JOB_NODELIST"
  remove .bad_node .out_of_memory
  allocation=$shown
}

# What can wait until the ranks are on their way.
watch_time_limit() {
  end_before_allocation "$allocation"
  use_reservation "$allocation"
  begin_limiter
}

# use_reservation SHOWN: a job of ours that holds the nodes ends when nobody has used it for a while (reservation.sh).
use_reservation() {
  local used
  if [[ ! "$1" =~ \ WorkDir=(.*) ]]; then return 0; fi
  used=${BASH_REMATCH[1]%% [A-Z]*=*}/.used
  if [[ -O "$used" ]]; then touch -c "$used" 2>/dev/null || true; fi
}

# What the controller shows of the allocation. It may be restarting, so it is asked again for a minute; a job without nodes,
# "(null)", is none.
shown_allocation() {
  local tries shown
  for ((tries = 0; tries < 30; tries++)); do
    if ((tries > 0)); then sleep 2; fi
    # The number of an array shows all its elements, one of which has this number itself.
    shown=$'\n'$(show_job)
    if [[ "$shown" =~ $'\n'"JobId=$job "[^$'\n']*' NodeList='[^\ \($'\n'][^$'\n']* ]]; then
      printf '%s\n' "${BASH_REMATCH[0]#?}"
      return 0
    fi
  done
  say "in $tries tries the controller has not shown job $job, whose nodes this run takes"
  return 1
}

# take_nodes SHOWN: the first nodes of the allocation, as Slurm tells a job of its own. A step is told of its own node alone.
take_nodes() {
  local cpus nodes IFS=,
  [[ "$1" =~ \ NodeList=([^ ]+) ]] || return 1
  SLURM_JOB_NODELIST=${BASH_REMATCH[1]}
  if [[ ! "$1" =~ \ NumNodes=([0-9]+) ]] || ((BASH_REMATCH[1] != hosts)); then
    mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    ((${#nodes[@]})) || return 1
    SLURM_JOB_NODELIST="${nodes[*]:0:hosts}"
  fi
  unset SLURM_NODELIST SLURM_NNODES SLURM_NTASKS SLURM_NPROCS SLURM_TASKS_PER_NODE SLURM_JOB_CPUS_PER_NODE
  export SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES=$hosts SLURM_NTASKS_PER_NODE=$ranks_per_host
  # An allocation may have been asked for with fewer CPUs than the cluster file gives a rank.
  if [[ "$1" =~ \ NumNodes=([0-9]{1,6})(-[0-9]+)?\ NumCPUs=([0-9]{1,9}) ]]; then
    cpus=$((BASH_REMATCH[3] / BASH_REMATCH[1] / ranks_per_host))
    if ((cpus > 0 && cpus < cpus_per_rank)); then export SLURM_CPUS_PER_TASK=$cpus; fi
  fi
}

# end_before_allocation SHOWN
end_before_allocation() {
  local ends clock_s left_s
  [[ "$1" =~ \ EndTime=([0-9T:-]+) ]] && ends=$(date -u -d "${BASH_REMATCH[1]}" +%s 2>/dev/null) || return 0
  read_clock
  left_s=$((ends - ${clock_s%.*} - allocation_margin_s))
  if ((left_s < 1)); then left_s=1; fi
  if [[ -n "$time_limit_s" ]] && ((time_limit_s <= left_s)); then return 0; fi
  time_limit_s=$left_s
  if ((time_limit_margin_s > left_s / 2)); then time_limit_margin_s=$((left_s / 2)); fi
}

# The end of a step reaches no other: TERM to this one is handed on to the ranks'.
when_told() { tell_steps "$SLURM_JOB_NAME" "$own_step"; }

# end_job CODE: the job that holds the nodes goes on, so nothing is asked of the controller, and nothing starts again.
end_job() {
  if is_stale; then return 0; fi
  end_attempt "$(code_of_ranks "$1")" facts_of_step
  end_script "$1"
}

# srun returns 0 when a node fails, and the controller says nothing of a job that goes on.
facts_of_step() {
  if ! all_ranks_have_ended; then facts+=(awaited); fi
}
