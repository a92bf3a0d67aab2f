"""What has become of a run: files first, the back end second."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainjob.backends import mirror, registry
from trainjob.backends.base import Answer, Liveness, read_submission
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe import arrays, settled
from trainjob.observe.outlook import Outlook, outlook
from trainjob.observe.seen import Seen, job_name, look, named, unless_damaged
from trainjob.records import causes, events, failure, typed
from trainjob.records.causes import Cause
from trainjob.records.failure import Failure, tail_of_attempt
from trainjob.records.files import load_number, read_number
from trainjob.records.measures import ProgressRecord

_HERE_S = 0.2
# A login node and a scheduler are shared with many.
_SHARED_S = 3.0
_CANCELLED_WAITING = "cancelled while it waited to run"
_CANCELLED_RUNNING = "its processes were killed when it was cancelled"
_LOST = "its processes are gone and recorded no end: they were killed, or the machine went down"
_DISK_FULL = "its disk was full, so it could not record its end"
# Slurm's reason, in the note of a job that it starts later.
_HELD_BACK = "(BeginTime)"
_UNEXPLAINED = frozenset((states.FAILED, states.LOST))


@dataclass(frozen=True)
class Status:
    """One run, as its files and its back end tell. `note` says what a reader could not guess."""

    id: str
    folder: str
    state: str
    name: str
    cluster: str | None
    submitted_at: str | None
    attempt: int
    exit_code: int | None
    epoch: int | None
    update: int | None
    total_updates: int | None
    heartbeat: float | None
    failure: Failure | None
    script_tail: list[str]  # the job script's last lines, where the run failed and no rank is to blame
    note: str | None
    is_stale: bool = False  # nobody could be asked: this is the last state that was seen
    scheduler: dict[str, str] = field(default_factory=dict)  # job_id, nodes, elapsed, time_limit, time_left
    cause: Cause | None = None  # why it failed, where that is known
    trouble: str | None = None  # what its disk refuses
    durable_update: int | None = None  # of the newest checkpoint on disk; 0: none yet
    passed_over: list[str] = field(default_factory=list)  # checkpoints that it did not resume from, and why
    checkpoints_not_written: int = 0  # by its newest attempt
    damage: list[str] = field(default_factory=list)  # what its records hold that can't be: FILE: FIELD is VALUE
    excluded_nodes: list[dict[str, str]] = field(default_factory=list)  # node, attempt, why: what later attempts avoid
    outlook: Outlook | None = None  # of a run at work: when it should end
    elements: list[Status] = field(default_factory=list)  # of an array

    def as_json(self) -> dict[str, Any]:
        """Return the status for `--json`, which calls the elements of an array `tasks`, as earlier versions do."""
        every = asdict(self)
        del every["elements"]
        return {**every, "tasks": [element.as_json() for element in self.elements]}

    @property
    def at_risk(self) -> str | None:
        """What the run's disk refuses, and how many updates would be lost if it ended now; None without trouble."""
        if self.trouble is None or self.update is None or self.durable_update is None:
            return self.trouble
        unsaved = f"{self.update - self.durable_update} updates since the last durable checkpoint"
        which = f"of update {self.durable_update}" if self.durable_update else "which does not exist yet"
        return f"{self.trouble} · {unsaved} ({which})"

    @property
    def checkpoint_lines(self) -> list[str]:
        """What went wrong with checkpoints: those that the attempt passed over, and how many it could not write."""
        count = self.checkpoints_not_written
        lost = f"{count} checkpoint{'s' if count > 1 else ''} NOT written by attempt {self.attempt}"
        return [*self.passed_over, *([lost] if count else [])]


def status(paths: RunPaths) -> Status:
    """Return the status of one run."""
    now = statuses([paths])[0]
    if now.elements or now.state not in _UNEXPLAINED or now.failure is not None:
        return now
    with contextlib.suppress(UserError):
        mirror.refresh_output(paths)
    cause = causes.of_run(paths, now.note)
    return replace(now, script_tail=tail_of_attempt(paths.scheduler_log), cause=cause)


