# shellcheck shell=bash disable=SC2034 # the page uses what is set here
# The servers of a job with roles: trainjob.launch.roles starts them beside the job's own ranks. These functions run beside
# names that the user has chosen, so everything they set begins with TRAINJOB_.

# name_roles NAME…: the servers of this job. Where they are reached is set when they start, and mpirun hands on what is set.
name_roles() {
  local TRAINJOB_NAME
  TRAINJOB_SERVERS=()
  for TRAINJOB_NAME in "$@"; do export "TRAINJOB_ROLE_${TRAINJOB_NAME^^}="; done
}

# serve NAME HOST WORD…: how a server is started, and where others reach it.
serve() {
  if [[ -z "$2" ]]; then
    say "role $1 can't start: the address of its host is not known"
    exit 1
  fi
  TRAINJOB_SERVERS+=("$1" "$2" "$(($# - 2))" "${@:3}")
}

# nodes_of_job FIRST COUNT: so many nodes of a Slurm job, from that one on.
nodes_of_job() { scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n "$1,$(($1 + $2 - 1))p" | paste -sd ,; }
