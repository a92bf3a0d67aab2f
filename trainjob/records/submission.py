"""submission.json: how the newest attempt was submitted; and .settled.json: the end that its back end reported."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from trainjob.contract.paths import ELEMENTS, ROLES, RunPaths
from trainjob.records import typed
from trainjob.records.files import (
    DamagedError,
    json_bytes,
    read_json,
    remove_if_there,
    write_atomically,
    write_json,
)

# What a back end needs to find a run again; only that back end reads its keys. For one element of an array the key
# ELEMENT is added to that of the whole run. SBATCH_MESSAGES is what sbatch printed besides the job's id.
Native = Dict[str, Any]
ELEMENT = "element"
SBATCH_MESSAGES = "sbatch_messages"


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
    is_unknown: bool = False  # unknown whether its job arrived: ask the scheduler
    folder: Optional[str] = None  # the run directory that it was written to; None in records of earlier versions
    resumed_at: Optional[str] = None  # when this attempt was asked for, if it is not the first
    inside: Optional[str] = None  # the job that holds its nodes, if the run is a step of one
    holds_nodes: bool = False  # for runs that begin in its job: a reservation
    continues: Optional[str] = None  # the id of the run of which this one began as a copy, on another cluster
    continued_as: Optional[str] = None  # the id of the run that went on from this one, on another cluster
    copy_of: Optional[str] = None  # the run directory to which what was submitted belongs, if this one is a copy of it

    @property
    def asked_at(self) -> str:
        """When this attempt was asked for: `submitted_at` is that of the first one."""
        return self.resumed_at or self.submitted_at

    def write(self, paths: RunPaths) -> None:
        """Write submission.json, atomically."""
        write_atomically(paths.submission, self.to_json(paths))

    def to_json(self, paths: RunPaths) -> bytes:
        """Return the content of the submission.json of the run directory `paths`."""
        return json_bytes(dataclasses.asdict(self.replace(folder=str(paths.folder), copy_of=None)))

    def replace(self, **changes: Any) -> "Submission":
        """Return the submission with some fields changed."""
        return dataclasses.replace(self, **changes)

    def of_element(self, number: int) -> "Submission":
        """Return the submission of one element of the array that this one has submitted."""
        native = None if self.native is None else {**self.native, ELEMENT: number}
        return self._below("%s/%d" % (ELEMENTS, number)).replace(native=native)

    def of_role(self, name: str) -> "Submission":
        """Return the submission of one server of the job with roles that this one has submitted."""
        return self._below("%s/%s" % (ROLES, name))

    def _below(self, part: str) -> "Submission":
        remote = self.remote and dataclasses.replace(self.remote, folder="%s/%s" % (self.remote.folder, part))
        return self.replace(remote=remote)


def load(paths: RunPaths, whole: Optional[Submission] = None) -> Optional[Submission]:
    """Return how a run was submitted; None for a directory that was never submitted. Raises DamagedError.

    An element of an array has no file of its own before it is resumed, and a server of a job with roles has none: they
    were submitted with their run. `whole` is the submission of that run, from a caller that has read it. That of a
    copied run directory has neither a native id nor a machine: processes and jobs belong to the original.
    """
    submission = typed.load(Submission, paths.submission)
    if submission is None and paths.element is not None:
        whole = whole or load(paths.whole)
        return None if whole is None else whole.of_element(paths.element)
    if submission is None and paths.role is not None:
        whole = load(paths.run)
        return None if whole is None else whole.of_role(paths.role)
    if submission is not None:
        _refuse_odd(submission, paths)
        original = _original(submission, paths)
        return submission if original is None else submission.replace(native=None, remote=None, copy_of=original)
    return None


def _refuse_odd(submission: Submission, paths: RunPaths) -> None:
    """Raise DamagedError for a value that can't be used, or would be executed as something else than a job script."""
    is_dated, remote = False, submission.remote
    with contextlib.suppress(ValueError):
        is_dated = datetime.fromisoformat(submission.submitted_at).tzinfo is not None
    scripts = (paths.job_script.name, paths.batch_script.name)
    is_host = remote is None or not remote.host.startswith("-")
    for field, value, is_sound, expected in (
        ("submitted_at", submission.submitted_at, is_dated, "a time"),
        ("script", submission.script, submission.script in scripts, " or ".join(scripts)),
        ("remote.host", remote and remote.host, is_host, "the name of a host"),
    ):
        if not is_sound:
            raise DamagedError("%s: %s is %r, expected %s" % (paths.submission.name, field, value, expected))


def _original(submission: Submission, paths: RunPaths) -> Optional[str]:
    """Return the run directory of which `paths` is a copy; None if it is none, or if the run directory was moved."""
    own = (str(paths.folder), submission.remote.folder if submission.remote else None)
    if submission.folder is None or submission.folder in own:
        return None
    original = RunPaths(submission.folder)
    try:
        is_copy = original.submission.is_file() and not original.folder.samefile(paths.folder)
    except OSError:
        return None
    return submission.folder if is_copy else None


def as_it_is(paths: RunPaths) -> Callable[[], None]:
    """Return what makes submission.json what it is now: the same bytes, or none. Both raise OSError."""
    if not paths.submission.exists():
        return lambda: remove_if_there(paths.submission)
    content = paths.submission.read_bytes()
    return lambda: write_atomically(paths.submission, content)


def read(paths: RunPaths) -> Optional[Submission]:
    """Return how a run was submitted; None for a directory that was never submitted, or a damaged file."""
    try:
        return load(paths)
    except DamagedError:
        return None


@dataclass(frozen=True)
class Settled:
    """The answer of a back end about the ended job of an attempt; `state` is None if it no longer knows the job.

    A run that was cancelled while it waited has the same attempt again once it is resumed, at `resumed_at`.
    """

    attempt: int
    state: Optional[str] = None
    note: Optional[str] = None
    resumed_at: Optional[str] = None


_SETTLED = ".settled.json"


def settled(paths: RunPaths, attempt: int, resumed_at: Optional[str] = None) -> Optional[Settled]:
    """Return the last answer about the job of this attempt; None where none is written down."""
    answer = typed.read(Settled, paths.folder / _SETTLED)
    is_its = answer is not None and (answer.attempt, answer.resumed_at) == (attempt, resumed_at)
    return answer if is_its else None


def settle(paths: RunPaths, answer: Settled) -> None:
    """Write down how a job has ended, or that there is none any more, unless that is written already."""
    # The record of a run may be on a full disk, or belong to another user.
    with contextlib.suppress(OSError):
        if paths.folder.is_dir() and read_json(paths.folder / _SETTLED) != typed.to_json(answer):
            write_json(paths.folder / _SETTLED, typed.to_json(answer))
