"""submission.json: how the newest attempt was submitted; and .settled.json: how its back end said that it ended."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Dict, List, Mapping, Optional, Sequence

from trainjob.contract.paths import ELEMENTS, RunPaths
from trainjob.records import typed
from trainjob.records.files import DamagedError, read_json, write_json

# What a back end needs to find a run again; only that back end reads its keys. For one element of an array the key
# ELEMENT is added to that of the whole run.
Native = Dict[str, Any]
ELEMENT = "element"


@dataclass(frozen=True)
class Remote:
    """A run directory on another machine: the host as ssh knows it, and the directory's absolute path there."""

    host: str
    user: Optional[str]
    folder: str


@dataclass(frozen=True)
class Submission:
    """The submission of a run's newest attempt."""

    backend: str
    cluster: str
    native: Optional[Native]  # None: recorded, but not known to have been submitted
    argv: List[str]
    script: str
    submitted_at: str  # ISO 8601, UTC
    attempt: int  # the attempt that this submission starts
    digest: str  # of the job and the project, to recognize a job that is submitted twice
    project: Mapping[str, Any]
    image_digest: Optional[str] = None
    cancelled_at: Optional[str] = None  # when its cancellation began
    is_cancelled: bool = False  # its back end has confirmed that no job runs or waits
    remote: Optional[Remote] = None  # None: the run directory is the one that contains this file
    earlier: Sequence[Native] = ()  # the native ids of earlier attempts
    after: Sequence[str] = ()  # the ids of the runs for which it waits
    is_unknown: bool = False  # nobody knows whether its job arrived: ask the scheduler

    def write(self, paths: RunPaths) -> None:
        """Write submission.json, atomically."""
        write_json(paths.submission, dataclasses.asdict(self))

    def replace(self, **changes: Any) -> "Submission":
        """Return the submission with some fields changed."""
        return dataclasses.replace(self, **changes)

    def of_element(self, number: int) -> "Submission":
        """Return the submission of one element of the array that this one has submitted."""
        native = None if self.native is None else {**self.native, ELEMENT: number}
        below = "%s/%d" % (ELEMENTS, number)
        remote = self.remote and dataclasses.replace(self.remote, folder="%s/%s" % (self.remote.folder, below))
        return self.replace(native=native, remote=remote)


def load(paths: RunPaths) -> Optional[Submission]:
    """Return how a run was submitted; None for a directory that was never submitted. Raises DamagedError.

    An element of an array has no file of its own before it is resumed: it was submitted with its run.
    """
    submission = typed.load(Submission, paths.submission)
    if submission is None and paths.element is not None:
        whole = load(paths.whole)
        return None if whole is None else whole.of_element(paths.element)
    if submission is not None:
        with contextlib.suppress(ValueError):
            if datetime.fromisoformat(submission.submitted_at).tzinfo is not None:
                return submission
        raise DamagedError("%s: submitted_at is %r, expected a time" % (paths.submission.name, submission.submitted_at))
    return None


def read(paths: RunPaths) -> Optional[Submission]:
    """Return how a run was submitted; None for a directory that was never submitted, or a damaged file."""
    try:
        return load(paths)
    except DamagedError:
        return None


@dataclass(frozen=True)
class Settled:
    """The answer of a back end about the ended job of an attempt; `state` is None if it no longer knows the job."""

    attempt: int
    state: Optional[str] = None
    note: Optional[str] = None


_SETTLED = ".settled.json"


def settled(paths: RunPaths, attempt: int) -> Optional[Settled]:
    """Return the last answer about the job of this attempt; None where none is written down."""
    said = typed.read(Settled, paths.folder / _SETTLED)
    return said if said is not None and said.attempt == attempt else None


def settle(paths: RunPaths, answer: Settled) -> None:
    """Write down how a job has ended, or that there is none any more, unless that is written already."""
    # The record of a run may be on a full disk, or somebody else's.
    with contextlib.suppress(OSError):
        if paths.folder.is_dir() and read_json(paths.folder / _SETTLED) != typed.to_json(answer):
            write_json(paths.folder / _SETTLED, typed.to_json(answer))
