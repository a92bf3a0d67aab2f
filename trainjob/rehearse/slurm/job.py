"""A rehearsed job of ours under a private Slurm: what its run directory says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.records import attempts, checkpoints, failure
from trainjob.records.failure import Failure
from trainjob.rehearse.base import last_output, progress_of
from trainjob.rehearse.slurm.description import PREEMPTING_PARTITION
from trainjob.rehearse.slurm.following import FollowedJob


@dataclass
class RehearsedJob(FollowedJob):
    """One job. Its state is read from its files whenever it is asked for."""

    paths: RunPaths
    cluster: SlurmCluster
    ranks: int
    trains: bool  # a task of the runtime, whose updates can be followed; else a command
    is_output_shown: bool = False  # what its ranks print stands above all that is said of it

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
        return progress_of(self.paths).update

    def began_at(self) -> int:
        """Return the update at which the newest attempt resumed; 0 if it started from the beginning."""
        return progress_of(self.paths).began_at or 0

    def checkpoint(self) -> int:
        """Return the update of the newest checkpoint; 0 if there is none."""
        newest = checkpoints.newest(self.paths)
        return 0 if newest is None else checkpoints.update_of(newest)

    def is_at_work(self) -> bool:
        """Return whether every rank trains; for a command, whether every rank has started."""
        if self.trains:
            return (self.update() or 0) > self.began_at()
        return self.state == "RUNNING" and all(self.paths.rank_log(rank).exists() for rank in range(self.ranks))

    def is_followed(self, row: Mapping[str, str]) -> bool:
        """Return whether a job is of the run: a site may let it start again only as a new job."""
        return row["Partition"] != PREEMPTING_PARTITION

    def wait_for(self, holds: Callable[[], object], what: str, limit_s: float) -> None:
        """Wait until `holds()`. Raises UserError if the job ends first, or after `limit_s`."""
        deadline = clock.monotonic() + limit_s
        met = self.follow(lambda: "met" if holds() else "late" if clock.monotonic() > deadline else None)
        # Check once more: the event may have happened just before the job ended.
        if met == "late" or (met is None and not holds()):
            problem = f"{what}: not within {limit_s:g} s" if met else f"the job is {self.state} before {what}"
            cure = "Correct what these lines name, and rehearse again"
            raise UserError(f"{problem}. {self.last_output()}\n", cure)

    def last_output(self) -> str:
        """Return why it failed and the last output of the first rank that failed, or else of the job script."""
        told = last_output(self.paths, is_shown=self.is_output_shown)
        return told or f"It left no output. The last lines of Slurm's own logs:\n{self.slurm.logs()}"