def statuses(runs: Iterable[RunPaths]) -> list[Status]:
    """Return the status of each run, by at most one question to each machine and each back end.

    The status of an array sums up those of its elements.
    """
    listed = [(paths, arrays.elements(paths)) for paths in runs]
    each = iter(_statuses([one for paths, elements in listed for one in elements or [paths]]))
    return [_of_array(paths, [next(each) for _ in elements]) if elements else next(each) for paths, elements in listed]


def _of_array(paths: RunPaths, elements: list[Status]) -> Status:
    words = [element.state for element in elements]
    stale = next((element for element in elements if element.is_stale), None)
    unanswered = "" if stale is None else f"; {stale.note}"
    return replace(
        _status(look(paths), None),
        state=arrays.overall(words),
        attempt=max(element.attempt for element in elements),
        note=arrays.counted(words) + unanswered,
        script_tail=[],
        is_stale=stale is not None,
        elements=elements,
    )


def _statuses(runs: Sequence[RunPaths]) -> list[Status]:
    settled.adopt_unknown(runs)
    seen = [look(paths) for paths in runs]
    stale = mirror.refresh(one.paths for one in seen if one.is_open)
    seen = [look(one.paths) if one.is_open else one for one in seen]
    unsure = [one for one in seen if one.waits_for_an_answer and str(one.paths.folder) not in stale]
    answers = _ask(unsure)
    # They may have ended, or begun again, between the two looks: their files have the last word.
    mirror.refresh(one.paths for one in unsure if _has_changed(one, answers[one.paths.folder]))
    for one in unsure:
        answer = answers[one.paths.folder]
        if answer.liveness is Liveness.GONE and (answer.state is not None or not one.is_open):
            settled.keep(one.paths, one.newest_attempt, answer)
    notes = {folder: Answer(Liveness.UNKNOWN, note=why) for folder, why in stale.items()}
    return [_status(one, answers.get(one.paths.folder) or notes.get(str(one.paths.folder))) for one in seen]


def _has_changed(seen: Seen, answer: Answer) -> bool:
    return answer.liveness is (Liveness.GONE if seen.is_open else Liveness.ALIVE)


def _ask(unsure: Sequence[Seen]) -> dict[object, Answer]:
    answers: dict[object, Answer] = {}
    for name in {one.submission.backend for one in unsure if one.submission}:
        mine = [one for one in unsure if one.submission and one.submission.backend == name]
        natives = [one.submission.native for one in mine if one.submission and one.submission.native]
        for one, answer in zip(mine, registry.ask(name, natives), strict=True):
            answers[one.paths.folder] = answer
    return answers


def _status(seen: Seen, answer: Answer | None) -> Status:
    if answer is not None and _has_changed(seen, answer):
        seen = look(seen.paths)
    paths, damage = seen.paths, [*seen.damage]
    state, note = _state(seen, answer)
    progress = unless_damaged(lambda: typed.read(ProgressRecord, paths.progress), damage, None) or ProgressRecord()
    failed = unless_damaged(lambda: failure.load(paths), damage, None) if state not in states.ACTIVE else None
    cause = causes.of_run(paths, note) if state in _UNEXPLAINED else None
    if state == states.LOST and cause is not None and cause.code == "disk-full":
        state, note = states.FAILED, _DISK_FULL
    is_unanswered = answer is not None and answer.liveness is Liveness.UNKNOWN
    identified = registry.identify(seen.submission.backend, seen.submission.native) if seen.submission else {}
    scheduler = {**identified, **(answer.scheduler if answer is not None else {})}
    return Status(
        id=paths.id,
        folder=str(paths.folder),
        state=state,
        name=unless_damaged(lambda: named(paths.job, job_name), damage, None) or paths.id,
        cluster=seen.submission.cluster if seen.submission else None,
        submitted_at=seen.submission.submitted_at if seen.submission else None,
        attempt=seen.attempt,
        exit_code=unless_damaged(lambda: named(paths.exit_code, load_number), damage, None),
        epoch=progress.epoch,
        update=progress.update,
        total_updates=progress.total_updates,
        heartbeat=progress.heartbeat,
        failure=failed,
        script_tail=tail_of_attempt(paths.scheduler_log) if failed is None and state in _UNEXPLAINED else [],
        note=note,
        is_stale=is_unanswered and (state in states.ACTIVE or seen.may_be_held),
        scheduler=scheduler,
        outlook=outlook(paths, progress, scheduler) if state == states.RUNNING and not is_unanswered else None,
        cause=cause,
        trouble=progress.trouble,
        durable_update=progress.durable_update,
        passed_over=progress.passed_over,
        checkpoints_not_written=progress.checkpoints_not_written,
        damage=damage,
        excluded_nodes=events.excluded_nodes(seen.paths),
    )


