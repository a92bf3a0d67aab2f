"""outlived.json: a rank that was ended because it lived on when the run's work was done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from trainjob.contract.paths import RunPaths
from trainjob.records import typed
from trainjob.records.files import write_json


@dataclass(frozen=True)
class Outlived:
    """One such rank, the last one of the attempt. `why` says what was done by then."""

    attempt: int
    rank: int
    host: str
    after_s: float
    why: str

    def __str__(self) -> str:
        text = "rank %d on %s was ended %.0f s after %s: it did nothing any more. `trainjob stacks` shows where it was"
        return text % (self.rank, self.host, self.after_s, self.why)


def read(paths: RunPaths, attempt: int) -> Optional[Outlived]:
    """Return the rank of this attempt that was ended; None if there was none."""
    found = typed.read(Outlived, paths.outlived)
    return found if found is not None and found.attempt == attempt else None


def write(paths: RunPaths, record: Outlived) -> None:
    """Record the rank. Raises OSError."""
    write_json(paths.outlived, typed.to_json(record))
