"""What has become of a run: files first, the back end second."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainjob.contract import attempts, failure, states
from trainjob.contract.errors import UserError
from trainjob.contract.failure import Failure, tail_of_attempt
from trainjob.contract.files import read_json, read_number, read_word
from trainjob.contract.paths import RunPaths
from trainjob.runs import arrays
from trainjob.submit import backends, mirror
from trainjob.submit.base import Answer, Liveness, Submission, read_submission

# There a run begins further attempts by itself.
REQUEUED_BY = frozenset(("slurm",))
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
    is_stale: bool = False  # nobody could be asked: this is what was last known
    tasks: list[Status] = field(default_factory=list)  # of an array

    def as_json(self) -> dict[str, Any]:
        """Return the status for `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class _Seen:
    """What the files of a run say at one moment."""

    paths: RunPaths
    submission: Submission | None
    word: str | None
    attempt: int

    @property
    def is_open(self) -> bool:
        return self.word is None or self.word in states.ACTIVE or self._waits_for_its_attempt

    @property
    def is_by_hand(self) -> bool:
        if self.submission is None:
            return True
        return self.attempt > self.submission.attempt and self.submission.backend not in REQUEUED_BY

    @property
    def waits_for_an_answer(self) -> bool:
        return self.is_open and not self.is_by_hand and self.submission is not None and bool(self.submission.native)

    @property
    def _waits_for_its_attempt(self) -> bool:
        return self.submission is not None and self.attempt < self.submission.attempt

    @property
    def state(self) -> str:
        if self.word is None or self._waits_for_its_attempt:
            return states.PENDING
        return self.word


def status(paths: RunPaths) -> Status:
    """Return the status of one run."""
    found = statuses([paths])[0]
    if found.tasks or found.state not in _UNEXPLAINED or found.failure is not None:
        return found
    with contextlib.suppress(UserError):
        mirror.refresh_output(paths)
    return replace(found, script_tail=tail_of_attempt(paths.scheduler_log))


def statuses(runs: Iterable[RunPaths]) -> list[Status]:
    """Return the status of each run, asking each machine and each back end at most once for all of them.

    An array's is that of its tasks together.
    """
    listed = [(paths, arrays.tasks(paths)) for paths in runs]
    found = iter(_statuses([one for paths, tasks in listed for one in tasks or [paths]]))
    return [_of_array(paths, [next(found) for _ in tasks]) if tasks else next(found) for paths, tasks in listed]


def _of_array(paths: RunPaths, tasks: list[Status]) -> Status:
    words = [task.state for task in tasks]
    stale = next((task for task in tasks if task.is_stale), None)
    unanswered = "" if stale is None else f"; {stale.note}"
    return replace(
        _status(_look(paths), None),
        state=arrays.overall(words),
        attempt=max(task.attempt for task in tasks),
        note=arrays.counted(words) + unanswered,
        script_tail=[],
        is_stale=stale is not None,
        tasks=tasks,
    )


def _statuses(runs: Sequence[RunPaths]) -> list[Status]:
    seen = [_look(paths) for paths in runs]
    stale = mirror.refresh(one.paths for one in seen if one.is_open)
    seen = [_look(one.paths) if one.is_open else one for one in seen]
    unsure = [one for one in seen if one.waits_for_an_answer and str(one.paths.folder) not in stale]
    answers = _ask(unsure)
    # They may have ended between the two looks: their files have the last word.
    mirror.refresh(one.paths for one in unsure if answers[one.paths.folder].liveness is Liveness.GONE)
    notes = {folder: Answer(Liveness.UNKNOWN, note=why) for folder, why in stale.items()}
    return [_status(one, answers.get(one.paths.folder) or notes.get(str(one.paths.folder))) for one in seen]


def _look(paths: RunPaths) -> _Seen:
    submission, attempt = read_submission(paths), attempts.current(paths)
    # The state last: a script removes it before it claims a new attempt, and writes the new one after.
    return _Seen(paths, submission, read_word(paths.state), attempt)


def _ask(unsure: Sequence[_Seen]) -> dict[object, Answer]:
    answers: dict[object, Answer] = {}
    for name in {one.submission.backend for one in unsure if one.submission}:
        mine = [one for one in unsure if one.submission and one.submission.backend == name]
        natives = [one.submission.native for one in mine if one.submission and one.submission.native]
        for one, answer in zip(mine, backends.get(name).ask(natives), strict=True):
            answers[one.paths.folder] = answer
    return answers


def _status(seen: _Seen, answer: Answer | None) -> Status:
    if answer is not None and answer.liveness is Liveness.GONE:
        seen = _look(seen.paths)
    state, note = _state(seen, answer)
    progress = _mapping(seen.paths.progress)
    failed = failure.read(seen.paths) if state not in states.ACTIVE else None
    return Status(
        id=seen.paths.id,
        folder=str(seen.paths.folder),
        state=state,
        name=_mapping(seen.paths.job).get("name", seen.paths.id),
        cluster=seen.submission.cluster if seen.submission else None,
        submitted_at=seen.submission.submitted_at if seen.submission else None,
        attempt=seen.attempt,
        exit_code=read_number(seen.paths.exit_code),
        epoch=progress.get("epoch"),
        update=progress.get("update"),
        total_updates=progress.get("total_updates"),
        heartbeat=progress.get("heartbeat"),
        failure=failed,
        script_tail=tail_of_attempt(seen.paths.scheduler_log) if failed is None and state in _UNEXPLAINED else [],
        note=note,
        is_stale=answer is not None and answer.liveness is Liveness.UNKNOWN,
    )


def _mapping(path: Any) -> dict[str, Any]:
    value = read_json(path)
    return value if isinstance(value, dict) else {}


def _state(seen: _Seen, answer: Answer | None) -> tuple[str, str | None]:
    if not seen.is_open:
        return seen.state, None
    if seen.submission is None or seen.is_by_hand:
        return seen.state, "started by hand, so nobody can say whether it still runs"
    if seen.submission.native is None:
        return states.LOST, "recorded, and the hand-over was cut: `trainjob resume` starts it"
    if answer is None:
        return seen.state, None
    if answer.liveness is Liveness.GONE:
        return _gone(seen, answer)
    # A job that ran and waits again was requeued by its scheduler, and its files have not heard of it.
    waits_again = answer.state == states.PENDING and seen.state == states.RUNNING
    return (states.PENDING if waits_again else seen.state), answer.note


def _gone(seen: _Seen, answer: Answer) -> tuple[str, str | None]:
    if answer.state is not None:
        return answer.state, answer.note
    if seen.submission and seen.submission.cancelled_at:
        return states.CANCELLED, "its processes were killed when it was cancelled"
    return states.LOST, answer.note or "its processes are gone without a word: killed, or the machine went down"


def poll(paths: RunPaths, until: Callable[[Status], bool], wait: Callable[[], None]) -> Status:
    """Return the first status that satisfies `until`, calling `wait` between two looks."""
    while True:
        now = status(paths)
        if until(now):
            return now
        wait()
