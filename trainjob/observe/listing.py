"""Selects the runs that `list` shows, from the index and submission.json, before any back end is asked."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

from trainjob.backends.base import Answer
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe import index
from trainjob.observe.asking import Known, StatusQueries
from trainjob.observe.seen import Seen
from trainjob.observe.status import Looked, Snapshot, statuses
from trainjob.records import submission as submissions
from trainjob.records.submission import Submission

_AGE = re.compile(r"([0-9]+)([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True)
class Choice:
    """The runs to list. None: no restriction; `name` may contain the wildcards * and ?."""

    state: str | None = None
    cluster: str | None = None
    name: str | None = None
    since: datetime | None = None
    limit: int | None = None


def listed(choice: Choice, asking: StatusQueries | None = None) -> list[Snapshot]:
    """Return the statuses of the chosen runs, the newest last; at most the newest `limit`."""
    runs, submitted = _chosen(choice)
    return _shown(choice, statuses(runs, asking, submitted))


def listed_at_once(
    choice: Choice, patience_s: float, foreign: list[UserError]
) -> Iterator[tuple[list[Snapshot], bool]]:
    """Yield the statuses of the chosen runs, and True; before, where answers take longer, what is known without asking.

    Of what is known alone, the second item is False. Why runs of others are not listed is added to `foreign`.
    """
    looked = Looked(*_chosen(choice, foreign))
    # No pool, which the interpreter would wait for at its end: a user who has seen enough may leave.
    answers: queue.Queue[list[tuple[Seen, Answer | None]] | Exception] = queue.Queue()

    def ask() -> None:
        try:
            answers.put(looked.asked(StatusQueries()))
        except Exception as error:  # noqa: BLE001 - raised where the answers are taken
            answers.put(error)

    threading.Thread(target=ask, name="asking", daemon=True).start()
    try:
        arrived = answers.get(timeout=patience_s)
    except queue.Empty:
        yield _shown(choice, looked.snapshots(looked.asked(Known()))), False
        arrived = answers.get()
    if isinstance(arrived, Exception):
        raise arrived
    yield _shown(choice, looked.snapshots(arrived)), True


def _chosen(choice: Choice, foreign: list[UserError] | None = None) -> tuple[list[RunPaths], dict[Path, Submission]]:
    """Return the chosen runs, the newest last, and how they were submitted, by run directory."""
    chosen = sorted(_submitted(choice, foreign), key=lambda pair: pair[1].submitted_at if pair[1] else "")
    if choice.limit is not None and choice.state is None:
        chosen = chosen[-choice.limit :] if choice.limit else []
    submitted = {paths.folder: submission for paths, submission in chosen if submission is not None}
    return [paths for paths, _ in chosen], submitted


def _shown(choice: Choice, every: Sequence[Snapshot]) -> list[Snapshot]:
    shown = [one for one in every if choice.state in (None, one.state)]
    return shown if choice.limit is None else shown[len(shown) - min(choice.limit, len(shown)) :]


def _submitted(choice: Choice, foreign: list[UserError] | None) -> Iterator[tuple[RunPaths, Submission | None]]:
    """Yield the chosen runs, apart from their state, each with its submission."""
    for paths in index.every_run(foreign):
        if choice.name is not None and not fnmatchcase(index.name_of(paths.id), choice.name):
            continue
        submission = submissions.read(paths)
        at = submission.submitted_at if submission else ""
        if choice.cluster is not None and (submission is None or submission.cluster != choice.cluster):
            continue
        if choice.since is None or (at and datetime.fromisoformat(at) >= choice.since):
            yield paths, submission


def time_of(text: str, now: datetime) -> datetime:
    """Return the time that `text` means: an age (90m, 12h, 2d, 1w) or a date, with or without a time of day.

    Raises UserError for any other text.
    """
    age = _AGE.fullmatch(text)
    try:
        if age is not None:
            return now - timedelta(**{_UNITS[age[2]]: int(age[1])})
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UserError(
            f"{text} is neither an age nor a date", "give an age (90m, 12h, 2d, 1w) or a date (2026-11-20)"
        ) from None
    return at.astimezone(UTC)
