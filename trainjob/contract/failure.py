"""failure.json: which rank failed first, how, and the end of what it printed."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional

from trainjob.contract.files import read_json, remove_if_there, write_json
from trainjob.contract.paths import RunPaths

TAIL_LINES = 40
_TAIL_BYTES = 64 * 1024
ATTEMPT_MARK = b"--- attempt "


@dataclass(frozen=True)
class Failure:
    """The first failing rank of an attempt. `exit_code` is the shell's: 128 + n for signal n."""

    attempt: int
    rank: int
    host: str
    exit_code: int
    command: List[str]
    tail: List[str]


def record_first(paths: RunPaths, failure: Failure) -> bool:
    """Write failure.json unless another rank was first; return whether this one was."""
    mine = paths.folder / (".failure-%d-%d" % (failure.rank, os.getpid()))
    write_json(mine, dataclasses.asdict(failure))
    try:
        # A link fails where the name exists: of several launchers only the first gets through.
        os.link(str(mine), str(paths.failure))
    except FileExistsError:
        return False
    finally:
        remove_if_there(mine)
    return True


def read(paths: RunPaths) -> Optional[Failure]:
    """Return what failure.json says; None when no rank has failed in this attempt."""
    fields = read_json(paths.failure)
    return Failure(**fields) if isinstance(fields, dict) else None


def tail_of_attempt(log: Path) -> List[str]:
    """Return the last lines of `log` that belong to its newest attempt."""
    try:
        with open(str(log), "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL_BYTES))
            lines = stream.read().split(b"\n")
    except FileNotFoundError:
        return []
    starts = [number for number, line in enumerate(lines) if line.startswith(ATTEMPT_MARK)]
    mine = lines[starts[-1] + 1 :] if starts else lines
    return [line.decode(errors="replace") for line in mine if line.strip()][-TAIL_LINES:]
