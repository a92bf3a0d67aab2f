"""`nvidia-smi` of a node with stand-in GPUs: the forms that scripts use. Others are refused by name."""

from __future__ import annotations

import sys
from typing import Dict, List, Sequence

from trainjob_gpu import specification
from trainjob_gpu.specification import Gpus

_MIB = 1024 * 1024
_DRIVER = "550.00"

_REFUSED = (
    "nvidia-smi (stand-in): %s is not among what it knows: -L, --query-gpu=… --format=csv[,noheader][,nounits], -i"
)
_UNITS = {"memory": "MiB", "utilization": "%", "power": "W"}


def fields(gpus: Gpus, number: int) -> Dict[str, str]:
    """Return what can be asked of one GPU, by the names of `nvidia-smi --help-query-gpu`."""
    memory, uuid = "%d MiB" % (gpus.memory_bytes // _MIB), specification.uuid(number)
    return {
        "index": str(number),
        "name": gpus.name,
        "gpu_name": gpus.name,
        "count": str(gpus.per_node),
        "uuid": uuid,
        "gpu_uuid": uuid,
        "driver_version": _DRIVER,
        "pci.bus_id": "00000000:%02X:00.0" % (number + 1),
        "memory.total": memory,
        "memory.used": "0 MiB",
        "memory.free": memory,
        "utilization.gpu": "0 %",
        "utilization.memory": "0 %",
        "temperature.gpu": "30",
        "power.draw": "60.00 W",
        "compute_cap": "%d.%d" % gpus.capability,
        "compute_mode": "Default",
        "persistence_mode": "Enabled",
        "ecc.errors.uncorrected.volatile.total": "0",
    }


def main(arguments: Sequence[str]) -> int:
    """Print what the real program prints for `arguments`; 0, or 1 with a line on standard error."""
    gpus = specification.read()
    try:
        lines = _lines(gpus, list(arguments))
    except ValueError as error:
        sys.stderr.write("%s\n" % error)
        return 1
    sys.stdout.write("".join(line + "\n" for line in lines))
    return 0


def _lines(gpus: Gpus, arguments: List[str]) -> List[str]:
    numbers = list(range(gpus.per_node))
    query: List[str] = []
    formats = ["csv"]
    lists = not arguments
    while arguments:
        word = arguments.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-i", "--id"):
            value = value if equals else arguments.pop(0)
            numbers = [number for number in numbers if value in (str(number), specification.uuid(number))]
        elif name in ("-L", "--list-gpus"):
            lists = True
        elif name == "--query-gpu":
            query = [field.strip() for field in value.split(",")]
        elif name == "--format":
            formats = [part.strip() for part in value.split(",")]
        else:
            raise ValueError(_REFUSED % word)
    if query:
        return _table(gpus, numbers, query, formats)
    if not lists:
        raise ValueError(_REFUSED % "this")
    return ["GPU %d: %s (UUID: %s)" % (number, gpus.name, specification.uuid(number)) for number in numbers]


def _table(gpus: Gpus, numbers: List[int], query: List[str], formats: List[str]) -> List[str]:
    unknown = [field for field in query if field not in fields(gpus, 0)]
    if unknown:
        raise ValueError('Field "%s" is not a valid field to query.' % unknown[0])
    lines = [] if "noheader" in formats else [", ".join(_heading(field, formats) for field in query)]
    for number in numbers:
        values = [(field, fields(gpus, number)[field]) for field in query]
        lines.append(", ".join(_cell(field, value, formats) for field, value in values))
    return lines


def _heading(field: str, formats: List[str]) -> str:
    unit = "" if "nounits" in formats else _UNITS.get(field.split(".")[0], "")
    return "%s [%s]" % (field, unit) if unit else field


def _cell(field: str, value: str, formats: List[str]) -> str:
    return value.split(" ")[0] if "nounits" in formats and field.split(".")[0] in _UNITS else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
