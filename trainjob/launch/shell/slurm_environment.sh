# shellcheck shell=bash disable=SC2154 # the page sets login_environment
# What a job under Slurm keeps of the environment that it finds. `--export=NONE` does not make it empty: Slurm hands on every
# SLURM_ variable of the shell that called sbatch, which srun would obey here, and from 22.05 on it runs the user's
# login shell. What is kept is the same on every release: what Slurm has told this very job.

# Those that Slurm sets for every job, or that say how to reach it. What it sets for some jobs only might be the caller's.
TRAINJOB_OF_SLURM=(
  CLUSTER_NAME CONF CONF_SERVER JWT
  JOB_ID JOBID JOB_NAME JOB_NODELIST NODELIST JOB_NUM_NODES NNODES JOB_PARTITION JOB_CPUS_PER_NODE CPUS_ON_NODE
  NTASKS NPROCS NTASKS_PER_NODE TASKS_PER_NODE CPUS_PER_TASK
  SUBMIT_DIR SUBMIT_HOST NODEID PROCID LOCALID
  RESTART_COUNT ARRAY_JOB_ID ARRAY_TASK_ID ARRAY_TASK_COUNT ARRAY_TASK_MIN ARRAY_TASK_MAX ARRAY_TASK_STEP
)
# What it says of each of several groups of nodes.
TRAINJOB_OF_GROUPS='SLURM_HET_SIZE|SLURM_@(JOB_ID|JOB_NODELIST|JOB_NUM_NODES|NTASKS|TASKS_PER_NODE|CPUS_PER_TASK)_HET_GROUP_+([0-9])'
# Who the user is, what bash itself needs, and what plugins of Slurm have set. TMPDIR: a task without it gets Slurm's own if it
# is the first one of its node, and only then. SLURM_TMPDIR: sites set it, and ranks and the prologue work there.
TRAINJOB_OF_SYSTEM='HOME|USER|LOGNAME|SHELL|TMPDIR|SLURM_TMPDIR|HOSTNAME|PWD|OLDPWD|SHLVL|_|BASHOPTS|SHELLOPTS|SLURMD_NODENAME|SPANK_*|_SLURM_SPANK_*|IPUOF_*|TRAINJOB_*'
TRAINJOB_OF_GPUS='CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK'
# A rehearsal brings in these what the prologue, which it skips, would have loaded.
TRAINJOB_OF_REHEARSAL='PYTHONPATH|LD_LIBRARY_PATH|OMPI_MCA_*|OMP_NUM_THREADS'
TRAINJOB_STANDARD_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# Before anything else that the page or the library sets: what is exported under one of those names must not go with it.
clean_environment() {
  local TRAINJOB_NAME TRAINJOB_KEPT TRAINJOB_SLURM_NAMES
  printf -v TRAINJOB_SLURM_NAMES '|SLURM_%s' "${TRAINJOB_OF_SLURM[@]}"
  TRAINJOB_KEPT="@($TRAINJOB_OF_SYSTEM$TRAINJOB_SLURM_NAMES)"
  if [[ -n "${SLURM_JOB_GPUS:-}" ]]; then TRAINJOB_KEPT="@($TRAINJOB_OF_GPUS|$TRAINJOB_KEPT)"; fi
  if [[ "${TRAINJOB_PROLOGUE:-}" == skip ]]; then TRAINJOB_KEPT="@($TRAINJOB_OF_REHEARSAL|$TRAINJOB_KEPT)"; fi
  if [[ -n "${node_groups:-}" ]]; then TRAINJOB_KEPT="@($TRAINJOB_OF_GROUPS|$TRAINJOB_KEPT)"; fi
  while IFS= read -r TRAINJOB_NAME; do
    # shellcheck disable=SC2053 # the names are a pattern
    if [[ "$TRAINJOB_NAME" == PATH || "$TRAINJOB_NAME" == $TRAINJOB_KEPT ]]; then continue; fi
    if [[ "${login_environment:-}" != 1 || "$TRAINJOB_NAME" == @(SLURM|SLURMD|SBATCH|SRUN)_* ]]; then
      unset "$TRAINJOB_NAME"
    fi
  done < <(compgen -e)
  forget_another_jobs_numbers
  if [[ "${login_environment:-}" != 1 ]]; then forget_login_shell; fi
  if [[ -n "${node_groups:-}" ]]; then gather_groups; fi
}

