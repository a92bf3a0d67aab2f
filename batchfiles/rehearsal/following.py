"""When a batch file's job has shown enough, or waits in vain, and what is injected into it on the way."""

from __future__ import annotations

import re
from collections.abc import Callable

from batchfiles.rehearsal.job import BatchJob
from trainjob.contract import clock
from trainjob.planning.words import quantity
from trainjob.rehearse.slurm import faults

_STALLED_S = 25.0
_IMPORTING = 10  # times as long, while torch is imported
_UNSTARTED = 3  # times as long, while the job script has started no process
_PENDING_S = 60.0
_TELL_EVERY_S = 15.0
_SETTLING_S = 8.0  # for a process that may still make a group
_STARTING_S = 120.0  # for ranks that were told of others, and look for none
_USING_S = 3.0  # from the meeting of ranks to their first work
_SOON_S = 90.0
# Slurm counts limits in minutes, and looks at them every half of one.
_A_TIME_LIMIT_S = 300.0
_TO_THE_END_S = 1800.0  # for what is left after a fault


class JobWatch:
    """When something last changed, and when a process last did anything."""

    def __init__(self, job: BatchJob, sleeps_s: float = 0.0) -> None:
        self.job, self.changed, self.lived = job, clock.monotonic(), clock.monotonic()
        self.sleeps_s = sleeps_s
        self._last: tuple[object, object] = ((), ())

    def look(self) -> None:
        """Compare what the job is now with what it was."""
        now = clock.monotonic()
        states = [row.get("JobState") for row in self.job.rows]
        changes = (
            states,
            [(one.pid, one.torch, one.meeting, one.world, one.has_ended) for one in self.job.processes],
        )
        life = changes, [one.cpu_s for one in self.job.processes]
        if changes != self._last[0]:
            self.changed = now
        if life != self._last[1]:
            self.lived = now
        self._last = changes, life

    @property
    def is_importing(self) -> bool:
        """Whether a process imports torch, which takes many of them on two cores some minutes."""
        return any(one.torch == "" for one in self.job.processes)

    def is_stalled(self) -> bool:
        """Return whether the processes do nothing; many share few cores."""
        processes = self.job.processes
        patience = _IMPORTING if self.is_importing else max(1.0, len(processes) / 8) if processes else _UNSTARTED
        if any(re.search(r"--nnodes[ =]\d+:\d+", one.command) for one in processes):
            patience = max(patience, 2.0)  # torchrun waits 30 s for the other nodes of a range
        return clock.monotonic() - self.lived >= _STALLED_S * patience + self.sleeps_s

    def in_words(self) -> str:
        """Return how far the job has come."""
        processes, ranks = self.job.processes, self.job.ranks()
        imported, met = sum(bool(one.torch) for one in processes), sum(bool(one.world) for one in ranks)
        return f"{len(processes)} Python processes, of which {imported} have imported torch, and {met} have met others"


def follow(
    job: BatchJob,
    inject: str | None,
    stop_after_s: float,
    limit: str,
    say: Callable[[str], None],
    sleeps_s: float = 0.0,
) -> str | None:
    """Wait until the job ends, has trained enough, or waits in vain. Return why it is to be ended; None if it has.

    `inject` names a fault, as base.Rehearsal does. `limit` is the time limit that the file asks for, `sleeps_s` the
    longest time that it sleeps by itself. A job that is followed with those that it submits is followed to its end,
    whatever is injected.
    """
    watch = JobWatch(job, sleeps_s)
    began = reported_at = clock.monotonic()

    def reason() -> str | None:
        nonlocal reported_at
        watch.look()
        now = clock.monotonic()
        if job.is_pending() and now - began > _PENDING_S:
            return f"Slurm has not started it within {_PENDING_S:g} s: {job.reason()}"
        if job.ranks() and now - watch.changed > _STARTING_S and not watch.is_importing:
            return f"its ranks have not met within {_STARTING_S:g} s"
        if job.is_at_work():
            if inject is not None and now - watch.changed >= _USING_S:
                say(f"{quantity(len(job.ranks()), 'rank')} at work. Injected: {inject}")
                return _follow_after(inject, watch, limit)
            settling_s = 0.0 if any(rank.world for rank in job.ranks()) else _SETTLING_S
            if inject is None and now - watch.changed >= stop_after_s + settling_s:
                return f"after {stop_after_s:g} s of training"
        if watch.is_stalled():
            return f"its processes have done nothing for {now - watch.lived:.0f} s"
        if now - reported_at >= _TELL_EVERY_S:
            say(f"  … {now - began:.0f} s: {watch.in_words()}")
            reported_at = now
        return None

    return job.follow(reason)


def _kill(job: BatchJob, pids: list[int]) -> None:
    job.slurm.run_as_root(["kill", "-KILL", *map(str, pids)], check=False)


def _fail_a_node(job: BatchJob) -> None:
    # The last node: the batch shell is on the first, and sees the loss of another.
    nodes = [rank.node for rank in job.ranks()]
    lost = max(nodes, key=lambda name: (len(name), name))
    faults.kill_daemon(job.slurm, lost)
    # Before its processes: those of a dead node tell srun nothing.
    faults.give_up(job.slurm, lost)
    _kill(job, [one.pid for one in job.processes if one.node == lost])


# The words of --inject: what each does, and how long its effect may take.
_FAULTS: dict[str, tuple[Callable[[BatchJob], object], float]] = {
    "timeout": (lambda job: faults.let_time_run_out(job.slurm, job.id), _A_TIME_LIMIT_S),
    "preempt": (lambda job: faults.preempt(job.slurm), _SOON_S * 2),
    "node-failure": (_fail_a_node, _SOON_S),
    "rank-death": (lambda job: _kill(job, [job.ranks()[-1].pid]), _SOON_S / 2),
    "cancel": (lambda job: job.slurm.run(["scancel", job.id]), _SOON_S),
}


def _follow_after(inject: str, watch: JobWatch, limit: str) -> str | None:
    """Inject the fault, and wait for its effect. Return why the job is to be ended; None if it has ended."""
    job, (act, within_s) = watch.job, _FAULTS[inject]
    act(job)
    began = clock.monotonic()

    def reason() -> str | None:
        watch.look()
        waited = clock.monotonic() - began
        if job.restarts() and job.is_at_work() and not job.with_more:
            return "it is at work again"
        if waited > (_TO_THE_END_S if job.with_more else within_s):
            return f"it still runs {waited:.0f} s after the fault"
        if inject == "rank-death" and watch.is_stalled():
            return f"its other ranks have done nothing for {clock.monotonic() - watch.lived:.0f} s, and wait"
        return None

    return faults.follow_back(job, limit, reason)
