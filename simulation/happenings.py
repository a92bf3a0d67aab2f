"""Faults of a run and the moment of each, recorded from one simulated history and replayed in another world.

A seed's history runs in the simulated world. The faults of its run become a list: which attempt each one meets, and the
progress of that attempt then. A `Replayer` lets a run reach that point, and then injects the fault.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from simulation import history, ranks
from simulation.commands import Command
from simulation.jobs import Job
from simulation.ranks import Step
from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import cancel as cancelling
from trainjob.lifecycle import prune as pruning
from trainjob.observe.status import status
from trainjob.records import attempts

TIME_LIMIT = "01:00:00"
LIMIT_S = 600.0
DOWN_S = 20
_MOST_ROUNDS = 8
LOST_GPU, KILLED, BROKEN = "a rank loses its GPU", "a rank is killed", "a rank is broken"
LAST_WORDS = {LOST_GPU: ranks.LOST_GPU, KILLED: ranks.KILLED, BROKEN: ranks.BROKEN}
NODE_FAULTS = {"dies first": (0, False), "dies second": (1, False), "is cut off": (0, True)}
ENDS_ATTEMPT = ("preempt", "requeue", "forget", "scancel", "time limit", "cancel", "stop", *NODE_FAULTS, *LAST_WORDS)
COMMANDS = ("status", "cancel", "stop", "resume")
# Where an attempt is. Attempt n is at 3 n - 2 once it trains, at 3 n - 1 once it has written a checkpoint, and at 3 n
# when nothing of it is left; it is half a step before these while it begins and while it ends.
TRAINS, HAS_CHECKPOINT, HALF = -2.0, -1.0, 0.5


class Happening(NamedTuple):
    """A fault of the run, and where its attempt is then."""

    place: float
    what: str

    def __str__(self) -> str:
        attempt = int(-(-self.place // 3))
        where = {TRAINS: f"attempt {attempt} trains", HAS_CHECKPOINT: f"attempt {attempt} has a checkpoint"}
        return f"{self.what} ({where.get(self.place - 3 * attempt, f'after attempt {attempt}')})"


class Outcome(NamedTuple):
    """The end of a run. `reported`: what commands reported about it, and faults that were too late."""

    reported: tuple[str, ...]
    ended_as: tuple[str, ...]  # the state after each of its ends
    attempts: int
    jobs: int
    durable_never_decreases: bool
    is_pruned: bool


class Replayer(Protocol):
    """A world with one submitted run, in which a job starts only while the replayer waits for it."""

    def reaches(self, place: float) -> bool:
        """Let the run continue to that point; return False if it passes the point or does not reach it."""

    def meets(self, what: str) -> str:
        """Inject it, and wait for the end of the attempt if it ends that; return what a command reported."""

    def ends(self) -> str:
        """Let the run continue until nothing of it is left; return the state that `status` reports."""

    def outcome(self, reported: Sequence[str], ended_as: Sequence[str]) -> Outcome:
        """Prune the run; return its outcome."""


def played(replayer: Replayer, happenings: Sequence[Happening]) -> Outcome:
    """Return the end of the run that meets all these faults and is resumed until it is complete."""
    reported = [
        f"{what}: {replayer.meets(what) if replayer.reaches(place) else 'the run was elsewhere'}"
        for place, what in happenings
    ]
    ended_as = [replayer.ends()]
    while ended_as[-1] != states.COMPLETED and len(ended_as) < _MOST_ROUNDS:
        replayer.meets("resume")
        ended_as.append(replayer.ends())
    return replayer.outcome(reported, ended_as)


def _place(one: history.History, paths: RunPaths) -> float:
    """Return where the run's newest attempt is."""
    begun = attempts.current(paths)
    job = next((job for job in one.slurm.of_run(paths.folder) if job.state in ("RUNNING", "COMPLETING")), None)
    if job is None:
        return 3.0 * begun
    step = job.step
    if job.state == "RUNNING" and (step is None or not step.began):
        name = f"script {job.id}.{job.starts}"
        return 3.0 * one.checker.attempt_of.get(name, begun + 1) + TRAINS - HALF
    if job.state == "COMPLETING" or step is None or step.is_over or step.over_at != float("inf"):
        return 3.0 * begun - HALF
    return 3.0 * step.attempt + (HAS_CHECKPOINT if step.durable > step.began_from else TRAINS)


