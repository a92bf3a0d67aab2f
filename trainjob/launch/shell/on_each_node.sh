# shellcheck shell=sh
# Runs on each node, once for each rank, before anything in the run directory does: job scripts pass this text to
# `sh -c`, because a node may see another folder of the same name. $0 is `server` for a server of a job with roles, else
# `sh`; arguments: the command to run then.

# USR1 must not end what is not yet ready to take it.
trap "" USR1

# Every node must see this very word: another folder, or an old copy, has another one. NFS clients keep what
# they know of a folder for up to 60 s, so a new file may show that late.
TRAINJOB_TRIES=0
until { read -r TRAINJOB_READ <"$TRAINJOB_RUN_DIR/.token"; } 2>/dev/null && [ "$TRAINJOB_READ" = "$TRAINJOB_TOKEN" ]; do
  TRAINJOB_TRIES=$((TRAINJOB_TRIES + 1))
  if [ "$TRAINJOB_TRIES" -gt 90 ]; then
    echo "trainjob: node $SLURMD_NODENAME does not see run directory $TRAINJOB_RUN_DIR: set runs_dir to storage that all nodes share" >&2
    exit 1
  fi
  sleep 1
done
unset TRAINJOB_READ

# Of several groups of nodes, srun tells the ranks of all the CPUs of the last one's.
if [ -n "${SLURM_HET_SIZE:-}" ]; then
  TRAINJOB_GROUP=0 TRAINJOB_NODE=$SLURM_NODEID
  while eval "TRAINJOB_NODES=\${SLURM_JOB_NUM_NODES_HET_GROUP_$TRAINJOB_GROUP:-}" &&
    [ -n "$TRAINJOB_NODES" ] && [ "$TRAINJOB_NODE" -ge "$TRAINJOB_NODES" ]; do
    TRAINJOB_NODE=$((TRAINJOB_NODE - TRAINJOB_NODES)) TRAINJOB_GROUP=$((TRAINJOB_GROUP + 1))
  done
  eval "export SLURM_CPUS_PER_TASK=\${SLURM_CPUS_PER_TASK_HET_GROUP_$TRAINJOB_GROUP:-$SLURM_CPUS_PER_TASK}"
  unset TRAINJOB_GROUP TRAINJOB_NODE TRAINJOB_NODES
fi

# The job script calls srun again where the controller was away and no rank has begun.
if [ "${SLURM_PROCID:-}" = 0 ] && [ "$0" != server ]; then printf '%s\n' "$TRAINJOB_TOKEN" >"$TRAINJOB_RUN_DIR/.began"; fi

# Apptainer and Singularity take the values of a clean environment from names with a prefix of their own.
if [ -n "${TRAINJOB_FOR_APPTAINER:-}" ]; then
  TRAINJOB_PREFIX=APPTAINERENV
  if [ "$1" = singularity ]; then TRAINJOB_PREFIX=SINGULARITYENV; fi
  for TRAINJOB_NAME in $TRAINJOB_FOR_APPTAINER; do
    eval "[ -z \"\${$TRAINJOB_NAME+x}\" ] || export ${TRAINJOB_PREFIX}_$TRAINJOB_NAME=\"\$$TRAINJOB_NAME\""
  done
  export "${TRAINJOB_PREFIX}_PYTHONNOUSERSITE=1"
  unset TRAINJOB_FOR_APPTAINER TRAINJOB_PREFIX
fi

cd "$TRAINJOB_RUN_DIR/code" && exec "$@"
