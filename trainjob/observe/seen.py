"""What the files of a run say at one moment. Damage is noted, and never ends a command that shows many runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from trainjob.backends import registry
from trainjob.backends.base import Submission, load_submission
from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.observe import settled
from trainjob.records.files import DamagedError, load_json, load_number, load_word

Value = TypeVar("Value")


@dataclass(frozen=True)
class Seen:
    """Submission, state and attempt of a run; `damage` has a line about each of them that can't be used."""

    paths: RunPaths
    submission: Submission | None
    word: str | None
    attempt: int
    damage: list[str] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether its files do not say that it has ended."""
        return self.word is None or self.word in states.ACTIVE or self._waits_for_its_attempt

    @property
    def is_by_hand(self) -> bool:
        """Whether somebody else than trainjob has started the newest attempt."""
        if self.submission is None:
            return True
        return self.attempt > self.submission.attempt and not registry.has_scheduler(self.submission.backend)

    @property
    def waits_for_an_answer(self) -> bool:
        """Whether only its back end knows how it stands."""
        if self.is_by_hand or self.submission is None or not self.submission.native:
            return False
        return self.is_open or self.may_be_held

    @property
    def may_be_held(self) -> bool:
        """Whether its scheduler may start it again, although its files say that it has ended."""
        if self.submission is None or self.word not in states.RESUMABLE or not self.submission.native:
            return False
        is_kept = registry.has_scheduler(self.submission.backend) and not self.submission.is_cancelled
        return is_kept and settled.answer(self.paths, self.newest_attempt) is None

    @property
    def newest_attempt(self) -> int:
        """The attempt that runs, or was submitted last."""
        return max(self.attempt, self.submission.attempt if self.submission else 0)

    @property
    def _waits_for_its_attempt(self) -> bool:
        return self.submission is not None and self.attempt < self.submission.attempt

    @property
    def has_waited(self) -> bool:
        """Whether nothing of it ran when it was last seen: it was queued, or was to be requeued."""
        return self.state in (states.PENDING, states.REQUEUED)

    @property
    def state(self) -> str:
        """The state by the files alone."""
        if self.word is None or self._waits_for_its_attempt:
            return states.PENDING
        return self.word


def look(paths: RunPaths) -> Seen:
    """Return what the files of a run say now."""
    damage: list[str] = []
    submission = unless_damaged(lambda: load_submission(paths), damage, None)
    # Without a number of its own, a run counts as in the attempt that was submitted last.
    attempt = unless_damaged(lambda: named(paths.attempt, load_number), damage, submission and submission.attempt)
    # The state last: a script removes it before it claims a new attempt, and writes the new one after.
    word = unless_damaged(lambda: named(paths.state, _state_word), damage, None)
    return Seen(paths, submission, word, attempt or 0, damage)


def unless_damaged(read: Callable[[], Value], damage: list[str], otherwise: Value) -> Value:
    """Return what `read` does; `otherwise`, with a line added to `damage`, where the file is damaged."""
    try:
        return read()
    except DamagedError as error:
        damage.append(str(error))
        return otherwise


def named(path: Path, read: Callable[[Path], Value]) -> Value:
    """Return what `read` does. Raises DamagedError, which names the file."""
    try:
        return read(path)
    except DamagedError as error:
        raise DamagedError(f"{path.name}: {error}") from None


def _state_word(path: Path) -> str | None:
    word = load_word(path)
    if word is not None and word not in states.ALL:
        raise DamagedError(f"holds {word[:40]!r}, expected one of {', '.join(states.ALL)}")
    return word


def job_name(path: Path) -> str | None:
    """Return the name of the job in job.json; None where there is no file. Raises DamagedError."""
    try:
        content = load_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    name = content.get("name") if isinstance(content, dict) else content
    if not isinstance(name, str):
        raise DamagedError(f"name is {name!r:.60}, expected text")
    return name
