# shellcheck shell=bash disable=SC2034,SC2154 # what the page sets, and other files read
# The elements of an array as steps of one job. Slurm starts this script once, for the job, and that starts it again for each
# element, beside itself on the first node: the element's ranks are a step on the node that the element is given. The page
# sets, before it sources this file:
#   packed            the elements, as ranges
#   of_node, at_once  how many of them share a node, and how many run at once at most
#   ranks_per_host    the ranks of each

element=${TRAINJOB_ELEMENT:-} element_node=${TRAINJOB_ELEMENT_NODE:-}
element_share=${TRAINJOB_ELEMENT_SHARE:-}
unset "${!TRAINJOB_ELEMENT@}"
# shellcheck source=slurm.sh
. "${BASH_SOURCE[0]%/*}/slurm.sh"
# What starts the elements, in the job's own script.
TRAINJOB_PACK=()

if [[ -n "$element" ]]; then
  unset SLURM_NODELIST SLURM_NNODES SLURM_NTASKS SLURM_NPROCS SLURM_TASKS_PER_NODE SLURM_JOB_CPUS_PER_NODE
  export SLURM_JOB_NODELIST=$element_node SLURM_JOB_NUM_NODES=1 SLURM_NTASKS_PER_NODE=$ranks_per_host
  export SLURM_ARRAY_TASK_ID=$element TRAINJOB_SHARE=$element_share/$of_node
  run_of_job=$element
  # The job follows another one, and so does each element that ran in that.
  if [[ -n "$follows" ]]; then read_word "tasks/$element/job_id" && follows=$word; fi

  # All ranks are on one node, and seldom on that of this script.
  address_of_first_node() { printf '127.0.0.1\n'; }

  # One that was cancelled while it waited has an end like any other.
  if [[ -z "$element_node" ]]; then
    share_token() {
      cancelled=1
      exit 143
    }
  fi

  # The end of an element is not that of the job: TERM is handed on to its step.
  when_told() {
    shown_when_told=$(show_job)
    tell_steps "$element"
  }

  # Who starts it again is the script of the job, by the state that is recorded here.
  start_again() { record_end "$ending_code"; }
  start_elsewhere() { return 0; }
  queue_follow_up() { return 0; }
  drop_follow_up() { return 0; }
  pass_on_waiting() { return 0; }

  # node_is_lost CODE SHOWN: a job goes on without a node that has failed, and srun returns 0. A node on which no rank has
  # begun does not answer.
  node_is_lost() {
    if [[ -n "$cancelled" || "$2" == *' JobState='@(PENDING|COMPLETING|CANCELLED)* ]] || all_ranks_have_ended; then return 1; fi
    if (($1 != 0)) && has_node "$2" && [[ -z "$(failed_nodes "$element_node")" ]] && { step_has_begun || node_answers; }; then return 1; fi
    exclude_node "$element_node" failed
  }

  # node_answers: whether a step without options of the user's begins there. Then srun has refused the element's, and others
  # would be refused anywhere.
  node_answers() {
    within_limit srun --overlap --mem=0 --nodes=1 --ntasks=1 --nodelist="$element_node" true </dev/null &>/dev/null
  }

  # has_node SHOWN: whether the job still has this element's node, as far as the controller says.
  has_node() {
    if [[ ! "$1" =~ \ NodeList=([^ ]+) ]]; then return 0; fi
    scontrol show hostnames "${BASH_REMATCH[1]}" | grep -qx -- "$element_node"
  }
else
  TRAINJOB_PACK=(-m trainjob.launch.pack --script "$$" --of-node "$of_node" --at-once "$at_once")
  TRAINJOB_PACK+=(--nodes "$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}" | paste -sd ,)")
  # Who resumes a run names the elements that are to begin, once: the job may start again, and its follow-up goes on with them.
  if [[ "${1:-}" == elements=* && "${SLURM_RESTART_COUNT:-0}" == 0 ]]; then
    write_word .elements "${1#elements=}"
    TRAINJOB_PACK+=(--anew)
  fi
  read_word .elements
  TRAINJOB_PACK+=("${word:-$packed}")
  # What starts the elements is the one rank of this script, and is asked by a file.
  job_ranks=1
  open_requests() {
    requests=''
    : {TRAINJOB_REQUESTS}</dev/null
  }
fi

# pack_elements PYTHON: in the ranks' own shell, beside names that the user has chosen.
pack_elements() {
  if ((${#TRAINJOB_PACK[@]} == 0)); then return 0; fi
  cd -- "$TRAINJOB_RUN_DIR/code" || return 1
  exec "$1" "${TRAINJOB_PACK[@]}" "$TRAINJOB_RUN_DIR"
}