# Without a group's number, Slurm's names mean the first group. This script reads those of all groups; srun reads none of
# them, and would take the first group's for every group's.
gather_groups() {
  local group nodes count
  unset SLURM_NODELIST SLURM_NNODES SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE
  unset SLURM_CPUS_PER_TASK SLURM_JOB_CPUS_PER_NODE
  export -n SLURM_JOB_NODELIST='' SLURM_JOB_NUM_NODES=0
  for ((group = 0; group < node_groups; group++)); do
    nodes=SLURM_JOB_NODELIST_HET_GROUP_$group count=SLURM_JOB_NUM_NODES_HET_GROUP_$group
    SLURM_JOB_NODELIST+="${SLURM_JOB_NODELIST:+,}${!nodes:-}"
    SLURM_JOB_NUM_NODES=$((SLURM_JOB_NUM_NODES + ${!count:-0}))
  done
}

# Slurm sets these for some jobs only, and the controller knows for which. Where it does not answer, they are believed. Of the
# element that has its array's own number it shows all elements, a line each.
forget_another_jobs_numbers() {
  local TRAINJOB_SHOWN
  if [[ -z "${SLURM_ARRAY_TASK_ID:-}${SLURM_RESTART_COUNT:-}" || -z "${SLURM_JOB_ID:-}" ]]; then return 0; fi
  TRAINJOB_SHOWN=$(scontrol show job -o "$SLURM_JOB_ID" 2>/dev/null) || return 0
  if [[ "$TRAINJOB_SHOWN" != *JobId=* ]]; then return 0; fi
  if [[ "$TRAINJOB_SHOWN" != *' ArrayJobId='* ]]; then unset "${!SLURM_ARRAY_@}"; fi
  if [[ $'\n'$TRAINJOB_SHOWN =~ $'\n'"JobId=$SLURM_JOB_ID "[^$'\n']*' Restarts='([0-9]{1,9})' ' ]]; then
    export SLURM_RESTART_COUNT=$((10#${BASH_REMATCH[1]}))
    if ((SLURM_RESTART_COUNT == 0)); then unset SLURM_RESTART_COUNT; fi
  fi
}

# The PATH and the functions of the login shell; of the PATH, the folder of Slurm's own commands stays.
# shellcheck disable=SC2030,SC2031 # a PATH for one look
forget_login_shell() {
  local TRAINJOB_NAME TRAINJOB_SRUN_AT
  while read -r _ _ TRAINJOB_NAME; do unset -f "$TRAINJOB_NAME"; done < <(declare -Fx)
  if [[ "${TRAINJOB_PROLOGUE:-}" == skip ]]; then
    export PATH="${PATH:-$TRAINJOB_STANDARD_PATH}"
    return 0
  fi
  # A login shell that has failed leaves no PATH at all.
  TRAINJOB_SRUN_AT=$(PATH="${PATH:+$PATH:}$TRAINJOB_STANDARD_PATH:/opt/slurm/bin" command -v srun) ||
    TRAINJOB_SRUN_AT=$(set +eu; . /etc/profile >/dev/null 2>&1; command -v srun) || TRAINJOB_SRUN_AT=/usr/bin/srun
  export PATH="$TRAINJOB_STANDARD_PATH"
  TRAINJOB_SRUN_AT=${TRAINJOB_SRUN_AT%/*}
  if [[ ":$PATH:" != *":$TRAINJOB_SRUN_AT:"* ]]; then PATH="$TRAINJOB_SRUN_AT:$PATH"; fi
}

# Before the prologue: `module` as the site defines it for every login shell.
define_module() {
  local TRAINJOB_FILE
  for TRAINJOB_FILE in /etc/profile.d/*modules*.sh /etc/profile.d/*lmod*.sh; do
    # shellcheck source=/dev/null # the site's own file
    if [[ -r "$TRAINJOB_FILE" ]]; then . "$TRAINJOB_FILE" || true; fi
  done
  # shellcheck source=/dev/null # the site's own file
  if ! type module >/dev/null 2>&1 && [[ -r /etc/profile ]]; then . /etc/profile >/dev/null 2>&1 || true; fi
}
