"""Names of environment variables: those that a rank reads, a rehearsal redirects, or a launcher sets."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

RUN_DIR = "TRAINJOB_RUN_DIR"
ATTEMPT = "TRAINJOB_ATTEMPT"
# A random word for this start, the same for all ranks.
TOKEN = "TRAINJOB_TOKEN"  # noqa: S105 - a variable's name
RANK_DEVICE = "TRAINJOB_RANK_DEVICE"
# Where a rank's Python processes write their stacks when their launcher asks for them: see launch/witness/stacks.py.
STACKS = "TRAINJOB_STACKS"
# Where the Python processes of rank 0 count their updates: see launch/reading/counts.py.
COUNTS = "TRAINJOB_COUNTS"
LAUNCHER_LOG = "TRAINJOB_LAUNCHER_LOG"
# When the launcher began and when it started the rank: two times since 1970, with a comma between them.
STARTED = "TRAINJOB_STARTED"
# What the prologue has set with `ulimit`: pairs LETTER=VALUE.
LIMITS = "TRAINJOB_LIMITS"
# Of a packed element: the number of its share of a node, and how many a node has, as in 2/4.
SHARE = "TRAINJOB_SHARE"
# Not empty: a task compiles for its devices and ends, before or instead of training.
COMPILE_ONLY = "TRAINJOB_COMPILE_ONLY"

# The folder of a miniature V-IPU controller: set where a pod is rehearsed.
STANDIN_VIPU = "TRAINJOB_STANDIN_VIPU"
STANDIN_USER = "TRAINJOB_STANDIN_USER"
STANDIN_HOSTS = "TRAINJOB_STANDIN_HOSTS"
# The one of these that users set, in a job's env: how long ranks on stand-in GPUs wait for another.
STANDIN_HANG_S = "TRAINJOB_STANDIN_HANG_S"

# These are read by scripts written for torchrun; nothing else does the ranking.
RANK = "RANK"
LOCAL_RANK = "LOCAL_RANK"
WORLD_SIZE = "WORLD_SIZE"
LOCAL_WORLD_SIZE = "LOCAL_WORLD_SIZE"
MASTER_ADDR = "MASTER_ADDR"
MASTER_PORT = "MASTER_PORT"
RANK_NAMES = (RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT)

# A rehearsal redirects these. Bodies read each with a default; a real submit refuses to start while one is set.
REDIRECTS: Dict[str, str] = {
    "TRAINJOB_PYTHON": "the interpreter of the launcher and the ranks",
    "TRAINJOB_PROLOGUE": "skip: leave the site's prologue out",
    "TRAINJOB_DATA_DIR": "the folder of prepared data sets",
    "TRAINJOB_DEVICE": "cpu: train on the CPU even if the plan says otherwise",
    "TRAINJOB_INTERFACE": "the network interface ranks meet on",
    "TRAINJOB_CONTAINER": "none: run without the container",
    "TRAINJOB_MAX_UPDATES": "stop after this many weight updates",
}


# The cure wherever a job that is planned for GPUs can't have them: no variable changes what a submitted job trains on.
TRY_ON_CPUS = (
    "To train on CPUs, try the job on this machine (trainjob rehearse), or submit it with a copy of the cluster file "
    "that says accelerator: cpu without accelerators"
)


class Ranking(NamedTuple):
    """The place of one rank among the others."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int


# The launcher's variables, in the order of a ranking. A new launcher is a new row.
LAUNCHER_NAMES: Dict[str, Tuple[str, str, str, str]] = {
    "slurm": ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_STEP_TASKS_PER_NODE"),
    # Inside a container: the launcher outside has said it.
    "container": (RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE),
    "openmpi": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
}


def ranking(launcher: str, environ: Mapping[str, str]) -> Ranking:
    """Return where `launcher` says this process stands.

    Raises KeyError naming the variable that the launcher did not set.
    """
    *others, local_world_size = (environ[name] for name in LAUNCHER_NAMES[launcher])
    if launcher == "slurm":
        # "4(x2),1" stands for four tasks on each of two nodes, and one on the third.
        counts: List[str] = []
        for part in local_world_size.split(","):
            tasks, _, times = part.rstrip(")").partition("(x")
            counts += [tasks] * int(times or 1)
        local_world_size = counts[int(environ.get("SLURM_NODEID") or 0)]
    return Ranking(*map(int, (*others, local_world_size)))


def started(environ: Mapping[str, str]) -> Optional[Tuple[float, float]]:
    """Return when the launcher began and when it started this rank; None for a rank that was started by hand."""
    times = re.match(r"(\d{1,12}\.\d{1,6}),(\d{1,12}\.\d{1,6})\Z", environ.get(STARTED, ""))
    return None if times is None else (float(times.group(1)), float(times.group(2)))


def set_redirects(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the redirect variables that are set, with their values."""
    return {name: environ[name] for name in REDIRECTS if environ.get(name)}


def redirect(environ: Mapping[str, str], name: str) -> Optional[str]:
    """Return the value of redirect variable `name`; None when it is unset or empty."""
    if name not in REDIRECTS:
        raise KeyError(name)
    return environ.get(name) or None
