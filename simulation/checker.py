"""Checks a history against the invariants of docs/protocol.md, by the events of the world."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from simulation.commands import Clients, Command
from simulation.jobs import Job
from simulation.programs import MIN_JOB_AGE_S
from simulation.ranks import UPDATES, Step
from simulation.scripts import Script
from simulation.slurm import Slurm
from simulation.world import World
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe.status import Snapshot
from trainjob.records import attempts
from trainjob.records import submission as submissions
from trainjob.records.files import read_json

# A script may wait this long between its look at `attempt` and its write: longer than any step takes, and far shorter
# than Slurm takes to give a node up.
FENCE_S = 5.0
# How late a report may be: two looks of a job script at its step, and Slurm's own states.
TOLD_WITHIN_S = 90.0
# Calls of the controller: of one look at a run, of one command, and of one job script within a minute.
MOST_CALLS_OF_A_LOOK = 6
MOST_CALLS_OF_A_COMMAND = 60
MOST_CALLS_OF_A_SCRIPT, MOST_CALLS_OF_A_TROUBLED_SCRIPT = 15, 40
# How long a script may act on an answer that was not as it should be.
TROUBLED_S = 90.0
MOST_STARTS = 9
# An update, its checkpoint, and what a full disk has held up.
STOPS_WITHIN_S = 60.0
# By then Slurm has seen whether a job that was to follow another one may start.
GOES_ON_WITHIN_S = 60.0
# What a script may have asked for when its job was cancelled.
ANSWERED_WITHIN_S = 2.0
# A job script may be at work on srun's end, and a launcher asks by TERM what does not handle USR1.
ASKED_WITHIN_S = 30.0
SCANCELS = 4  # of a job script, where none is answered


@dataclass
class Truth:
    """What the world knows of one run."""

    durable: int = 0
    newest: int = 0  # the update of what was written last, also by ranks out of reach
    completed_at: float | None = None
    reported_cancelled_at: float | None = None  # when a cancel reported it
    cancelled_at: float | None = None  # when a cancel returned, unless a resume began later
    resumed_at: float = -1.0  # when a resume began last
    stopped_at: float | None = None  # when a `cancel --stop` returned, unless a resume began later
    claims: dict[int, float] = field(default_factory=dict)  # when each attempt was claimed
    word: str = ""  # the last state in which a script recorded the end of its attempt, unless a resume began later
    word_of: str = ""  # that script


class Checker:
    """Watches one world."""

    def __init__(self, world: World, slurm: Slurm, clients: Clients) -> None:
        self.world, self.slurm, self.clients = world, slurm, clients
        self.calls, self.troubles = slurm.programs.calls, slurm.programs.troubles
        self.runs: dict[Path, Truth] = {}
        self.attempt_of: dict[str, int] = {}
        self._training: dict[str, list[float]] = {}  # when each step trained
        self._reported: list[tuple[Command, Snapshot]] = []
        slurm.wrote_file = self._wrote
        slurm.changed = self._changed
        slurm.job_ended = self._job_ended
        slurm.asked_to_stop = self._asked_to_stop
        clients.ended = self._command_ended

    def truth(self, folder: Path) -> Truth:
        """Return what is known of the run in `folder`."""
        return self.runs.setdefault(folder, Truth())

    def watch(self, step: Step) -> None:
        """Take note of a step."""
        step.on_train, step.on_durable = self._trains, self._is_durable

    # An attempt that writes after a newer one began.

    def _wrote(self, script: Script, path: Path, text: str | None) -> None:
        truth = self.truth(script.folder)
        if path.name == "attempt" and text is not None:
            number = int(text)
            if number in truth.claims:
                self.world.violate("one attempt has one number", f"{script.name} claims {number} once more")
            self.attempt_of[script.name] = number
            truth.claims[number] = self.world.now
            self._judge_claim(script, truth)
            return
        mine = self.attempt_of.get(script.name)
        newer = [at for number, at in truth.claims.items() if mine is not None and number > mine]
        if newer and path.name in ("state", "exit_code", "job_id") and self.world.now - min(newer) > FENCE_S:
            late_s = self.world.now - min(newer)
            self.world.violate("a newer attempt fences", f"{script.name} writes {path.name} {late_s:.1f} s later")
        if path.name == "state" and text is not None and text != states.RUNNING:
            truth.word, truth.word_of = text, script.name
            self._judge_word(script, text)
        if path.name == "state" and text == states.COMPLETED:
            if truth.newest < UPDATES:
                self.world.violate("COMPLETED is true", f"{script.name} says so after update {truth.newest}")
            truth.completed_at = self.world.now

    def _judge_claim(self, script: Script, truth: Truth) -> None:
        """Check that no follow-up job continues a run that a script has recorded as ended."""
        job = self._job_of(script)
        if job is None or job.after is None or job.restarts or truth.word not in states.ENDED:
            return
        # One that was killed, or not answered, may not have cancelled its follow-up job; but it calls scancel again.
        unanswered = [program for _, who, program in self.troubles if who == truth.word_of]
        could_drop_it = len(unanswered) < SCANCELS and all("scancel" in program for program in unanswered)
        has_dropped_it = self._has_returned(truth.word_of) and could_drop_it
        if truth.word == states.CANCELLED or has_dropped_it:
            self.world.violate("what has ended goes on by hand alone", f"{script.name} continues what is {truth.word}")

    def _has_returned(self, name: str) -> bool:
        return any(event.who == name and event.what == "ends" for event in self.world.history)

    def _was_ever_troubled(self, name: str) -> bool:
        return any(who == name for _, who, _ in self.troubles)

    def _job_of(self, script: Script) -> Job | None:
        name = script.name.removeprefix("script ").partition(".")[0]
        return self.slurm.jobs.get(int(name))

    def _judge_word(self, script: Script, word: str) -> None:
        """Compare the state in which a script says that its attempt ended with what Slurm does with its job."""
        job = next((one for one in self.slurm.jobs.values() if one.script is script), None)
        if job is None:
            return
        waits = [one for one in self.slurm.jobs.values() if one.after == ("afterany", job.id) and not one.has_ended]
        could_ask = not any(self._was_troubled(script.name, program) for program in ("squeue", "scontrol", "scancel"))
        is_held = any(one.state == "PENDING" or one.ends_as == "REQUEUE" for one in self.slurm.of_run(job.folder))
        # It can't tell that it has cancelled its follow-up job itself if no answer says so.
        could_tell = not (self._was_troubled(script.name, "scancel") and self._was_troubled(script.name, "scontrol"))
        if word == states.REQUEUED and not is_held and could_tell and not self._is_being_cancelled(job):
            self.world.violate("what is REQUEUED has a start", f"{script.name}, when its job is {job.state}")
        known = read_text(job.folder / ".follow_up").strip()  # it is cancelled next
        unknown = [one.id for one in waits if str(one.id) != known]
        if word == states.STOPPED and unknown and could_ask:
            self.world.violate("a follow-up job that waits is known", f"{script.name} stops, and {unknown[0]} waits")
        was_refused = any((event.who, event.what) == (script.name, "srun") for event in self.world.history)
        if job.step is None and was_refused and job.state == "RUNNING" and word == states.FAILED:
            self.world.violate("an srun that is refused is called again", f"{script.name} ended as {word}")
        if job.step is None or not job.step.began or self._was_troubled(script.name):
            return
        allowed = self._allowed_words(job, job.step)
        if word not in allowed:
            why = f"{script.name} ended as {word}, not {' or '.join(sorted(allowed))}; {job.state} {job.ends_as}"
            self.world.violate("an attempt ends as what it was", why)

    def _is_being_cancelled(self, job: Job) -> bool:
        return job.ends_as == "CANCELLED" or any(
            one.name.startswith("cancel") and not one.is_over for one in self.clients.commands
        )

    def _was_troubled(self, who: str, program: str = "") -> bool:
        """Return whether an answer to `who`, of `program` where it is given, was lately not as it should be."""
        return any(
            caller == who and self.world.now - at < TROUBLED_S and program in asked
            for at, caller, asked in self.troubles
        )

    def _allowed_words(self, job: Job, step: Step) -> frozenset[str]:
        every = frozenset(states.ALL)
        if not step.is_ended_by_slurm:  # the ranks ended first, and decide
            return self._words_of_ranks(step) if job.ending_at == float("inf") else every
        if job.state == "PENDING" or job.ends_as == "REQUEUE":
            return frozenset({states.REQUEUED, states.COMPLETED})
        if job.ends_as == "CANCELLED":
            again = {states.REQUEUED} if job.was_to_start_again else set()
            return frozenset({states.CANCELLED, states.COMPLETED, *again})
        if job.ends_as == "TIMEOUT":
            # What was saved at the last moment, or has got further before, goes on by a follow-up job.
            is_seen = step.program.is_task or (step.program.is_seen and step.has_written)
            has_advanced = is_seen and step.durable > step.began_from
            again = {states.REQUEUED} if step.left_marker or step.has_saved or has_advanced else set()
            return frozenset({states.TIMEOUT, states.COMPLETED, *again})
        if job.ends_as == "PREEMPTED":
            is_known = step.durable and (step.program.is_task or step.program.is_seen)
            again = {states.REQUEUED} if step.left_marker or step.has_saved or is_known else set()
            return frozenset({states.STOPPED, states.CANCELLED, states.COMPLETED, *again})
        return every

    def _words_of_ranks(self, step: Step) -> frozenset[str]:
        if step.asked_at is not None and not step.program.is_task and not step.has_failed:
            return self._words_of_asked(step)
        if step.is_complete:
            return frozenset({states.COMPLETED})
        if step.has_failed and step.has_saved and not step.program.is_task:  # it could not requeue its job itself
            return self._words_of_interrupted(step) | {states.FAILED}
        if not step.left_marker and not step.may_go_on:
            # The disk took neither the request nor the marker: the exit code and the checkpoints say what it was.
            if not step.is_unrecorded or step.has_failed:
                return frozenset({states.FAILED})
            return self._words_of_interrupted(step) if self._gets_further(step) else frozenset({states.STOPPED})
        return self._words_of_interrupted(step)

    def _words_of_asked(self, step: Step) -> frozenset[str]:
        """Return what becomes of a script of the user's that was asked to stop, and ended for that."""
        if step.is_complete and step.program.shows_total:
            return frozenset({states.COMPLETED})
        if not step.has_saved and not self._gets_further(step):
            return frozenset({states.STOPPED})
        return self._words_of_interrupted(step)

    @staticmethod
    def _gets_further(step: Step) -> bool:
        """Return whether this attempt wrote a checkpoint with which the next one gets further, as its launcher saw."""
        if step.program.is_task:
            return step.durable > step.began_from
        before = [*read_text(step.paths.folder / ".starts").split()[2:], "0"][0]
        return step.program.is_seen and step.has_written and step.durable > int(before)

    def _words_of_interrupted(self, step: Step) -> frozenset[str]:
        if step.paths.stop.exists():
            return frozenset({states.STOPPED} if step.saw_stop else {states.STOPPED, states.REQUEUED})
        starts, _, _ = (read_text(step.paths.folder / ".starts") or "1").partition(" ")
        excluded = read_text(step.paths.folder / "excluded_nodes").count("\n")
        if int(starts) >= MOST_STARTS or excluded > 2:  # the run has had its starts, or every node is to blame
            return frozenset(states.ALL)
        return frozenset({states.REQUEUED})

    def _trains(self, step: Step) -> None:
        truth = self.truth(step.paths.folder)
        self._training.setdefault(step.name, []).append(self.world.now)
        if self._is_out_of_reach(step):
            return
        stopped_at = truth.stopped_at
        if not step.program.is_task:  # it knows no stop file
            stopped_at = None
        could_stop_at = max(stopped_at or 0.0, step.began_at, step.disk_is_full_until)
        if stopped_at is not None and self.world.now - could_stop_at > STOPS_WITHIN_S:
            self.world.violate("a stop is obeyed", f"{step.name} trains on, stopped at {stopped_at:.0f}")
        completed_at = truth.completed_at
        # A script of the user's that has its last checkpoint is started, and has nothing left to do.
        has_all = not step.program.is_task and step.began_from >= UPDATES
        if completed_at is not None and not has_all and any(at > completed_at for at in truth.claims.values()):
            self.world.violate("a complete run does not train again", step.name)
        if truth.cancelled_at is not None:
            self.world.violate(
                "a cancelled run never trains again", f"{step.name}, cancelled at {truth.cancelled_at:.0f}"
            )
        newer = [at for number, at in truth.claims.items() if number > step.attempt]
        if newer and self.world.now - min(newer) > 60.0:
            self.world.violate("a newer attempt fences", f"{step.name} trains on")

    def _is_durable(self, step: Step) -> None:
        truth = self.truth(step.paths.folder)
        truth.newest = step.update
        if not step.program.is_task and self._is_out_of_reach(step):
            truth.durable = min(truth.durable, step.update)  # it knows no attempts, and nobody can end it
            return
        if attempts.current(step.paths) > step.attempt:
            self.world.violate("a newer attempt fences", f"{step.name} writes a checkpoint")
        if step.update < truth.durable:
            self.world.violate("durable progress never decreases", f"{step.name}: {truth.durable} → {step.update}")
        truth.durable = max(truth.durable, step.update)

    def _is_out_of_reach(self, step: Step) -> bool:
        return step.name.removeprefix("ranks ") in self.slurm.out_of_reach

    def _asked_to_stop(self, job: Job) -> None:
        """See that ranks that train, and handle a request, get it."""
        step, script = job.step, job.script

        def judge() -> None:
            is_at_work = job.step is step and job.state == "RUNNING" and script is not None and not script.is_over
            if step is None or not is_at_work or step.is_over or not step.began or step.over_at != float("inf"):
                return
            if step.asked_at is None and (step.program.usr1 or step.program.term):
                self.world.violate("a request reaches the ranks", step.name)

        self.world.after(ASKED_WITHIN_S, judge)

    # Jobs.

    def _changed(self, job: Job) -> None:
        def at_work(one: Job) -> bool:
            if one.state == "PENDING":
                waits = one.after is not None and not self.slurm.jobs[one.after[1]].has_ended
                return not waits and not one.can_never_start
            return one.state == "RUNNING"

        jobs = [one for one in self.slurm.of_run(job.folder) if at_work(one)]
        if len(jobs) > 1:
            named = ", ".join(f"{one.id} {one.state}" for one in jobs)
            self.world.violate("one job of a run at a time", named)
        first = None if job.after is None or job.starts else self.slurm.jobs[job.after[1]]
        if first is not None and first.has_requeued_itself and not first.has_ended:
            name = f"script {first.id}.{first.starts}"
            if not any(at > first.ending_at and (who, what) == (name, "scontrol") for at, who, what in self.troubles):
                self.world.violate("one job continues a run", f"{job.id}, and {first.id}, which {name} has requeued")

    def _job_ended(self, job: Job, code: int) -> None:
        """See that a script which has returned said how its attempt ended, and note what is to stay cancelled."""
        name, truth = f"script {job.id}.{job.starts}", self.truth(job.folder)
        is_newest = name in self.attempt_of and self.attempt_of[name] == max(truth.claims)
        if is_newest and self._has_returned(name) and truth.word_of != name:
            self.world.violate("an attempt that ends says how", name)
        is_troubled = any(self._was_troubled(name, program) for program in ("scancel", "scontrol"))
        # Commands after the cancel report it.
        has_asked = any(at > job.ending_at and (who, what) == (name, "scontrol") for at, who, what in self.calls)
        is_in_time = self.world.now - job.ending_at > ANSWERED_WITHIN_S or has_asked
        if not self._was_ever_troubled(name):
            self.world.after(GOES_ON_WITHIN_S, lambda: self._goes_on(job, name))
        # Killed between its TERM and its word, a script leaves nothing by which the next one knows.
        could_say_so = code != 143 and (self._has_returned(name) or truth.word_of == name)
        if job.is_cancelled_by_hand and could_say_so and is_in_time and not (is_troubled or self._is_being_resumed()):
            others = [one for one in self.slurm.of_run(job.folder) if one is not job and one.state == "RUNNING"]
            if not others:
                truth.cancelled_at = self.world.now

    def _goes_on(self, job: Job, script: str) -> None:
        """See that what a script has called REQUEUED goes on, if nobody has ended it since."""
        truth = self.truth(job.folder)
        is_ended = truth.cancelled_at is not None or any(
            one.is_cancelled_by_hand or (one.state == "CANCELLED" and not one.can_never_start)
            for one in self.slurm.of_run(job.folder)
        )
        is_due = truth.word == states.REQUEUED and truth.word_of == script and self._has_returned(script)
        is_due = is_due and self.attempt_of.get(script, 0) == max(truth.claims)  # the next attempt may be ended, too
        if is_due and job.has_ended and not is_ended and all(one.has_ended for one in self.slurm.of_run(job.folder)):
            self.world.violate(
                "a run that should continue continues", f"{script} recorded REQUEUED, and no job is left"
            )

    # What commands report.

    def _command_ended(self, command: Command) -> None:
        error = command.error
        is_disk_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        if error is not None and not isinstance(error, UserError | TimeoutError) and not is_disk_full:
            self.world.violate("no command breaks", f"{command.name}: {type(error).__name__}: {error}")
        seen = command.result if isinstance(command.result, list) else [command.result]
        shown = [one for one in seen if isinstance(one, Snapshot)]
        self._reported += [(command, one) for one in shown if not self._is_completing(one)]
        kind = command.name.partition(" ")[0]
        for one in shown:
            self._judge_report(command, kind, one)
        is_resumed = self._was_resumed_since(command.began_at)
        for one in shown if kind == "cancel" and error is None and not is_resumed else ():
            if one.state in states.ACTIVE and not one.is_stale:
                self.world.violate("a cancel ends its run", f"{command.name} reported {one.state}")
        if kind == "cancel" and isinstance(error, UserError) and not self._was_ever_troubled(command.name):
            for job in self.slurm.jobs.values():
                is_left = job.state in ("PENDING", "RUNNING") and job.submitted_at < command.began_at
                if is_left and f"run {job.name}: Slurm was asked to cancel" in str(error):
                    self.world.violate("a cancel ends its run", f"{command.name} leaves {job.id} {job.state}")
        if kind == "stop" and error is None and not (command.is_killed or self._is_being_resumed()):
            paths = RunPaths(Path(str(command.result)))
            self.truth(paths.folder).stopped_at = self.world.now if paths.stop.exists() else None
        if kind in ("submit", "resume") and error is None and not command.is_killed:
            self._judge_start(command)
        most = MOST_CALLS_OF_A_LOOK if kind == "status" else MOST_CALLS_OF_A_COMMAND
        if command.calls > most:
            self.world.violate("polite to the controller", f"{command.name} calls it {command.calls} times")

    def _judge_report(self, command: Command, kind: str, one: Snapshot) -> None:
        folder = Path(one.folder)
        truth = self.truth(folder)
        # What never had a job is cancelled by its record alone, which a full disk does not take: it says so.
        is_recorded = bool(self.slurm.of_run(folder)) or "could not be written" not in (one.note or "")
        is_final = is_recorded and not (one.is_stale or self._is_being_resumed())
        if kind == "cancel" and one.state == states.CANCELLED and is_final:
            truth.cancelled_at = truth.reported_cancelled_at = self.world.now
        failed = one.failure
        if failed is not None and failed.attempt < one.attempt and not one.is_stale:
            self.world.violate("the reported failure is the last attempt's", f"{command.name}: {failed.attempt}")
        reported_at = truth.reported_cancelled_at
        if (
            reported_at is not None
            and not one.is_stale
            and command.began_at > reported_at
            and one.state in (states.LOST, *states.ACTIVE)
        ):
            self.world.violate("the reported state is true", f"{command.name} reported {one.state} of a cancelled run")
        if one.state == states.LOST and not one.is_stale and self._is_known(folder, command):
            self.world.violate("the reported state is true", f"{command.name} reported LOST for a job that Slurm knows")
        if one.state == states.LOST and self._was_ended_by_cancel(folder, truth.resumed_at):
            self.world.violate(
                "the reported state is true", f"{command.name} reported LOST for a run that a cancel ended"
            )

    def _is_completing(self, reported: Snapshot) -> bool:
        """Return whether nobody can say yet what becomes of a job whose script has recorded an end."""
        jobs = self.slurm.of_run(Path(reported.folder))
        return reported.state in states.ENDED and any(
            job.state == "COMPLETING" or (job.state == "RUNNING" and job.script is not None and job.script.is_over)
            for job in jobs
        )

    def _is_known(self, folder: Path, command: Command) -> bool:
        """Return whether Slurm could say how the newest job of a run has ended, as long as the command ran."""
        jobs, submission = self.slurm.of_run(folder), submissions.read(RunPaths(folder))
        is_submitted = submission is not None and submission.native is not None
        if not (jobs and is_submitted) or self._was_ever_troubled(command.name):
            return False
        ended_at = jobs[-1].ended_at
        return ended_at is not None and ended_at < command.began_at and self.world.now - ended_at < MIN_JOB_AGE_S

    def _was_ended_by_cancel(self, folder: Path, since: float) -> bool:
        """Return whether a `cancel`, which may have been killed then, has had a job ended, and no full disk kept it."""
        cancels = {one.name for one in self.clients.commands if one.name.startswith("cancel") and not one.full_at}
        asked = {at for at, who, program in self.calls if program == "scancel" and at > since and who in cancels}
        jobs = {str(job.id) for job in self.slurm.of_run(folder)}
        return any(
            (event.who, event.what) == ("slurm", "scancel") and event.detail in jobs and event.at in asked
            for event in self.world.history
        )

    def _is_being_resumed(self) -> bool:
        return any(one.name.startswith("resume") and not one.is_over for one in self.clients.commands)

    def _was_resumed_since(self, began: float) -> bool:
        return any(
            one.name.startswith("resume") and (not one.is_over or (one.ended_at or 0.0) >= began)
            for one in self.clients.commands
        )

    def _judge_start(self, command: Command) -> None:
        """See that a submission that succeeded has a job: its own, or that of an earlier try."""
        paths = RunPaths(Path(str(command.result)))
        recorded = submissions.read(paths)
        native = None if recorded is None else recorded.native
        job = None if native is None else self.slurm.jobs.get(int(str(native["job_id"])))
        is_of_run = job is not None and job.folder == paths.folder
        if (
            job is not None
            and is_of_run
            and (job.submitted_at >= command.began_at or job.state in ("PENDING", "RUNNING"))
        ):
            return
        if paths.folder.exists():
            self.world.violate("what is submitted has a job", f"{command.name}: {native and native['job_id']}")

    def resumes(self, folder: Path) -> None:
        """Note that a resume begins, after which the run may train again."""
        truth = self.truth(folder)
        truth.cancelled_at = truth.reported_cancelled_at = None
        truth.word, truth.stopped_at, truth.resumed_at = "", None, self.world.now

    def end(self) -> None:
        """Judge what needs the whole history."""
        for command, reported in self._reported:
            self._judge(command, reported)
        troubled = {who for _, who, _ in self.troubles}
        by_script: dict[str, list[float]] = {}
        for at, who, _ in self.calls:
            if who.startswith("script"):
                by_script.setdefault(who, []).append(at)
        for who, times in by_script.items():
            most = max(sum(1 for other in times if at <= other < at + 60.0) for at in times)
            if most > (MOST_CALLS_OF_A_TROUBLED_SCRIPT if who in troubled else MOST_CALLS_OF_A_SCRIPT):
                self.world.violate("polite to the controller", f"{who} calls it {most} times within a minute")

    def _judge(self, command: Command, reported: Snapshot) -> None:
        """Compare what a command reported with what was true from a while before it until a while after it."""
        if reported.is_stale or reported.elements:
            return
        began, ended = command.began_at - TOLD_WITHIN_S, (command.ended_at or command.began_at) + TOLD_WITHIN_S
        folder = Path(reported.folder)
        jobs = self.slurm.of_run(folder)
        truth = self.truth(folder)
        if reported.state == states.COMPLETED and (truth.completed_at is None or truth.completed_at > ended):
            self.world.violate("the reported state is true", f"{command.name} reported COMPLETED of {reported.id}")
        trained = [
            at
            for step in self.slurm.steps
            if step.paths.folder == folder and not self._is_out_of_reach(step)
            for at in self._training.get(step.name, ())
        ]
        before = [at for at in trained if began <= at < command.began_at]
        after = [at for at in trained if (command.ended_at or 0.0) < at <= ended]
        is_resumed = any(one.name.startswith("resume") and one.began_at <= ended for one in self.clients.commands)
        if reported.state in states.ENDED and before and after and not is_resumed:
            self.world.violate(
                "the reported state is true", f"{command.name} reported {reported.state}, and {reported.id} trains"
            )
        is_complete = (
            reported.state == states.COMPLETED and truth.completed_at is not None
        )  # whatever its job does then
        if reported.state in states.ENDED and not (is_complete or is_resumed) and self._is_at_work(jobs, began, ended):
            self.world.violate(
                "the reported state is true", f"{command.name} reported {reported.state}, and Slurm has its job"
            )
        alive = [job for job in jobs if job.ended_at is None or job.ended_at >= began]
        if (
            reported.state in states.ACTIVE
            and not alive
            and reported.submission is not None
            and reported.submission.native
        ):
            self.world.violate(
                "the reported state is true", f"{command.name} reported {reported.state}, and it has no job"
            )

    def _is_at_work(self, jobs: Iterable[Job], began: float, ended: float) -> bool:
        """Return whether one of the jobs waited to run or ran at each moment of a time, and none began then.

        What begins says so in its run directory a few seconds later.
        """
        if any(began <= job.started_at <= ended for job in jobs):
            return False
        reached = began
        for job in sorted(jobs, key=lambda one: one.submitted_at):
            first = None if job.after is None else self.slurm.jobs[job.after[1]].ended_at
            begins = job.submitted_at if job.after is None or first is None else max(job.submitted_at, first)
            is_waiting_for_another = job.after is not None and first is None
            if begins <= reached and not is_waiting_for_another and not job.can_never_start:
                reached = max(reached, float("inf") if job.ended_at is None else job.ended_at)
        return reached > ended


def read_text(file: Path) -> str:
    """Return a file's text; empty where it is missing."""
    return file.read_text() if file.is_file() else ""


def locks(runs_dir: Path, killed: set[int]) -> list[str]:
    """Return the locks in a folder of runs that none of the commands that were `killed` has left."""
    held = sorted(runs_dir.glob("*/.lock*"))
    return [f"{path.parent.name}/{path.name}" for path in held if (read_json(path) or {}).get("pid") not in killed]
