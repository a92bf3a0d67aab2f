"""prediction.json: what was expected of a run before it began. Each quantity is a median and a 90 % interval."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional

from trainjob.contract.paths import RunPaths
from trainjob.records import typed
from trainjob.records.files import write_json


@dataclass(frozen=True)
class Range:
    """A median, and the interval that nine of ten results lie in."""

    median: float
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        """Return whether the interval holds `value`."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Prediction:
    """The expected time and size of one job. `run_s` is the allocated time of all its attempts."""

    instances: int
    updates: int
    update_s: Range
    run_s: Range
    basis: str  # what it was predicted from
    epoch_s: Optional[Range] = None
    memory_bytes: Optional[Range] = None  # of rank 0's process, libraries included
    checkpoint_bytes: Optional[Range] = None
    time_limit_s: Optional[float] = None
    attempts: Optional[Range] = None  # within the time limit
    start_up_s: float = 0.0  # of each attempt
    model: List[str] = field(default_factory=list)  # how it scales, a line for each part

    def write(self, paths: RunPaths) -> None:
        """Write prediction.json, atomically."""
        write_json(paths.prediction, typed.to_json(self))


def read(paths: RunPaths) -> Optional[Prediction]:
    """Return the prediction that was stored with a run; None if there is none, or a damaged one."""
    return typed.read(Prediction, paths.prediction)
