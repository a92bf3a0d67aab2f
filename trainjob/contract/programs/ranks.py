"""The variables by which launchers tell a process its place among the others."""

from __future__ import annotations

from trainjob.contract.environment import LOCAL_RANK, RANK, RANK_NAMES, WORLD_SIZE

# In the order in which they count for a process that has several. Slurm sets its own for every task.
RANK_VARIABLES = (RANK, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "HOROVOD_RANK")
WORLD_SIZE_VARIABLES = (WORLD_SIZE, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "HOROVOD_SIZE")
LOCAL_RANK_VARIABLES = (LOCAL_RANK, "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "HOROVOD_LOCAL_RANK")
SLURM_RANK, SLURM_LOCAL_RANK, SLURM_WORLD_SIZE = "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"
# 0 in the batch shell, and in each task of a step its own.
SLURM_PLACE = (SLURM_RANK, "SLURM_NODEID", SLURM_LOCAL_RANK)
NODE_RANK_VARIABLES = ("NODE_RANK", "GROUP_RANK")
# All that a job tells its ranks, or its launchers.
PLACE_VARIABLES = (*RANK_NAMES, *NODE_RANK_VARIABLES, "NNODES", "NPROC_PER_NODE", "JAX_COORDINATOR_ADDRESS")
