"""Limits this process to its share of a node: a packed element's step sees all CPUs and GPUs that the job has there.

So do, without a scheduler, a server and the ranks on one host.

Slurm could give each step its own. But once a job goes on without a node that has failed, Slurm (22.05) no longer knows
what its earlier steps give back, and starts no further ones (`_step_dealloc_lps`, "due to job resizing").
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import List, MutableMapping, Tuple, TypeVar

Item = TypeVar("Item")

_DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
    "SLURM_STEP_GPUS",  # as the driver numbers them, by which CPUs near them are found
)


def take(share: str, environ: MutableMapping[str, str]) -> None:
    """Keep the CPUs and GPUs of `share`: its number from 0, and of how many, as in 2/4; several are 6+2/8."""
    place, _, of = share.partition("/")
    first, _, several = place.partition("+")
    number, size, count = int(first), int(several or 1), int(of)
    for name in _DEVICES:
        if environ.get(name):
            environ[name] = ",".join(_part(environ[name].split(","), number, size, count))
    ranks = int(environ.get("SLURM_NTASKS_PER_NODE") or environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or 1)
    rank = int(environ.get("SLURM_LOCALID") or environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or 0)
    every = sorted(os.sched_getaffinity(0), key=_place)
    os.sched_setaffinity(0, _part(every, number * ranks + rank * size, size, count * ranks))


def _part(every: "List[Item]", first: int, size: int, count: int) -> "List[Item]":
    common = math.gcd(math.gcd(first, size), count)
    unit = len(every) // (count // common)
    return every[first // common * unit : (first + size) // common * unit] or every


def _place(cpu: int) -> Tuple[int, int, int]:
    """Return a CPU's socket and core, so that the threads of a core are one share's."""
    try:
        names = ("physical_package_id", "core_id")
        paths = ["/sys/devices/system/cpu/cpu%d/topology/%s" % (cpu, name) for name in names]
        package, core = (int(Path(path).read_text()) for path in paths)
    except (OSError, ValueError):
        return 0, cpu, cpu
    return package, core, cpu
