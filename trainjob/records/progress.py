"""progress.json: how far a run is, that it is alive, and what its disk refuses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Dict, List, Optional

from trainjob.contract.paths import RunPaths
from trainjob.records import typed
from trainjob.records.files import write_atomically

# The file is kept at one size, so that it can be overwritten in place when there is no room for a new one.
_BYTES = 4096


@dataclass(frozen=True)
class ProgressRecord:
    """The account of rank 0. `heartbeat`, `timed_since` and `checkpoint_at` are in seconds since 1970."""

    attempt: int = 0
    epoch: Optional[int] = None
    update: Optional[int] = None
    total_updates: Optional[int] = None
    may_be_of_epoch: bool = False  # the total: a bar states it, which a command may draw anew in each epoch
    heartbeat: Optional[float] = None
    began_at: Optional[int] = None  # the update that the attempt continued from
    timed_from: Optional[int] = None  # the update after the attempt's first block, before which it starts and warms up
    timed_since: Optional[float] = None  # when that was made
    durable_update: Optional[int] = None  # of the newest checkpoint on disk; 0: none yet
    checkpoint_at: Optional[float] = None  # when a command wrote its newest one, whose update can't be read
    trouble: Optional[str] = None  # what the disk refuses at present
    passed_over: List[str] = field(default_factory=list)  # checkpoints that the attempt did not resume from, and why
    checkpoints_not_written: int = 0  # by this attempt
    sources: Dict[str, str] = field(default_factory=dict)  # of a command: by value, what it was read from
    printed: List[str] = field(default_factory=list)  # by a command: the newest lines that name figures


def load(paths: RunPaths) -> Optional[ProgressRecord]:
    """Return the progress of a run; None before its ranks have reported any. Raises DamagedError."""
    return typed.load(ProgressRecord, paths.progress)


def read(paths: RunPaths) -> ProgressRecord:
    """Return the progress of a run; an empty record if there is none, or a damaged one."""
    return typed.read(ProgressRecord, paths.progress) or ProgressRecord()


def write(paths: RunPaths, record: ProgressRecord) -> None:
    """Replace progress.json: readers see the old file or the new one. Raises OSError."""
    # Not written through to the disk: it is written once a second, and not needed after a power cut.
    write_atomically(paths.progress, _content(record), durable=False)


def overwrite(paths: RunPaths, record: ProgressRecord) -> None:
    """Write into the file that is there, which a full disk allows. Raises OSError."""
    with open(str(paths.progress), "r+b", buffering=0) as stream:
        stream.write(_content(record))


def _content(record: ProgressRecord) -> bytes:
    return json.dumps(typed.to_json(record)).ljust(_BYTES - 1).encode() + b"\n"
