"""The Protocol of back ends, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from trainjob.cluster.slurm_text import Array
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines.access import HERE, machine_at
from trainjob.machines.machine import Machine
from trainjob.records.submission import Native, Remote, Submission


class Liveness(Enum):
    """The knowledge of a back end about a run that is active according to its files."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


class NotSubmittedError(UserError):
    """A submission that failed, and left no job that runs or waits."""


class UnknownOutcomeError(UserError):
    """A submission that may have arrived, or may still arrive."""

    code = "outcome-unknown"


@dataclass(frozen=True)
class Answer:
    """The answer of a back end about one run.

    `state` is one of contract.states, where the back end knows it: how a run has ended, or that one that ran waits
    again.
    """

    liveness: Liveness
    state: str | None = None
    note: str | None = None  # what the files don't show, in plain words: why it waits, when it may start
    scheduler: Mapping[str, str] = field(default_factory=dict)  # job_id, nodes, elapsed, time_limit, time_left
    started_at: float | None = None  # by this machine's clock: when the job that runs was started


class BackEnd(Protocol):
    """One way to run a job. Modules fit this Protocol; a new one is a module and a row in registry.py.

    A run of a cluster with `ssh` has its run directory on that machine: submission.json says where (`remote`), and the
    directory is complete when `start` is called.
    """

    # Whether a scheduler keeps its jobs: it holds a run back until others are COMPLETED, begins further attempts by
    # itself, and still knows a job whose submission was interrupted.
    HAS_SCHEDULER: bool

    def refuse_folder(self, folder: Path) -> None:
        """Raise UserError for a path that can't be a run directory of this back end."""

    def argv(
        self, paths: RunPaths, script: str, after: Sequence[RunPaths] = (), inside: str | None = None
    ) -> list[str]:
        """Return the command that `start` runs, for the record.

        `after` are the runs to wait for until they are COMPLETED; given only to a back end with a scheduler. `inside`
        is the job that holds the nodes, where the run is a step of one.
        """

    def start(self, paths: RunPaths, submission: Submission) -> Native:
        """Return the native id of the run, which has begun or waits. `submission` is what was recorded of it.

        Raises NotSubmittedError when it is certain that nothing was submitted, so that the run can be discarded.
        """

    def start_elements(
        self, paths: RunPaths, submission: Submission | None, elements: Array, recorded: Mapping[int, Submission]
    ) -> dict[int, Native]:
        """Return the native id of each of these elements of an array, which begin or wait again.

        `submission` is that of the whole array, and `recorded` what was recorded of each element.
        """

    def ask(self, natives: Sequence[Native]) -> list[Answer]:
        """Return what is known about each native id, with one command on each machine.

        A machine that can't be reached makes an answer UNKNOWN with a note, never an error.
        """

    def look_for(self, paths: RunPaths, submission: Submission) -> Native | None:
        """Return the native id that a submission whose outcome is not known has left; None if it has left none.

        Raises UserError if the scheduler can't be asked.
        """

    def identify(self, native: Native) -> dict[str, str]:
        """Return the scheduler's name for a run, for people: its job_id. Empty without a scheduler."""

    def next_to(
        self, paths: RunPaths, submission: Submission, rank: int, words: Sequence[str], *, terminal: bool
    ) -> list[str]:
        """Return the command that runs `words` on the host of a rank, called on the run's machine. Raises UserError."""

    def interrupt(self, native: Native) -> None:
        """Ask a run by signal to checkpoint and stop, as a scheduler does before it takes the machine away."""

    def signal_ranks(self, paths: RunPaths, native: Native, signal: str) -> None:
        """Send TERM to every process of the run, as at a time limit or a preemption; or KILL, to the ranks' alone."""

    def start_soon(self, native: Native) -> None:
        """Make a run that its scheduler holds back after a requeue start as soon as it can. Raises UserError."""

    def cancel(self, paths: RunPaths, submission: Submission, grace_s: float) -> None:
        """End every process of the run, and no other; return when none is left. Its native id may be unknown."""


def machine_of(remote: Remote) -> Machine:
    """Return the machine of a remote run directory; all callers share one connection."""
    return machine_at(remote.host, remote.user)


def place_of(paths: RunPaths, submission: Submission | None) -> tuple[Machine, str]:
    """Return the machine on which a run was submitted, and its run directory there."""
    if submission is None or submission.remote is None:
        return HERE, str(paths.folder)
    return machine_of(submission.remote), submission.remote.folder
