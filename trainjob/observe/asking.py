"""Queries to back ends about runs, and their rate limit for commands that keep running."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from trainjob.backends import mirror, registry
from trainjob.backends.base import Answer, Liveness
from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe.seen import Seen
from trainjob.records import submission as submissions
from trainjob.records.submission import Submission

# Seconds between two looks where a login node or a scheduler is shared with many.
SHARED_S = 3.0
# Between two questions to a scheduler while nothing changes, at most; and while it does not answer, or is slow.
_LONGEST_S, _LONGEST_IN_TROUBLE_S = 30.0, 120.0
_SLOW_S = 5.0
# Random variation of the interval, so that commands that were started together don't keep asking together.
_JITTER = 0.2


def spread(every_s: float) -> float:
    """Return how long to wait between two looks that are to be `every_s` apart."""
    return every_s * random.uniform(1.0 - _JITTER, 1.0 + _JITTER)  # noqa: S311 - no secret


def _interrupted(runs: Iterable[Seen]) -> list[tuple[RunPaths, Submission]]:
    interrupted = [
        (run.paths, run.submission)
        for run in runs
        if run.submission is not None
        and run.submission.copy_of is None
        and run.submission.native is None
        and run.submission.backend in registry.BACK_ENDS
    ]
    # An element of an array was submitted with its run, unless it was resumed by itself.
    by_itself = [(paths, submission) for paths, submission in interrupted if paths.submission.is_file()]
    wholes = {str(paths.whole.folder): paths.whole for paths, _ in interrupted if not paths.submission.is_file()}
    recorded = [(paths, submissions.read(paths)) for paths in wholes.values()]
    return [*by_itself, *((paths, submission) for paths, submission in recorded if submission is not None)]


class StatusQueries:
    """Asks at every look."""

    def adopt_unknown(self, runs: Sequence[Seen]) -> dict[str, str]:
        """Look for the jobs of submissions with an unknown outcome, and record those that exist.

        Returns why that is not known of a run, by its folder.
        """
        unknown: dict[str, str] = {}
        for owner, submission in _interrupted(runs):
            try:
                registry.adopt(owner, submission)
            except UserError as error:
                unknown[str(owner.folder)] = (
                    f"its submission was interrupted, and whether it has a job can't be seen: {error}"
                )
        return unknown

    def answers(self, unsure: Sequence[Seen]) -> dict[Path, Answer]:
        """Return what is known about each run."""
        found: dict[Path, Answer] = {}
        for name in {one.submission.backend for one in unsure if one.submission}:
            mine = [one for one in unsure if one.submission and one.submission.backend == name]
            natives = [one.submission.native for one in mine if one.submission and one.submission.native]
            folders = [one.paths.folder for one in mine]
            found.update(zip(folders, registry.ask(name, natives), strict=True))
        return found

    def refresh(self, runs: Iterable[Seen]) -> dict[str, str]:
        """Fetch the files of runs on other machines; return why one can't be asked, by its folder."""
        return mirror.refresh((one.paths, one.submission) for one in runs if one.submission is not None)


class Known(StatusQueries):
    """Answers at once from files and earlier answers, without a query. What they leave open counts as not answered."""

    def adopt_unknown(self, runs: Sequence[Seen]) -> dict[str, str]:  # noqa: ARG002, D102 - see StatusQueries
        return {}

    def answers(self, unsure: Sequence[Seen]) -> dict[Path, Answer]:  # noqa: D102
        return {one.paths.folder: Answer(Liveness.UNKNOWN, note="not asked yet") for one in unsure}

    def refresh(self, runs: Iterable[Seen]) -> dict[str, str]:  # noqa: ARG002, D102
        return {}


class _Turns:
    """Which of many looks asks: one that finds something else, and then the 2nd, the 4th after that, and so on."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._about: object = None
        self._left, self._between = 0, 1
        self.is_troubled = False

    def has_come(self, about: object) -> bool:
        """Return whether this look, which is `about` the same as the last one or not, asks."""
        self._left -= 1
        if about == self._about and self._left > 0:
            return False
        longest_s = _LONGEST_IN_TROUBLE_S if self.is_troubled else _LONGEST_S
        most = max(1, round(longest_s / self._every_s))
        self._between = min(2 * self._between, most) if about == self._about else 1
        self._about, self._left = about, self._between
        return True


class Sparing(StatusQueries):
    """Asks schedulers when the files of runs have changed, and otherwise less and less often: of `every_s` looks.

    In between it answers as they did last. Other back ends are asked at every look.
    """

    def __init__(self, every_s: float = SHARED_S) -> None:
        self._turns, self._turns_to_adopt = _Turns(every_s), _Turns(every_s)
        self._answers: dict[Path, Answer] = {}
        self._unknown: dict[str, str] = {}

    def adopt_unknown(self, runs: Sequence[Seen]) -> dict[str, str]:  # noqa: D102
        interrupted = [owner for owner, _ in _interrupted(runs)]
        if not interrupted:
            return {}
        if self._turns_to_adopt.has_come([owner.folder for owner in interrupted]):
            began = clock.monotonic()
            self._unknown = super().adopt_unknown(runs)
            self._turns_to_adopt.is_troubled = bool(self._unknown) or clock.monotonic() - began > _SLOW_S
        return self._unknown

    def answers(self, unsure: Sequence[Seen]) -> dict[Path, Answer]:  # noqa: D102
        queued = [one for one in unsure if one.submission and registry.has_scheduler(one.submission.backend)]
        as_now = [(one.paths.folder, one.word, one.attempt, one.newest_attempt) for one in queued]
        if queued and self._turns.has_come(as_now):
            began = clock.monotonic()
            self._answers = super().answers(queued)
            is_unanswered = any(one.liveness is Liveness.UNKNOWN for one in self._answers.values())
            self._turns.is_troubled = is_unanswered or clock.monotonic() - began > _SLOW_S
        return {**super().answers([one for one in unsure if one not in queued]), **(self._answers if queued else {})}