class Recorded(history.History):
    """An ordinary history that records the faults of its first run: in `happenings` those of a real Slurm."""

    def __init__(self, seed: int, where: history.Place) -> None:
        super().__init__(seed, where, program=ranks.TASK.name)
        self.happenings: list[Happening] = []
        self.left_out = Counter[str]()
        slurm, site = self.slurm, self.slurm.site
        self.left_out["answers in trouble"] = int(site.trouble > 0)
        for name, what in (
            ("preempt", "preempt"),
            ("requeue_by_hand", "requeue"),
            ("forget_start", "forget"),
            ("administrator_cancels", "scancel"),
        ):
            setattr(slurm, name, self._noting(what, getattr(slurm, name)))
        fail_node, near_limit, goes_down = slurm.fail_node, slurm.near_limit, self._controller_goes_down

        def fails(job: Job, index: int, *, is_cut: bool) -> None:
            what = next(name for name, fault in NODE_FAULTS.items() if fault == (index, is_cut))
            self._noting(what, lambda job: fail_node(job, index, is_cut=is_cut))(job)

        def nears_limit(job: Job, number: int) -> None:
            if job.state == "RUNNING" and job.starts == number and job.step is not None and not job.step.is_over:
                self._note("time limit", job)
            near_limit(job, number)

        def down() -> None:
            self._note("down", None)
            goes_down()

        # Set where they are looked up.
        slurm.fail_node, slurm.near_limit = fails, nears_limit  # type: ignore[method-assign]
        self._controller_goes_down = down  # type: ignore[method-assign]

    def _noting(self, what: str, do: Callable[[Job], None]) -> Callable[[Job], None]:
        def noting(job: Job) -> None:
            self._note(what, job)
            do(job)

        return noting

    def _note(self, what: str, job: Job | None) -> None:
        """Record a fault of the job; None: of the first run, whatever its job does."""
        if self.world.is_calm or not self.runs():
            return
        paths = self.runs()[0]
        place = _place(self, paths)
        if job is not None and (job.folder != paths.folder or place % 3 == 3 - HALF):
            self.left_out["meets another run, or an attempt that ends"] += 1
        else:
            # Beginnings are short: it comes as soon as the ranks train. A command waits for the end of what ends.
            self.happenings.append(Happening(place + HALF if place % 1 else place, what))

    def _kill_client(self) -> None:
        self.left_out["a command is killed"] += 1
        super()._kill_client()

    def _plan_step(self, job: Job, step: Step) -> None:
        super()._plan_step(job, step)
        fails = step._rank_fails
        self.left_out["srun hangs"] += int(step.is_hung)

        def failing(code: int, last_words: str) -> None:
            kind = next((kind for kind, words in LAST_WORDS.items() if words == last_words), None)
            if kind is not None and code != 143:
                self._note(kind, job)
            fails(code, last_words)

        step._rank_fails = failing  # type: ignore[method-assign]

    def start(self, kind: str, host: str, work: Callable[[], object], **faults: Any) -> Command:
        """Note the command, too."""
        word = {"list": "status"}.get(kind, kind)
        if word in COMMANDS:
            self._note(word, None)
        elif not self.world.is_calm and self.clients.commands:
            self.left_out[f"{kind} beside it"] += 1
        self.left_out["a command is killed"] += int("killed_at" in faults)
        return super().start(kind, host, work, **faults)


class SimulatedStage:
    """The run of a seed's site in the simulated world, where nothing else goes wrong."""

    def __init__(self, one: history.History) -> None:
        self._one = one
        site = dataclasses.replace(one.slurm.site, trouble=0.0, is_busy=False, has_accounting=False, dies_of_term=0.0)
        one.slurm.site, one.clients.clocks = site, {}
        one.job = one.place.job(site.preemption, TIME_LIMIT, follow_up=one.queues_follow_up)
        one.slurm.plan_start, one.slurm.plan_step = lambda _job: ([], None), lambda _job, step: one.checker.watch(step)
        one.slurm.is_held = True
        one.do("submit", one._submit)
        self._paths = one.runs()[0]

    def _is_over(self) -> bool:
        return self._one._is_quiet(self._paths)

    def _run(self, until: Callable[[], bool], what: str) -> None:
        self._one.world.run(until, LIMIT_S * 10)
        if not until():
            raise TimeoutError(f"in the simulated world {what} takes too long")

    def reaches(self, place: float) -> bool:
        one = self._one
        one.slurm.is_held = _place(one, self._paths) == place
        self._run(lambda: _place(one, self._paths) >= place or self._is_over(), str(Happening(place, "it")))
        one.slurm.is_held = True
        return _place(one, self._paths) == place

    def meets(self, what: str) -> str:
        one, paths, reported = self._one, self._paths, ""
        place = _place(one, paths)
        job = next((job for job in one.slurm.of_run(paths.folder) if job.state == "RUNNING"), None)
        if what in COMMANDS:
            work: dict[str, Callable[[], object]] = {
                "status": lambda: status(paths),
                "cancel": lambda: cancelling.cancel(paths, grace_s=30.0),
                "stop": lambda: cancelling.stop(paths),
                "resume": lambda: one._resume_run(paths),
            }
            done = one.do(what, work[what])
            reported = (
                "refused" if done.error else str(getattr(done.result, "state", "")) if what == "status" else "done"
            )
        elif what == "down":
            one.slurm.down_until = one.world.now + DOWN_S
            one.world.run(limit_s=DOWN_S)
        elif job is None:
            return "no job runs"
        elif what in NODE_FAULTS:
            index, is_cut = NODE_FAULTS[what]
            one.slurm.fail_node(job, index, is_cut=is_cut)
        elif what in LAST_WORDS and job.step is not None:
            job.step.fails_at, job.step.fails_as = job.step.update, LAST_WORDS[what]
        elif what == "time limit":
            one.slurm.near_limit(job, job.starts)
        else:
            slurm = one.slurm
            {
                "requeue": slurm.requeue_by_hand,
                "preempt": slurm.preempt,
                "scancel": slurm.administrator_cancels,
                "forget": slurm.forget_start,
            }[what](job)
        if what in ENDS_ATTEMPT and place % 3:
            settled = 3.0 * -(-place // 3)
            self._run(lambda: _place(one, paths) >= settled, f"the end of an attempt after {what}")
        return reported

    def ends(self) -> str:
        self._one.slurm.is_held = False
        self._run(self._is_over, "the end of the run")
        self._one.slurm.is_held = True
        return self.meets("status")

    def outcome(self, reported: Sequence[str], ended_as: Sequence[str]) -> Outcome:
        one, paths = self._one, self._paths
        last, jobs = attempts.current(paths), len(one.slurm.of_run(paths.folder))
        one.world.run(limit_s=60.0)
        chosen = {"older_than": timedelta(0), "in_states": states.ENDED, "keep": 0}
        one.do("prune", lambda: pruning.remove(pruning.candidates(**chosen)))  # type: ignore[arg-type]
        never_decreases = not any("durable progress" in line for line in one.world.violations)
        return Outcome(tuple(reported), tuple(ended_as), last, jobs, never_decreases, not paths.folder.exists())
