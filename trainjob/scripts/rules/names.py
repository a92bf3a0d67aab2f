"""Names that are known, and what a typing error makes of them."""

from __future__ import annotations

# Those that no other command resembles: gunzip is no misspelt unzip.
_COMMANDS = (
    "module source export srun sbatch torchrun python python3 conda mkdir scontrol accelerate deepspeed nvidia-smi "
    "apptainer singularity hostname activate echo"
)
KNOWN_COMMANDS = frozenset(_COMMANDS.split())

_JOB = (
    "ACCOUNT CPUS_PER_NODE DEPENDENCY END_TIME GID GPUS GROUP ID LICENSES NAME NODELIST "
    "NUM_NODES PARTITION QOS RESERVATION START_TIME UID USER RESTART_COUNT CONSTRAINTS "
    "STDOUT STDERR STDIN SEGMENT_SIZE OVERSUBSCRIBE"
)
_OTHERS = (
    "ARRAY_JOB_ID ARRAY_TASK_COUNT ARRAY_TASK_ID ARRAY_TASK_MAX ARRAY_TASK_MIN "
    "ARRAY_TASK_STEP CLUSTER_NAME CONF CONTAINER "
    "CONTAINER_ID CPUS_ON_NODE CPUS_PER_GPU CPUS_PER_TASK CPU_BIND CPU_BIND_LIST "
    "CPU_BIND_TYPE CPU_BIND_VERBOSE CPU_FREQ_REQ DIST_PLANESIZE "
    "DISTRIBUTION EXPORT_ENV GET_USER_ENV GPU_BIND GPU_FREQ GPUS GPUS_ON_NODE GPUS_PER_NODE "
    "GPUS_PER_SOCKET GPUS_PER_TASK GTIDS "
    "HET_SIZE HINT JOBID LAUNCH_NODE_IPADDR LOCALID MEM_BIND MEM_BIND_LIST MEM_BIND_TYPE "
    "MEM_PER_CPU MEM_PER_GPU MEM_PER_NODE "
    "NETWORK NNODES NODEID NODELIST NODE_ALIASES NPROCS NTASKS NTASKS_PER_CORE "
    "NTASKS_PER_GPU NTASKS_PER_NODE NTASKS_PER_SOCKET "
    "OOM_KILL_STEP OVERCOMMIT OVERLAP PRIO_PROCESS PROCID PROFILE RESTART_COUNT "
    "SCRIPT_CONTEXT SHARDS_ON_NODE SPANK SRUN_COMM_HOST "
    "SRUN_COMM_PORT STEPID STEP_GPUS STEP_ID STEP_LAUNCHER_PORT STEP_NODELIST STEP_NUM_NODES STEP_NUM_TASKS "
    "STEP_TASKS_PER_NODE SUBMIT_DIR SUBMIT_HOST TASKS_PER_NODE TASK_PID THREADS_PER_CORE "
    "THREAD_SPEC TMPDIR TOPOLOGY_ADDR "
    "TOPOLOGY_ADDR_PATTERN TRES_PER_TASK UMASK WORKING_CLUSTER WORKDIR KILL_BAD_EXIT EXACT "
    "DEBUG JOB_NODELIST EXIT_ERROR SLURMD VERSION SCRATCH "
    "LABELIO UNBUFFEREDIO WAIT MPI_TYPE EXCLUSIVE IMMEDIATE TIMELIMIT OPEN_MODE RESV_PORTS "
    "RLIMIT_CORE RLIMIT_NOFILE PRIVATE COMPUTE_TYPE "
    "JOB_RESERVATION JOBNAME NUM_NODES_ALIAS"
)
SLURM_VARIABLES = frozenset(
    {f"SLURM_{name}" for name in _OTHERS.split()} | {f"SLURM_JOB_{name}" for name in _JOB.split()}
)


def differs_by_typing_error(word: str, known: str) -> bool:
    """Return whether one letter is missing, added or wrong, or two neighbours are swapped."""
    if word == known or abs(len(word) - len(known)) > 1 or min(len(word), len(known)) < 4:
        return False
    at = next(
        (place for place, (one, other) in enumerate(zip(word, known, strict=False)) if one != other),
        min(len(word), len(known)),
    )
    rest, of_known = word[at:], known[at:]
    return (
        rest[1:] == of_known[1:]
        or rest == of_known[1:]
        or rest[1:] == of_known
        or (rest[:2] == of_known[:2][::-1] and rest[2:] == of_known[2:])
    )
