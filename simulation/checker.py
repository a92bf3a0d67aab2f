"""Checks a history against the invariants of docs/protocol.md: by what the world has seen, not by what is told."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path

from simulation.commands import Clients, Command
from simulation.ranks import UPDATES, Step
from simulation.scripts import Script
from simulation.slurm import Job, Slurm
from simulation.world import World
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.observe.status import Snapshot
from trainjob.records import attempts
from trainjob.records.files import read_json

# A script may wait this long between its look at `attempt` and its write: longer than any step takes, and far shorter
# than Slurm takes to give a node up.
FENCE_S = 5.0
# How late what is told may be: two looks of a job script at its step, and Slurm's own states.
TOLD_WITHIN_S = 90.0
# Calls of the controller: of one look at a run, of one command, and of one job script within a minute.
MOST_CALLS_OF_A_LOOK = 6
MOST_CALLS_OF_A_COMMAND = 60
MOST_CALLS_OF_A_SCRIPT = 12


@dataclass
class Truth:
    """What the world knows of one run."""

    durable: int = 0
    completed_at: float | None = None
    cancelled_at: float | None = None  # when a cancel returned, unless a resume began later
    claims: dict[int, float] = field(default_factory=dict)  # when each attempt was claimed


class Checker:
    """Watches one world."""

    def __init__(self, world: World, slurm: Slurm, clients: Clients) -> None:
        self.world, self.slurm, self.clients = world, slurm, clients
        self.runs: dict[Path, Truth] = {}
        self._attempt_of: dict[str, int] = {}
        self._training: dict[str, list[float]] = {}  # when each step trained
        self._told: list[tuple[Command, Snapshot]] = []
        self._ended_at: dict[int, float] = {}
        slurm.wrote_file = self._wrote
        slurm.changed = self._changed
        clients.ended = self._command_ended

    def truth(self, folder: Path) -> Truth:
        """Return what is known of the run in `folder`."""
        return self.runs.setdefault(folder, Truth())

    def watch(self, step: Step) -> None:
        """Be told of what a step does."""
        step.on_train, step.on_durable = self._trains, self._is_durable

    # An attempt that writes after a newer one began.

    def _wrote(self, script: Script, path: Path, text: str | None) -> None:
        truth = self.truth(script.folder)
        if path.name == "attempt" and text is not None:
            number = int(text)
            if number in truth.claims:
                self.world.violate("one attempt has one number", f"{script.name} claims {number} once more")
            self._attempt_of[script.name] = number
            truth.claims[number] = self.world.now
            return
        mine = self._attempt_of.get(script.name)
        newer = [at for number, at in truth.claims.items() if mine is not None and number > mine]
        if newer and path.name in ("state", "exit_code", "job_id") and self.world.now - min(newer) > FENCE_S:
            late_s = self.world.now - min(newer)
            self.world.violate("a newer attempt fences", f"{script.name} writes {path.name} {late_s:.1f} s later")
        if path.name == "state" and text == states.COMPLETED:
            if truth.durable < UPDATES:
                self.world.violate("COMPLETED is true", f"{script.name} says so after update {truth.durable}")
            truth.completed_at = self.world.now

    def _trains(self, step: Step) -> None:
        truth = self.truth(step.paths.folder)
        self._training.setdefault(step.name, []).append(self.world.now)
        if self._is_cut_off(step):
            return
        if truth.cancelled_at is not None:
            self.world.violate(
                "a cancelled run never trains again", f"{step.name}, cancelled at {truth.cancelled_at:.0f}"
            )
        newer = [at for number, at in truth.claims.items() if number > step.attempt]
        if newer and self.world.now - min(newer) > 60.0:
            self.world.violate("a newer attempt fences", f"{step.name} trains on")

    def _is_durable(self, step: Step) -> None:
        truth = self.truth(step.paths.folder)
        if attempts.current(step.paths) > step.attempt:
            self.world.violate("a newer attempt fences", f"{step.name} writes a checkpoint")
        if step.update < truth.durable:
            self.world.violate("durable progress never decreases", f"{step.name}: {truth.durable} → {step.update}")
        truth.durable = max(truth.durable, step.update)

    def _is_cut_off(self, step: Step) -> bool:
        return any(step is one for _, one in self.slurm.cut_off)

    # Jobs.

    def _changed(self, job: Job) -> None:
        def at_work(one: Job) -> bool:
            if one.state == "PENDING":
                waits = one.after is not None and not self.slurm.jobs[one.after[1]].has_ended
                return not waits and one.reason != "DependencyNeverSatisfied"
            return one.state == "RUNNING"

        jobs = [one for one in self.slurm.of_run(job.folder) if at_work(one)]
        if len(jobs) > 1:
            named = ", ".join(f"{one.id} {one.state}" for one in jobs)
            self.world.violate("one job of a run at a time", named)

    # What is told.

    def _command_ended(self, command: Command) -> None:
        error = command.error
        is_disk_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        if error is not None and not isinstance(error, UserError | TimeoutError) and not is_disk_full:
            self.world.violate("no command breaks", f"{command.name}: {type(error).__name__}: {error}")
        seen = command.result if isinstance(command.result, list) else [command.result]
        shown = [one for one in seen if isinstance(one, Snapshot)]
        self._told += [(command, one) for one in shown]
        if command.name.startswith("cancel"):
            for one in shown:
                if one.state == states.CANCELLED and not one.is_stale:
                    self.truth(Path(one.folder)).cancelled_at = self.world.now
        kind = command.name.partition(" ")[0]
        most = MOST_CALLS_OF_A_LOOK if kind == "status" else MOST_CALLS_OF_A_COMMAND
        if command.calls > most:
            self.world.violate("polite to the controller", f"{command.name} calls it {command.calls} times")

    def resumes(self, folder: Path) -> None:
        """Note that a resume begins, after which the run may train again."""
        self.truth(folder).cancelled_at = None

    def end(self) -> None:
        """Judge what needs the whole history."""
        for command, told in self._told:
            self._judge(command, told)
        by_script: dict[str, list[float]] = {}
        for at, who, _ in self.slurm.calls:
            if who.startswith("script"):
                by_script.setdefault(who, []).append(at)
        for who, times in by_script.items():
            most = max(sum(1 for other in times if at <= other < at + 60.0) for at in times)
            if most > MOST_CALLS_OF_A_SCRIPT:
                self.world.violate("polite to the controller", f"{who} calls it {most} times within a minute")

    def _judge(self, command: Command, told: Snapshot) -> None:
        """Compare what a command told with what was true from a while before it until a while after it."""
        if told.is_stale or told.elements:
            return
        began, ended = command.began_at - TOLD_WITHIN_S, (command.ended_at or command.began_at) + TOLD_WITHIN_S
        folder = Path(told.folder)
        jobs = self.slurm.of_run(folder)
        truth = self.truth(folder)
        if told.state == states.COMPLETED and (truth.completed_at is None or truth.completed_at > ended):
            self.world.violate("the state that is told is true", f"{command.name} told COMPLETED of {told.id}")
        trained = [
            at
            for name, times in self._training.items()
            for at in times
            if any(
                step.name == name and step.paths.folder == folder and not self._is_cut_off(step)
                for step in self.slurm.steps
            )
        ]
        before = [at for at in trained if began <= at < command.began_at]
        after = [at for at in trained if (command.ended_at or 0.0) < at <= ended]
        is_resumed = any(one.name.startswith("resume") and one.began_at <= ended for one in self.clients.commands)
        if told.state in states.ENDED and before and after and not is_resumed:
            self.world.violate(
                "the state that is told is true", f"{command.name} told {told.state}, and {told.id} trains"
            )
        waits_or_runs = [
            job
            for job in jobs
            if job.submitted_at < began and (job.ended_at is None or job.ended_at > ended) and job.after is None
        ]
        if told.state in states.ENDED and waits_or_runs and not is_resumed:
            named = ", ".join(str(job.id) for job in waits_or_runs)
            self.world.violate(
                "the state that is told is true", f"{command.name} told {told.state}, and Slurm has {named}"
            )
        alive = [job for job in jobs if job.ended_at is None or job.ended_at >= began]
        if told.state in states.ACTIVE and not alive and told.submission is not None and told.submission.native:
            self.world.violate("the state that is told is true", f"{command.name} told {told.state}, and it has no job")


def locks(runs_dir: Path, killed: set[int]) -> list[str]:
    """Return the locks in a folder of runs that none of the commands that were `killed` has left."""
    held = sorted(runs_dir.glob("*/.lock*"))
    return [f"{path.parent.name}/{path.name}" for path in held if (read_json(path) or {}).get("pid") not in killed]
