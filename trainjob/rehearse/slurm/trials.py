"""The faults of --inject, and what must follow from each. A new fault is a new row of TRIALS."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainjob.contract import states
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.rehearse.slurm import faults
from trainjob.rehearse.slurm.watching import Scene, wait_for

# Slurm checks time limits every 30 s, less often on a busy machine.
_SIGNAL_WITHIN_S = 300.0


@dataclass(frozen=True)
class Trial:
    """One fault: how it is injected, what is expected, and what differs from that afterwards (None: nothing)."""

    strike: Callable[[Scene], None]
    expected: Callable[[SlurmCluster], str]
    problem: Callable[[Scene], str | None]
    comes_back: Callable[[SlurmCluster], bool] = lambda _: False


def _let_time_run_out(scene: Scene) -> None:
    # A short job would end before Slurm checks its limit: pause the ranks until they have been signalled.
    with _held(scene) as ranks:
        faults.let_time_run_out(scene.slurm, scene.job)
        wait_for(scene, lambda: any(map(_has_been_signalled, ranks)), "the time-limit signal came", _SIGNAL_WITHIN_S)


@contextmanager
def _held(scene: Scene) -> Iterator[list[int]]:
    ranks = faults.ranks_of(scene.paths)
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield ranks
    finally:
        for pid in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _has_been_signalled(pid: int) -> bool:
    """Return whether a paused rank has a pending USR1, or runs again: some sites' Slurm continues what it signals."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    words = dict(line.split(None, 2)[:2] for line in lines if line.startswith(("State:", "SigPnd:", "ShdPnd:")))
    pending = int(words["SigPnd:"], 16) | int(words["ShdPnd:"], 16)
    return words["State:"] != "T" or bool(pending & 1 << (signal.SIGUSR1 - 1))


def _preempt(scene: Scene) -> None:
    faults.preempt(scene.slurm)


def _fail_a_node(scene: Scene) -> None:
    # The last node: rank 0 and the job script survive, and see the loss of a node.
    node = scene.nodes()[-1]
    faults.kill_daemon(scene.slurm, node)
    faults.give_up(scene.slurm, node)


def _kill_a_rank(scene: Scene) -> None:
    faults.kill_rank(scene.paths, scene.instances - 1)


def _cancel(scene: Scene) -> None:
    scene.slurm.run(["scancel", scene.job])


def _came_back(scene: Scene) -> str | None:
    if scene.attempt < 2:
        return f"the job was not restarted: it is {scene.state} after attempt {scene.attempt}"
    if scene.state not in (states.COMPLETED, states.STOPPED):
        return f"the job was restarted, and attempt {scene.attempt} is {scene.state}"
    return None


def _named_the_rank(scene: Scene) -> str | None:
    failed, rank = scene.failure, scene.instances - 1
    if scene.state != states.FAILED or failed is None:
        return f"the job is {scene.state}, and {'no rank' if failed is None else f'rank {failed.rank}'} is named"
    return None if failed.rank == rank else f"rank {failed.rank} is named, and rank {rank} was killed"


def _was_cancelled(scene: Scene) -> str | None:
    if scene.state != states.CANCELLED:
        return f"the job is {scene.state}"
    return None if scene.checkpoint() or not scene.trains else "the job left no checkpoint"


def _was_preempted(scene: Scene) -> str | None:
    if scene.cluster.preemption != "cancel":
        return _came_back(scene)
    if scene.state not in (states.STOPPED, states.CANCELLED):
        return f"the job is {scene.state}"
    return None if scene.checkpoint() or not scene.trains else "the job left no checkpoint"


_BACK = "the job checkpoints, is restarted, and continues as attempt 2"
_PREEMPTED = {
    "requeue": _BACK,
    "cancel": "the job ends and leaves a checkpoint",
    "user-signal": _BACK,
}
TRIALS: dict[str, Trial] = {
    "timeout": Trial(_let_time_run_out, lambda _: _BACK, _came_back, lambda _: True),
    "preempt": Trial(
        _preempt,
        lambda cluster: _PREEMPTED[cluster.preemption],
        _was_preempted,
        lambda cluster: cluster.preemption != "cancel",
    ),
    "node-failure": Trial(
        _fail_a_node, lambda _: "the job is restarted on the remaining nodes, as attempt 2", _came_back, lambda _: True
    ),
    "rank-death": Trial(_kill_a_rank, lambda _: "the job is FAILED, and the rank that died is named", _named_the_rank),
    "cancel": Trial(
        _cancel, lambda _: "the job is CANCELLED, leaves a checkpoint, and is not restarted", _was_cancelled
    ),
}
