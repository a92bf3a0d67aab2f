"""Faults of real clusters, injected into a batch file's job: what is done, and how long its effect may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainjob.rehearse.batch.job import BatchJob
from trainjob.rehearse.slurm import faults

_SOON_S = 90.0
# Slurm counts limits in minutes, and looks at them every half of one.
_A_TIME_LIMIT_S = 300.0


@dataclass(frozen=True)
class BatchFault:
    """A fault: how it is injected, and how long its effect may take."""

    inject: Callable[[BatchJob], object]
    within_s: float


def _kill(job: BatchJob, pids: list[int]) -> None:
    job.slurm.run_as_root(["kill", "-KILL", *map(str, pids)], check=False)


def _kill_the_last_rank(job: BatchJob) -> None:
    _kill(job, [job.ranks()[-1].pid])


def _fail_a_node(job: BatchJob) -> None:
    # The last node: the batch shell is on the first, and sees the loss of another.
    nodes = [rank.node for rank in job.ranks()]
    lost = max(nodes, key=lambda name: (len(name), name))
    faults.kill_daemon(job.slurm, lost)
    _kill(job, [one.pid for one in job.processes if one.node == lost])
    faults.give_up(job.slurm, lost)


# The words of --inject.
FAULTS = {
    "timeout": BatchFault(lambda job: faults.let_time_run_out(job.slurm, job.id), _A_TIME_LIMIT_S),
    "preempt": BatchFault(lambda job: faults.preempt(job.slurm), _SOON_S * 2),
    "node-failure": BatchFault(_fail_a_node, _SOON_S),
    "rank-death": BatchFault(_kill_the_last_rank, _SOON_S / 2),
    "cancel": BatchFault(lambda job: job.slurm.run(["scancel", job.id]), _SOON_S),
}
