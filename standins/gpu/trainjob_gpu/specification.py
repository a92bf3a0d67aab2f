"""The GPUs that this process sees: the node's, as the rehearsal describes them, limited by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import json
import os
from typing import List, Mapping, NamedTuple, Tuple

VARIABLE = "TRAINJOB_STANDIN_GPUS"


class Gpus(NamedTuple):
    """The GPUs of one node, all alike."""

    per_node: int = 1
    name: str = "Stand-in GPU"
    memory_gb: float = 80.0
    capability: Tuple[int, int] = (8, 0)
    processors: int = 108

    @property
    def memory_bytes(self) -> int:
        """Memory of one GPU."""
        return int(self.memory_gb * 1024**3)


def read(environ: Mapping[str, str] = os.environ) -> Gpus:
    """Return the GPUs of this node, from TRAINJOB_STANDIN_GPUS (JSON). Unknown fields are ignored."""
    fields = json.loads(environ.get(VARIABLE) or "{}")
    known = {name: fields[name] for name in Gpus._fields if name in fields}
    if "capability" in known:
        known["capability"] = tuple(known["capability"])
    return Gpus(**known)


def visible(gpus: Gpus, environ: Mapping[str, str] = os.environ) -> List[int]:
    """Return the node's own numbers of the GPUs that this process sees, in the order in which it counts them.

    As the CUDA driver does, the list ends at the first entry that names no GPU (CUDA's programming guide,
    "CUDA Environment Variables").
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return list(range(gpus.per_node))
    numbers: List[int] = []
    for entry in listed.split(","):
        number = _number(entry.strip())
        if number is None or number >= gpus.per_node or number in numbers:
            break
        numbers.append(number)
    return numbers


def uuid(number: int) -> str:
    """Return the name by which nvidia-smi knows GPU `number` of this node."""
    return "GPU-00000000-0000-0000-0000-%012d" % number


def _number(entry: str) -> "int | None":
    if entry.startswith("GPU-"):
        return int(entry[-12:]) if entry[-12:].isdigit() else None
    return int(entry) if entry.isdigit() else None
