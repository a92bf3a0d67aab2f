"""Reads gc-monitor's tables: the boards first, then the processes attached to their IPUs.

Columns are found by their headings and not by their places, which differ by release.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainjob.submit.devices.device import Device

_PARTITION = re.compile(r"[Pp]artition:?\s+'?([\w.-]+)'?")
_Row = Mapping[str, str]


def parse(output: str) -> list[Device]:
    """Return every IPU that the boards' table lists, with the process attached to it."""
    partition = _PARTITION.search(output)
    name = partition[1] if partition else ""
    rows = list(_rows(output))
    attached = {row["ID"]: row for row in rows if "PID" in row and "ID" in row}
    boards = [row for row in rows if "PID" not in row and "ID" in row]
    listed = boards or list(attached.values())
    return [_device(name, row, attached.get(row["ID"], {})) for row in listed]


def _rows(output: str) -> Iterator[_Row]:
    """Yield each line of a table by the headings above it."""
    heads: list[str] = []
    for line in output.splitlines():
        if not line.lstrip().startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "ID" in cells:
            heads = _distinct(cells)
        elif heads and len(cells) == len(heads):
            yield dict(zip(heads, cells, strict=True))


def _distinct(heads: list[str]) -> list[str]:
    # IPU and board have a temperature each: the second gets another name.
    return [
        f"{head} {heads[:number].count(head) + 1}" if head in heads[:number] else head
        for number, head in enumerate(heads)
    ]


def _device(partition: str, board: _Row, process: _Row) -> Device:
    where = " · ".join(text for text in (partition, board.get("IPU-M", "")) if text)
    detail = " · ".join(_told(process.get(head)) for head in ("Clock", "Temp", "Power") if _told(process.get(head)))
    words = [process[head] for head in ("PID", "Command", "Time") if process.get(head)]
    return Device(f"IPU {board['ID']}", where, detail, process.get("User", ""), " ".join(words))


def _told(text: str | None) -> str:
    return "" if text in (None, "", "N/A") else str(text)
