"""Finds the CPUs next to a rank's GPU in sysfs, without any program.

A GPU is on the PCI bus of one socket. A rank on another socket copies its batches through the link between them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import FrozenSet, List, Mapping, NamedTuple, Optional, Sequence

from trainjob.launch.rank_environment import cpu_numbers

_SYSFS = Path("/sys")
# Display controllers of NVIDIA and AMD: VGA or 3D, and AMD's processing accelerators.
_VENDORS = ("0x10de", "0x1002")
_CLASSES = ("0x0300", "0x0302", "0x1200", "0x0380")
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
    gpus = _gpus(sysfs)
    if any(gpu >= len(gpus) for gpu in gpus_of_ranks):
        return None
    nodes = [_numa_node(gpus[gpu]) for gpu in gpus_of_ranks]
    node = nodes[local_rank]
    local = allowed & frozenset(cpu_numbers(_text(gpus[gpus_of_ranks[local_rank]] / "local_cpulist")))
    if node is None or not local:
        return None
    if not is_bound:
        sharing = [rank for rank, other in enumerate(nodes) if other == node]
        local = _share(_cores(local, sysfs), sharing.index(local_rank), len(sharing))
    return Binding(local, node, gpus_of_ranks[local_rank]) if local else None


def physical_gpus(environ: Mapping[str, str], count: int) -> Optional[List[int]]:
    """Return the GPU of each of `count` ranks as the driver numbers them; None if they are known by another name.

    Slurm renumbers a step's GPUs in CUDA_VISIBLE_DEVICES if control groups hide the others.
    """
    listed = environ.get("SLURM_STEP_GPUS") or environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return list(range(count))
    names = [name.strip() for name in listed.split(",")]
    if len(names) < count or not all(_INDEX.fullmatch(name) for name in names):
        return None
    return [int(name) for name in names[:count]]


def _gpus(sysfs: Path) -> List[Path]:
    """Return the GPUs by their PCI addresses, which is how drivers number those of one kind."""
    folder = sysfs / "bus" / "pci" / "devices"
    devices = [folder / name for name in sorted(os.listdir(str(folder)))] if folder.is_dir() else []
    return [
        device
        for device in devices
        if _text(device / "vendor") in _VENDORS and _text(device / "class").startswith(_CLASSES)
    ]


def _numa_node(device: Path) -> Optional[int]:
    node = _text(device / "numa_node")
    return int(node) if _INDEX.fullmatch(node) else None  # -1: the machine has one node, or doesn't say


def _cores(cpus: FrozenSet[int], sysfs: Path) -> List[FrozenSet[int]]:
    """Return the hyper-threads of each core among `cpus`, in the order of their first CPU."""
    siblings = (
        _text(sysfs / "devices" / "system" / "cpu" / ("cpu%d" % cpu) / "topology" / "thread_siblings_list")
        for cpu in sorted(cpus)
    )
    cores = (frozenset(cpu_numbers(listed)) & cpus or frozenset((cpu,)) for cpu, listed in zip(sorted(cpus), siblings))
    return sorted(set(cores), key=min)


def _share(cores: Sequence[FrozenSet[int]], number: int, of: int) -> FrozenSet[int]:
    mine = cores[number * len(cores) // of : (number + 1) * len(cores) // of]
    return frozenset(cpu for core in mine for cpu in core)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
