"""A rehearsed job under a private Slurm: its files, and the queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.records import attempts, checkpoints, failure, progress
from trainjob.records.failure import Failure, tail_of_attempt
from trainjob.records.progress import ProgressRecord
from trainjob.rehearse.slurm.description import PREEMPTING_PARTITION
from trainjob.rehearse.slurm.private import PrivateSlurm

_POLL_S = 0.1
_CURE = "Correct what these lines name, and rehearse again"


@dataclass(frozen=True)
class Scene:
    """One rehearsed job."""

    slurm: PrivateSlurm
    paths: RunPaths
    job: str  # Slurm's id
    cluster: SlurmCluster
    instances: int
    hosts: int
    trains: bool  # a task of the runtime, whose updates can be followed; else a command
    submitted_at: float  # seconds since 1970, when sbatch was called

    @property
    def attempt(self) -> int:
        """The newest attempt; 0 before the first."""
        return attempts.current(self.paths)

    @property
    def state(self) -> str:
        """The state that the job script wrote."""
        return attempts.state(self.paths) or "PENDING"

    @property
    def failure(self) -> Failure | None:
        """The first rank that failed."""
        return failure.read(self.paths)

    def update(self) -> int | None:
        """Return the last update of the newest attempt; None before it has reported one."""
        return self._progress().update

    def _progress(self) -> ProgressRecord:
        noted = progress.read(self.paths)
        return noted if noted.attempt == self.attempt else ProgressRecord()

    def checkpoint(self) -> int:
        """Return the update of the newest checkpoint; 0 if there is none."""
        newest = checkpoints.newest(self.paths)
        return 0 if newest is None else checkpoints.update_of(newest)

    def began_at(self) -> int:
        """Return the update at which the newest attempt resumed; 0 if it started from the beginning."""
        return self._progress().began_at or 0

    def is_at_work(self) -> bool:
        """Return whether every rank trains; for a command, whether every rank has started."""
        if self.trains:
            return (self.update() or 0) > self.began_at()
        return self.state == "RUNNING" and all(self.paths.rank_log(rank).exists() for rank in range(self.instances))

    def queue(self) -> list[str]:
        """Return Slurm's state of each of our jobs that is pending, running or completing."""
        reply = self.slurm.run(["squeue", "--noheader", "--format=%T %P"])
        return [line.split()[0] for line in reply.text.splitlines() if line.split()[1] != PREEMPTING_PARTITION]

    def nodes(self) -> list[str]:
        """Return the nodes of the job, in order."""
        reply = self.slurm.run(["squeue", "--noheader", f"--jobs={self.job}", "--format=%N"])
        return self.slurm.run(["scontrol", "show", "hostnames", ",".join(reply.text.split())]).text.split()


def wait_for(scene: Scene, holds: Callable[[], object], what: str, limit_s: float, *, poll_s: float = _POLL_S) -> None:
    """Wait until `holds()`. Raises UserError if the job ends first, or after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise UserError(f"{what}: not within {limit_s:g} s. {last_words(scene)}\n", _CURE)
        # Check once more: the event may have happened just before the job ended.
        if not scene.queue() and not holds():
            raise UserError(f"the job is {scene.state} before {what}. {last_words(scene)}\n", _CURE)
        time.sleep(poll_s)


def last_words(scene: Scene) -> str:
    """Return the last output of the first rank that failed, or else of the job script."""
    failed = scene.failure
    lines = failed.tail if failed else tail_of_attempt(scene.paths.scheduler_log)
    who = f"rank {failed.rank}" if failed else "the job script"
    if not lines:
        return f"It left no output. The last lines of Slurm's own logs:\n{scene.slurm.logs()}"
    return f"The last lines of {who}:\n  | " + "\n  | ".join(lines[-12:])
