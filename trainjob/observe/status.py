"""The state of runs: files first, the back end second."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from trainjob.backends import mirror, registry
from trainjob.backends.base import Answer, Liveness
from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe import arrays
from trainjob.observe.asking import SHARED_S, Sparing, StatusQueries, spread
from trainjob.observe.outlook import Outlook, outlook
from trainjob.observe.seen import Seen, look, unless_damaged
from trainjob.records import causes, events, failure, outlived
from trainjob.records import roles as role_records
from trainjob.records import submission as submissions
from trainjob.records.causes import Cause
from trainjob.records.failure import Failure, tail_of_attempt
from trainjob.records.roles import RoleRecord
from trainjob.records.submission import Submission

_HERE_S = 0.2
_DISK_FULL = "its disk was full, so it could not record its end"
# Slurm's reason, in the note of a job that it starts later.
_HELD_BACK = "(BeginTime)"
_UNEXPLAINED = frozenset((states.FAILED, states.LOST))


@dataclass(frozen=True)
class Snapshot:
    """One run at one moment, as its files and its back end tell. `note` says what a reader could not guess.

    A command takes it once and passes it on.
    """

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
    is_stale: bool = False  # the back end could not be asked: this is the last known state
    is_held: bool = False  # by its files it has ended, and its scheduler still has its job, which may start again
    scheduler: dict[str, str] = field(default_factory=dict)  # job_id, nodes, elapsed, time_limit, time_left
    cause: Cause | None = None  # why it failed, where that is known
    trouble: str | None = None  # what its disk refuses
    durable_update: int | None = None  # of the newest checkpoint on disk; 0: none yet
    passed_over: list[str] = field(default_factory=list)  # checkpoints that it did not resume from, and why
    checkpoints_not_written: int = 0  # by its newest attempt
    sources: dict[str, str] = field(
        default_factory=dict
    )  # of a command's progress and figures: what each was read from
    printed: list[str] = field(default_factory=list)  # by a command: the newest lines that name figures, as they are
    damage: list[str] = field(default_factory=list)  # what its records hold that can't be: FILE: FIELD is VALUE
    excluded_nodes: list[dict[str, str]] = field(default_factory=list)  # node, attempt, why: what later attempts avoid
    retries: list[dict[str, str]] = field(default_factory=list)  # after attempt, what, option: what was asked more of
    outlook: Outlook | None = None  # of a run at work: its pace, and when it should end
    elements: list[Snapshot] = field(default_factory=list)  # of an array
    roles: dict[str, RoleRecord] = field(default_factory=dict)  # the servers of a job with roles
    submission: Submission | None = (
        None  # how its newest attempt was submitted; None: by hand, or its record is damaged
    )

    @property
    def paths(self) -> RunPaths:
        """The run directory."""
        return RunPaths(self.folder)

    @property
    def parts(self) -> list[Snapshot]:
        """The elements of an array; of any other run, itself."""
        return self.elements or [self]

    def as_json(self) -> dict[str, object]:
        """Return the status for `--json`, which calls the elements of an array `tasks`, as earlier versions do."""
        every = asdict(replace(self, elements=[], submission=None))
        del every["elements"], every["submission"], every["is_held"]
        return {**every, "tasks": [element.as_json() for element in self.elements]}

    @property
    def progress(self) -> str | None:
        """Its progress: its epoch, if known, and its update; None before either is known."""
        epoch = [] if self.epoch is None else [f"epoch {self.epoch}"]
        of = f" of {self.total_updates}" if self.total_updates else ""
        update = [] if self.update is None else [f"update {self.update}{of}"]
        return ", ".join(epoch + update) or None

    @property
    def at_risk(self) -> str | None:
        """The write that the disk refuses, and how many updates an end now would lose; None without trouble."""
        if self.trouble is None or self.update is None or self.durable_update is None:
            return self.trouble
        unsaved = f"{self.update - self.durable_update} updates since the last durable checkpoint"
        which = f"of update {self.durable_update}" if self.durable_update else "which does not exist yet"
        return f"{self.trouble} · {unsaved} ({which})"

    @property
    def checkpoint_lines(self) -> list[str]:
        """Lines about checkpoints: those that the attempt passed over, and how many it could not write."""
        count = self.checkpoints_not_written
        lost = f"{count} checkpoint{'s' if count > 1 else ''} NOT written by attempt {self.attempt}"
        return [*self.passed_over, *([lost] if count else [])]


def status(paths: RunPaths, asking: StatusQueries | None = None) -> Snapshot:
    """Return a look at one run."""
    now = statuses([paths], asking)[0]
    if now.elements or now.state not in _UNEXPLAINED or now.failure is not None:
        return now
    with contextlib.suppress(UserError):
        mirror.refresh_output(paths, now.submission)
    tail = tail_of_attempt(paths.scheduler_log)
    return replace(now, script_tail=tail, cause=causes.of_run(paths, now.note, tail))


def statuses(
    runs: Iterable[RunPaths],
    asking: StatusQueries | None = None,
    submitted: Mapping[Path, Submission] | None = None,
) -> list[Snapshot]:
    """Return a look at each run, by at most one question to each machine and each back end.

    That of an array sums up those of its elements. Who looks again and again gives the same `asking` each time; who has
    read how runs were `submitted` gives that by run directory.
    """
    looked = Looked(runs, submitted)
    return looked.snapshots(looked.asked(asking or StatusQueries()))


class Looked:
    """A look at the files of runs, before any back end is asked about them."""

    def __init__(self, runs: Iterable[RunPaths], submitted: Mapping[Path, Submission] | None = None) -> None:
        self._runs = [(paths, paths.elements()) for paths in runs]
        self._seen: list[Seen] = []
        for paths, elements in self._runs:
            whole = (submitted or {}).get(paths.folder) or (submissions.read(paths) if elements else None)
            self._seen += [look(one, whole) for one in elements or [paths]]

    def asked(self, asking: StatusQueries) -> list[tuple[Seen, Answer | None]]:
        """Return what was seen of each run, and of each element of an array, with the answer about it."""
        unadopted = asking.adopt_unknown(self._seen)
        stale = asking.refresh(one for one in self._seen if one.is_open)
        seen = [look(one.paths) if one.changes_when_asked else one for one in self._seen]
        unsure = [one for one in seen if one.waits_for_an_answer and str(one.paths.folder) not in stale]
        answers = asking.answers(unsure)
        # They may have ended, or begun again, between the two looks: their files have the last word.
        asking.refresh(one for one in unsure if one.is_outdated_by(answers[one.paths.folder]))
        for one in unsure:
            one.settle_if_gone(answers[one.paths.folder])
        notes = {folder: Answer(Liveness.UNKNOWN, note=why) for folder, why in {**unadopted, **stale}.items()}
        return [(one, answers.get(one.paths.folder) or notes.get(str(one.paths.folder))) for one in seen]

    def snapshots(self, asked: Iterable[tuple[Seen, Answer | None]]) -> list[Snapshot]:
        """Return what the runs are, given what was `asked` about them."""
        each = (_snapshot(one, answer) for one, answer in asked)
        return [
            _of_array(paths, [next(each) for _ in elements]) if elements else next(each)
            for paths, elements in self._runs
        ]


def _of_array(paths: RunPaths, elements: list[Snapshot]) -> Snapshot:
    words = [element.state for element in elements]
    stale = next((element for element in elements if element.is_stale), None)
    unanswered = "" if stale is None else f"; {stale.note}"
    return replace(
        _snapshot(look(paths), None),
        state=arrays.overall(words),
        attempt=max(element.attempt for element in elements),
        note=arrays.counted(words) + unanswered,
        script_tail=[],
        is_stale=stale is not None,
        is_held=any(element.is_held for element in elements),
        elements=elements,
    )


def _snapshot(seen: Seen, answer: Answer | None) -> Snapshot:
    if answer is not None and seen.is_outdated_by(answer):
        seen = look(seen.paths)
    paths, submission, progress, noted = seen.paths, seen.submission, seen.progress, seen.noted
    damage = seen.damage
    state, note = seen.state_with(answer)
    failed = unless_damaged(lambda: failure.load(paths), damage, None) if state not in states.ACTIVE else None
    tail = tail_of_attempt(paths.scheduler_log) if state in _UNEXPLAINED else []
    cause = causes.of_run(paths, note, tail) if state in _UNEXPLAINED else None
    if state == states.LOST and cause is not None and cause.code == "disk-full":
        state, note = states.FAILED, _DISK_FULL
    is_unanswered = answer is not None and answer.liveness is Liveness.UNKNOWN
    identified = registry.identify(submission.backend, submission.native) if submission else {}
    if state == states.COMPLETED and note is None:
        ended = outlived.read(paths, seen.attempt)
        note = None if ended is None else str(ended)
    if state == seen.word:
        # How its newest attempt ended, as its script has noted it, beside what its scheduler says of it now.
        says_idle = state in (*states.ACTIVE, states.COMPLETED)  # what ends otherwise has been warned in vain
        idle = events.idle(noted, seen.attempt) if says_idle else ""
        note = "; ".join(filter(None, (note, events.why_ended(noted, seen.attempt), idle))) or None
    if submission is not None and submission.continued_as is not None:
        note = f"went on as run {submission.continued_as}"
    scheduler = {**identified, **(answer.scheduler if answer is not None else {})}
    return Snapshot(
        id=paths.id,
        folder=str(paths.folder),
        state=state,
        name=seen.name,
        cluster=submission.cluster if submission else None,
        submitted_at=submission.submitted_at if submission else None,
        attempt=seen.attempt,
        exit_code=seen.exit_code,
        epoch=progress.epoch,
        update=progress.update,
        total_updates=progress.total_updates,
        heartbeat=progress.heartbeat,
        failure=failed,
        script_tail=tail if failed is None else [],
        note=note,
        is_stale=is_unanswered and (state in states.ACTIVE or seen.may_be_held),
        is_held=answer is not None and answer.liveness is Liveness.ALIVE and not seen.is_open,
        scheduler=scheduler,
        outlook=outlook(progress, scheduler) if state == states.RUNNING and not is_unanswered else None,
        cause=cause,
        trouble=progress.trouble,
        durable_update=progress.durable_update,
        passed_over=progress.passed_over,
        checkpoints_not_written=progress.checkpoints_not_written,
        sources=progress.sources,
        printed=progress.printed,
        damage=damage,
        excluded_nodes=events.excluded_nodes(paths),
        retries=events.retries(noted),
        roles=_roles(paths, seen.attempt if state in states.ACTIVE else None),
        submission=submission,
    )


def _roles(paths: RunPaths, at_work: int | None) -> dict[str, RoleRecord]:
    """Return the servers of a job with roles. None outlives its attempt, though nobody may have recorded its end.

    `at_work` is the attempt that runs, if any does.
    """
    read = {server.folder.name: role_records.read(server) for server in role_records.of_run(paths)}
    running = (role_records.STARTING, role_records.READY)
    return {
        name: replace(one, state=role_records.ENDED) if one.state in running and one.attempt != at_work else one
        for name, one in read.items()
        if one is not None
    }


def between_looks_s(submission: Submission | None) -> float:
    """Return the seconds between two looks at a run that was submitted so, while a command waits for it."""
    if submission is None:
        return _HERE_S
    is_shared = submission.remote is not None or registry.has_scheduler(submission.backend)
    return spread(SHARED_S) if is_shared else _HERE_S


def poll(
    paths: RunPaths,
    until: Callable[[Snapshot], bool],
    wait: Callable[[float], None] | None = None,
) -> Snapshot:
    """Return the first status that satisfies `until`. `wait` is given the seconds that are to pass between two looks.

    A scheduler is asked less and less often while the files of the run do not change.
    A run that Slurm holds back after a requeue starts as soon as it can: its own job script can't see to that, because
    Slurm decides when to start it again once the script is gone.
    """
    hastened: set[int] = set()
    asking = Sparing()
    while True:
        now = status(paths, asking)
        if until(now):
            return now
        if now.state == states.REQUEUED and _HELD_BACK in (now.note or "") and now.attempt not in hastened:
            hastened.add(now.attempt)
            if now.submission is not None and now.submission.native is not None:
                # Where that is refused, the run starts after the two minutes.
                with contextlib.suppress(UserError):
                    registry.get(now.submission.backend).start_soon(now.submission.native)
        (wait or clock.sleep)(between_looks_s(now.submission))
