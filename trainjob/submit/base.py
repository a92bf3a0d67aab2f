"""What every back end offers, and what a submission is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from trainjob.contract.errors import UserError
from trainjob.contract.files import read_json, write_json
from trainjob.contract.paths import TASKS, RunPaths
from trainjob.submit import machines
from trainjob.submit.machine import Machine

if TYPE_CHECKING:
    from trainjob.cluster.models import Cluster

Native = dict[str, Any]


class Liveness(Enum):
    """What a back end knows of a run that its files call active."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


class NotSubmittedError(UserError):
    """A hand-over that failed, and left nothing that runs or waits."""


@dataclass(frozen=True)
class Answer:
    """What a back end says of one run.

    `state` is one of contract.states, where it knows: how a run has ended, or that one that ran waits again.
    """

    liveness: Liveness
    state: str | None = None
    note: str | None = None  # what the files can't tell, in plain words: why it waits, when it may start


class BackEnd(Protocol):
    """One way to hand a run directory over. Modules fit it; nothing is registered, nothing inherited.

    A run of a cluster with `ssh` has its run directory over there too: submission.json says where (`remote`), and it
    is whole when `start` is called.
    """

    def start(self, paths: RunPaths, script: str) -> Native:
        """Return the native id of the run that now has begun or waits.

        Raises NotSubmittedError when it is certain that nothing was handed over, so that nothing of the run stays.
        """

    def argv(self, paths: RunPaths, script: str) -> list[str]:
        """Return the command that `start` runs, for the record."""

    def ask(self, natives: Sequence[Native]) -> list[Answer]:
        """Return what is known of each native id; one question a machine for all.

        A machine that can't be reached makes an answer UNKNOWN with a note, never an error.
        """

    def cancel(self, paths: RunPaths, native: Native | None, grace_s: float) -> None:
        """End every process of the run and no other; return when none is left. `native` None: not known."""


@dataclass(frozen=True)
class Remote:
    """Where a run's own folder is when it is not here: a host as ssh knows it, and the folder's whole path there."""

    host: str
    user: str | None
    folder: str

    @property
    def machine(self) -> Machine:
        """The machine, over a connection that all share."""
        return machines.reached(self.host, self.user)


@dataclass(frozen=True)
class Submission:
    """submission.json: how the newest attempt was handed over."""

    backend: str
    cluster: str
    native: Native | None  # None: recorded, and not known to have been handed over
    argv: list[str]
    script: str
    submitted_at: str  # ISO 8601, UTC
    attempt: int  # the attempt that this submission starts
    digest: str  # of the job and the project, to know a job submitted twice
    project: Mapping[str, Any]
    image_digest: str | None = None
    cancelled_at: str | None = None
    remote: Remote | None = None  # None: the run directory is the one that this lies in
    earlier: Sequence[Native] = ()  # the native ids of earlier attempts
    after: Sequence[str] = ()  # the runs that it waits for

    def write(self, paths: RunPaths) -> None:
        """Write submission.json, atomically."""
        write_json(paths.submission, dataclasses.asdict(self))

    def replace(self, **changes: Any) -> Submission:
        """Return the submission with some fields changed."""
        return dataclasses.replace(self, **changes)

    def of_task(self, number: int) -> Submission:
        """Return the submission of one task of the array that this one has submitted."""
        below = f"{TASKS}/{number}"
        native = (
            None
            if self.native is None
            else {
                **self.native,
                "job_id": f"{self.native['job_id']}_{number}",
                "folder": f"{self.native['folder']}/{below}",
            }
        )
        remote = (
            None if self.remote is None else dataclasses.replace(self.remote, folder=f"{self.remote.folder}/{below}")
        )
        return self.replace(native=native, remote=remote)


_FIELDS = tuple(field.name for field in dataclasses.fields(Submission))


def read_submission(paths: RunPaths) -> Submission | None:
    """Return what submission.json says; None for a folder that was never submitted, or where the file is broken.

    A task of an array that was never resumed by itself has none of its own: it was submitted with its run.
    """
    fields = read_json(paths.submission)
    if fields is None and paths.task is not None:
        whole = read_submission(paths.whole)
        return None if whole is None else whole.of_task(paths.task)
    if not isinstance(fields, dict):
        return None
    try:
        # A newer trainjob may have written fields that this one does not know.
        known = {name: fields[name] for name in _FIELDS if name in fields}
        remote = known.get("remote")
        return Submission(**{**known, "remote": None if remote is None else Remote(**remote)})
    except TypeError:
        return None


def place_of(paths: RunPaths) -> tuple[Machine, str]:
    """Return the machine that a run's processes are started from, and its run directory there."""
    submission = read_submission(paths)
    if submission is None or submission.remote is None:
        return machines.HERE, str(paths.folder)
    return submission.remote.machine, submission.remote.folder


def backend_name(cluster: Cluster) -> str:
    """Return the name of the back end that takes runs for `cluster`."""
    return {"local": "local", "slurm": "slurm", "ipu-pod": "poprun"}[cluster.kind]
