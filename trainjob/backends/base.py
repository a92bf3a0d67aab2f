"""The Protocol of back ends, and the record of a submission."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from trainjob.cluster.slurm_text import Array
from trainjob.contract.errors import UserError
from trainjob.contract.paths import ELEMENTS, RunPaths
from trainjob.machines.access import HERE, machine_at
from trainjob.machines.machine import Machine
from trainjob.records import typed
from trainjob.records.files import DamagedError, write_json

# What a back end needs to find a run again; only that back end reads its keys. For one element of an array the key
# ELEMENT is added to that of the whole run.
Native = dict[str, Any]
ELEMENT = "element"


class Liveness(Enum):
    """What a back end knows about a run that is active according to its files."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


class NotSubmittedError(UserError):
    """A submission that failed, and left no job that runs or waits."""


class UnknownOutcomeError(UserError):
    """A submission of which nobody knows whether it arrived, or will."""

    code = "outcome-unknown"


@dataclass(frozen=True)
class Answer:
    """What a back end says of one run.

    `state` is one of contract.states, where the back end knows it: how a run has ended, or that one that ran waits
    again.
    """

    liveness: Liveness
    state: str | None = None
    note: str | None = None  # what the files don't show, in plain words: why it waits, when it may start
    scheduler: Mapping[str, str] = field(default_factory=dict)  # job_id, nodes, elapsed, time_limit, time_left


class BackEnd(Protocol):
    """One way to run a job. Modules fit this Protocol; a new one is a module and a row in backends.py.

    A run of a cluster with `ssh` has its run directory on that machine: submission.json says where (`remote`), and the
    directory is complete when `start` is called.
    """

    # Whether a scheduler keeps its jobs: it holds a run back until others are COMPLETED, begins further attempts by
    # itself, and still knows a job whose submission was interrupted.
    HAS_SCHEDULER: bool

    def refuse_folder(self, folder: Path) -> None:
        """Raise UserError for a path that can't be a run directory of this back end."""

    def argv(self, paths: RunPaths, script: str, after: Sequence[RunPaths] = ()) -> list[str]:
        """Return the command that `start` runs, for the record.

        `after` are the runs to wait for until they are COMPLETED; given only to a back end with a scheduler.
        """

    def image_digest(self, paths: RunPaths) -> str | None:
        """Return the digest of the image of the run's containers, where it is known beforehand.

        Raises NotSubmittedError if the image is missing.
        """

    def start(self, paths: RunPaths, script: str) -> Native:
        """Return the native id of the run, which has begun or waits.

        Raises NotSubmittedError when it is certain that nothing was submitted, so that the run can be discarded.
        """

    def start_elements(self, paths: RunPaths, elements: Array, script: str) -> dict[int, Native]:
        """Return the native id of each of these elements of the array `paths`, which begin or wait again."""

    def ask(self, natives: Sequence[Native]) -> list[Answer]:
        """Return what is known about each native id, with one command on each machine.

        A machine that can't be reached makes an answer UNKNOWN with a note, never an error.
        """

    def look_for(self, paths: RunPaths) -> Native | None:
        """Return the native id that a submission whose outcome is not known has left; None if it has left none.

        Raises UserError if the scheduler can't be asked.
        """

    def identify(self, native: Native) -> dict[str, str]:
        """Return the scheduler's name for a run, for people: its job_id. Empty without a scheduler."""

    def next_to(self, paths: RunPaths, native: Native, rank: int, words: Sequence[str], *, terminal: bool) -> list[str]:
        """Return the command that runs `words` on the host of a rank, called on the run's machine. Raises UserError."""

    def interrupt(self, native: Native) -> None:
        """Ask a run by signal to checkpoint and stop, as a scheduler does before it takes the machine away."""

    def start_soon(self, native: Native) -> None:
        """Make a run that its scheduler holds back after a requeue start as soon as it can. Raises UserError."""

    def cancel(self, paths: RunPaths, native: Native | None, grace_s: float) -> None:
        """End every process of the run, and no other; return when none is left. `native` is None if it is unknown."""

    def clean_up(self, paths: RunPaths) -> None:
        """Remove what an ended run holds besides its processes, such as a V-IPU partition. May be repeated.

        Raises UserError if that fails.
        """


@dataclass(frozen=True)
class Remote:
    """A run directory on another machine: the host as ssh knows it, and the directory's absolute path there."""

    host: str
    user: str | None
    folder: str

    @property
    def machine(self) -> Machine:
        """The machine; all callers share one connection."""
        return machine_at(self.host, self.user)


@dataclass(frozen=True)
class Submission:
    """submission.json: how the newest attempt was submitted."""

    backend: str
    cluster: str
    native: Native | None  # None: recorded, but not known to have been submitted
    argv: list[str]
    script: str
    submitted_at: str  # ISO 8601, UTC
    attempt: int  # the attempt that this submission starts
    digest: str  # of the job and the project, to recognize a job that is submitted twice
    project: Mapping[str, Any]
    image_digest: str | None = None
    cancelled_at: str | None = None  # when its cancellation began
    is_cancelled: bool = False  # its back end has confirmed that no job runs or waits
    remote: Remote | None = None  # None: the run directory is the one that contains this file
    earlier: Sequence[Native] = ()  # the native ids of earlier attempts
    after: Sequence[str] = ()  # the ids of the runs for which it waits
    is_unknown: bool = False  # nobody knows whether its job arrived: ask the scheduler

    def write(self, paths: RunPaths) -> None:
        """Write submission.json, atomically."""
        write_json(paths.submission, dataclasses.asdict(self))

    def replace(self, **changes: Any) -> Submission:
        """Return the submission with some fields changed."""
        return dataclasses.replace(self, **changes)

    def of_element(self, number: int) -> Submission:
        """Return the submission of one element of the array that this one has submitted."""
        native = None if self.native is None else {**self.native, ELEMENT: number}
        below = f"{ELEMENTS}/{number}"
        remote = self.remote and dataclasses.replace(self.remote, folder=f"{self.remote.folder}/{below}")
        return self.replace(native=native, remote=remote)


def load_submission(paths: RunPaths) -> Submission | None:
    """Return the record in submission.json; None for a directory that was never submitted. Raises DamagedError.

    An element of an array has no file of its own before it is resumed: it was submitted with its run.
    """
    submission = typed.read(Submission, paths.submission)
    if submission is None and paths.element is not None:
        whole = load_submission(paths.whole)
        return None if whole is None else whole.of_element(paths.element)
    if submission is not None and not _is_a_time(submission.submitted_at):
        raise DamagedError(f"{paths.submission.name}: submitted_at is {submission.submitted_at!r}, expected a time")
    return submission


def _is_a_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def read_submission(paths: RunPaths) -> Submission | None:
    """Return the record in submission.json; None for a directory that was never submitted, or a damaged file."""
    try:
        return load_submission(paths)
    except DamagedError:
        return None


def place_of(paths: RunPaths) -> tuple[Machine, str]:
    """Return the machine on which a run was submitted, and its run directory there."""
    submission = read_submission(paths)
    if submission is None or submission.remote is None:
        return HERE, str(paths.folder)
    return submission.remote.machine, submission.remote.folder
