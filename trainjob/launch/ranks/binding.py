"""Finds the CPUs next to a rank's GPU in sysfs, without any program.

A GPU is on the PCI bus of one socket. A rank on another socket copies its batches through the link between them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import FrozenSet, List, Mapping, NamedTuple, Optional, Sequence

from trainjob.launch.host import text
from trainjob.launch.rank_environment import cpu_numbers, listed_in

_SYSFS = Path("/sys")
# Display controllers of NVIDIA and AMD: VGA or 3D, and AMD's processing accelerators.
_VENDORS = ("0x10de", "0x1002")
_CLASSES = ("0x0300", "0x0302", "0x1200", "0x0380")
_SIBLINGS = "devices/system/cpu/cpu%d/topology/thread_siblings_list"
_INDEX = re.compile(r"[0-9]+")


class Binding(NamedTuple):
    """The CPUs of one rank, and the NUMA node that they belong to."""

    cpus: FrozenSet[int]
    numa_node: int
    gpu: int

    def __str__(self) -> str:
        return "%d CPUs of NUMA node %d, next to GPU %d" % (len(self.cpus), self.numa_node, self.gpu)


def nearby(
    local_rank: int,
    gpus_of_ranks: Sequence[int],
    allowed: FrozenSet[int],
    is_bound: bool,
    sysfs: Path = _SYSFS,
) -> Optional[Binding]:
    """Return the CPUs next to the rank's GPU; None if sysfs doesn't say, or none of `allowed` is there.

    `gpus_of_ranks` has the GPU of each rank of this host, as the driver numbers them. Ranks whose GPUs share a node
    divide its CPUs by cores, unless `allowed` already belongs to this rank alone (`is_bound`).
    """
    folder = sysfs / "bus" / "pci" / "devices"
    # In the order of their PCI addresses, which is how drivers number the GPUs of one kind.
    devices = [folder / name for name in sorted(os.listdir(str(folder)))] if folder.is_dir() else []
    gpus = [
        device
        for device in devices
        if text(device / "vendor").strip() in _VENDORS and text(device / "class").startswith(_CLASSES)
    ]
    if any(gpu >= len(gpus) for gpu in gpus_of_ranks):
        return None
    nodes = [text(gpus[gpu] / "numa_node").strip() for gpu in gpus_of_ranks]
    node = nodes[local_rank]
    local = allowed & frozenset(cpu_numbers(text(gpus[gpus_of_ranks[local_rank]] / "local_cpulist")))
    if not _INDEX.fullmatch(node) or not local:  # -1: the machine has one node, or doesn't say
        return None
    if not is_bound:
        sharing = [rank for rank, other in enumerate(nodes) if other == node]
        # The hyper-threads of each core, in the order of their first CPU.
        siblings = {cpu: frozenset(cpu_numbers(text(sysfs / (_SIBLINGS % cpu)))) & local for cpu in local}
        cores = sorted({shared or frozenset((cpu,)) for cpu, shared in siblings.items()}, key=min)
        at = sharing.index(local_rank)
        mine = cores[at * len(cores) // len(sharing) : (at + 1) * len(cores) // len(sharing)]
        local = frozenset(cpu for core in mine for cpu in core)
    return Binding(local, int(node), gpus_of_ranks[local_rank]) if local else None


def physical_gpus(environ: Mapping[str, str], count: int) -> Optional[List[int]]:
    """Return the GPU of each of `count` ranks as the driver numbers them; None if they are known by another name.

    Slurm renumbers a step's GPUs in CUDA_VISIBLE_DEVICES if control groups hide the others.
    """
    name = "SLURM_STEP_GPUS" if environ.get("SLURM_STEP_GPUS") else "CUDA_VISIBLE_DEVICES"
    if name not in environ:
        return list(range(count))
    names = listed_in(environ, name)[:count]
    return [int(name) for name in names] if len(names) == count and all(map(_INDEX.fullmatch, names)) else None
