"""Parses the output of gc-monitor and nvidia-smi: a list of devices and their users."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

GPUS = ("index", "uuid", "name", "memory.used", "memory.total", "utilization.gpu")
PROCESSES = ("gpu_uuid", "pid", "process_name", "used_memory")
_PARTITION = re.compile(r"[Pp]artition:?\s+'?([\w.-]+)'?")
_Row = Mapping[str, str]


@dataclass(frozen=True)
class Device:
    """An IPU of a partition, or a GPU. Texts are the tool's own; "" where it does not say."""

    device: str
    where: str  # partition and IPU-Machine, or GPU model
    detail: str  # clock and temperature, or memory and load
    user: str
    process: str  # process id and command

    def as_json(self) -> dict[str, Any]:
        """Return the device for `--json`."""
        return asdict(self)


# -- gc-monitor: the boards first, then the processes attached to their IPUs -------------------
# Columns are found by their headings, because their places differ by release.


def ipus(output: str) -> list[Device]:
    """Return every IPU that the boards' table lists, with the process attached to it."""
    partition = _PARTITION.search(output)
    name = partition[1] if partition else ""
    rows = list(_rows_of_tables(output))
    attached = {row["ID"]: row for row in rows if "PID" in row and "ID" in row}
    boards = [row for row in rows if "PID" not in row and "ID" in row]
    listed = boards or list(attached.values())
    return [_device(name, row, attached.get(row["ID"], {})) for row in listed]


def _rows_of_tables(output: str) -> Iterator[_Row]:
    """Yield each line of a table by the headings above it."""
    heads: list[str] = []
    for line in output.splitlines():
        if not line.lstrip().startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "ID" in cells:
            # IPU and board both have a temperature: the second one gets another name.
            heads = [
                f"{head} {cells[:number].count(head) + 1}" if head in cells[:number] else head
                for number, head in enumerate(cells)
            ]
        elif heads and len(cells) == len(heads):
            yield dict(zip(heads, cells, strict=True))


def _device(partition: str, board: _Row, process: _Row) -> Device:
    where = " · ".join(text for text in (partition, board.get("IPU-M", "")) if text)
    detail = " · ".join(_value(process.get(head)) for head in ("Clock", "Temp", "Power") if _value(process.get(head)))
    words = [process[head] for head in ("PID", "Command", "Time") if process.get(head)]
    return Device(f"IPU {board['ID']}", where, detail, process.get("User", ""), " ".join(words))


def _value(text: str | None) -> str:
    return "" if text in (None, "", "N/A") else str(text)


# -- nvidia-smi: comma-separated lists of GPUs, and of the processes that compute on them ------


def query(what: str, fields: tuple[str, ...]) -> list[str]:
    """Return the command that lists `fields` of each of `what`: gpu, or compute-apps."""
    return ["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]


def gpus(listed: str, processes: str) -> list[Device]:
    """Return every GPU, with the processes on it."""
    users: dict[str, list[str]] = {}
    for row in _rows(processes, PROCESSES):
        users.setdefault(row["gpu_uuid"], []).append(f"{row['pid']} {row['process_name']} ({row['used_memory']} MiB)")
    return [
        Device(
            device=f"GPU {row['index']}",
            where=row["name"],
            detail=f"{row['memory.used']} of {row['memory.total']} MiB · {row['utilization.gpu']} %",
            user="",
            process=", ".join(users.get(row["uuid"], [])),
        )
        for row in _rows(listed, GPUS)
    ]


def _rows(text: str, fields: tuple[str, ...]) -> list[dict[str, str]]:
    lines = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [
        dict(zip(fields, (cell.strip() for cell in line), strict=True)) for line in lines if len(line) == len(fields)
    ]
