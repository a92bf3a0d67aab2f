"""Limits this process to its share of a node: a packed element's step sees all CPUs and GPUs that the job has there.

Slurm could give each step its own. But once a job goes on without a node that has failed, Slurm (22.05) no longer knows
what its earlier steps give back, and starts no further ones (`_step_dealloc_lps`, "due to job resizing").
"""

from __future__ import annotations

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
)
_OF_STEP = "SLURM_STEP_GPUS"  # as the driver numbers them


def take(share: str, environ: MutableMapping[str, str]) -> None:
    """Keep the CPUs and GPUs of `share`, which is its number from 0 and how many a node has, as in 2/4."""
    number, count = map(int, share.split("/"))
    step_gpus = environ.get(_OF_STEP, "")
    # A container is handed none of the host's names, and shows all GPUs of the node.
    if step_gpus and not any(environ.get(name) for name in _DEVICES):
        environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(len(step_gpus.split(",")))))
    for name in (*_DEVICES, _OF_STEP):
        if environ.get(name):
            environ[name] = ",".join(_part(environ[name].split(","), number, count))
    ranks, rank = int(environ.get("SLURM_NTASKS_PER_NODE") or 1), int(environ.get("SLURM_LOCALID") or 0)
    cpus = _part(sorted(os.sched_getaffinity(0), key=_place), number * ranks + rank, count * ranks)
    os.sched_setaffinity(0, cpus)


def _part(every: "List[Item]", number: int, count: int) -> "List[Item]":
    size = len(every) // count
    return every[number * size : (number + 1) * size] or every


def _place(cpu: int) -> Tuple[int, int, int]:
    """Return a CPU's socket and core, so that the threads of a core are one share's."""
    try:
        names = ("physical_package_id", "core_id")
        paths = ["/sys/devices/system/cpu/cpu%d/topology/%s" % (cpu, name) for name in names]
        package, core = (int(Path(path).read_text()) for path in paths)
    except (OSError, ValueError):
        return 0, cpu, cpu
    return package, core, cpu