def _state(seen: Seen, answer: Answer | None) -> tuple[str, str | None]:
    if not seen.is_open:
        return _ended(seen, answer)
    if seen.submission is None and seen.damage:
        return (states.LOST if seen.word is None else seen.state), "its records are damaged"
    if seen.submission is None or seen.is_by_hand:
        return seen.state, "it was started by hand, so trainjob can't tell whether it still runs"
    if seen.submission.native is None:
        return states.LOST, "its submission was interrupted: `trainjob resume` starts it"
    if answer is not None and answer.liveness is Liveness.GONE:
        return _gone(seen, answer)
    if seen.submission.is_cancelled and seen.has_waited and (answer is None or answer.liveness is Liveness.UNKNOWN):
        # Its back end has confirmed that already, and need not answer again.
        return states.CANCELLED, _CANCELLED_WAITING
    if answer is None:
        return seen.state, None
    if seen.state == states.RUNNING and read_number(seen.paths.step_gone) == seen.attempt:
        return seen.state, "all its ranks have ended and srun has not: its job script ends without it in a minute"
    # A job that ran and waits again was requeued by its scheduler, which its files do not show.
    waits_again = answer.state == states.PENDING and seen.state == states.RUNNING
    return (states.PENDING if waits_again else seen.state), answer.note


def _ended(seen: Seen, answer: Answer | None) -> tuple[str, str | None]:
    """Return the state of a run whose files say that it has ended."""
    if answer is None or answer.liveness is Liveness.GONE:
        return seen.state, None
    if answer.liveness is Liveness.UNKNOWN:
        return seen.state, f"whether its scheduler still holds its job is not known: {answer.note}"
    # One that has just ended still is at its nodes; one that waits will start again.
    if answer.state != states.PENDING:
        return seen.state, None
    return states.PENDING, f"its last attempt ended as {seen.state}, and its scheduler holds the job: {answer.note}"


def _gone(seen: Seen, answer: Answer) -> tuple[str, str | None]:
    if answer.state is None:
        answer = settled.answer(seen.paths, seen.newest_attempt) or answer
    if answer.state is not None:
        return answer.state, answer.note
    if seen.submission and seen.submission.cancelled_at:
        return states.CANCELLED, _CANCELLED_WAITING if seen.has_waited else _CANCELLED_RUNNING
    if seen.has_waited and seen.submission and registry.has_scheduler(seen.submission.backend):
        # A job that waits can end in no other way.
        return states.CANCELLED, "its job waited, and is no longer in the queue: it was cancelled there"
    return states.LOST, answer.note or _LOST


def between_looks_s(paths: RunPaths) -> float:
    """Return the seconds between two looks at a run that somebody waits for."""
    submission = read_submission(paths)
    if submission is None:
        return _HERE_S
    is_shared = submission.remote is not None or registry.has_scheduler(submission.backend)
    return _SHARED_S if is_shared else _HERE_S


def poll(paths: RunPaths, until: Callable[[Status], bool], wait: Callable[[], None]) -> Status:
    """Return the first status that satisfies `until`, calling `wait` between two looks.

    A run that Slurm holds back after a requeue starts as soon as it can: its own job script can't see to that, because
    Slurm decides when to start it again once the script is gone.
    """
    hastened: set[int] = set()
    while True:
        now = status(paths)
        if until(now):
            return now
        if now.state == states.REQUEUED and _HELD_BACK in (now.note or "") and now.attempt not in hastened:
            hastened.add(now.attempt)
            _start_soon(paths)
        wait()


def _start_soon(paths: RunPaths) -> None:
    submission = read_submission(paths)
    if submission is not None and submission.native is not None:
        # Where that is refused, the run starts after the two minutes.
        with contextlib.suppress(UserError):
            registry.get(submission.backend).start_soon(submission.native)
