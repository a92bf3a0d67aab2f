"""The files of a run at one moment, and what they mean together with the answer of its back end.

Damage is noted, and never ends a command that shows many runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from trainjob.backends import registry
from trainjob.backends.base import Answer, Liveness
from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.records import attempts, events, progress
from trainjob.records import job as jobs
from trainjob.records import submission as submissions
from trainjob.records.events import Event
from trainjob.records.files import DamagedError, see_anew
from trainjob.records.progress import ProgressRecord
from trainjob.records.submission import Settled, Submission

Value = TypeVar("Value")

_CANCELLED_WAITING = "cancelled while it waited to run"
CANCELLED_RUNNING = "its processes were killed when it was cancelled"
_KILLED = "its job was told to end, and was killed before it could record its end"
_LOST = "its processes are gone and recorded no end: they were killed, or the machine went down"


@dataclass(frozen=True)
class Seen:
    """Submission, state and attempt of a run, and what else its files say once that is asked for.

    `damage` has a line about each of them that can't be used.
    """

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
        """Whether something other than trainjob has started the newest attempt."""
        if self.submission is None:
            return True
        return self.attempt > self.submission.attempt and not registry.has_scheduler(self.submission.backend)

    @property
    def changes_when_asked(self) -> bool:
        """Whether its job may have been found, or its files fetched, since they were read."""
        if self.submission is None:
            return False
        return self.submission.native is None or (self.submission.remote is not None and self.is_open)

    @property
    def waits_for_an_answer(self) -> bool:
        """Whether only its back end knows how it stands."""
        if self.is_by_hand or self.submission is None or not self.submission.native:
            return False
        # Unless its back end has reported how its newest attempt ended, which its files do not show.
        return (self.is_open and (self.settled is None or self.settled.state is None)) or self.may_be_held

    @property
    def may_be_held(self) -> bool:
        """Whether its scheduler may start it again, although its files say that it has ended."""
        if self.submission is None or self.word not in states.RESUMABLE or not self.submission.native:
            return False
        is_kept = registry.has_scheduler(self.submission.backend) and not self.submission.is_cancelled
        return is_kept and self.settled is None

    @property
    def newest_attempt(self) -> int:
        """The attempt that runs, or was submitted last."""
        return max(self.attempt, self.submission.attempt if self.submission else 0)

    @cached_property
    def settled(self) -> Settled | None:
        """The last answer of its back end about its newest attempt, if that is written down."""
        return submissions.settled(self.paths, self.newest_attempt, self._resumed_at)

    @cached_property
    def noted(self) -> list[Event]:
        """What its job scripts have noted."""
        return events.read(self.paths)

    @cached_property
    def progress(self) -> ProgressRecord:
        """How far it is; an empty record where that is unknown."""
        return unless_damaged(lambda: progress.load(self.paths), self.damage, None) or ProgressRecord()

    @cached_property
    def name(self) -> str:
        """Its job's name."""
        return unless_damaged(lambda: jobs.load_name(self.paths.job), self.damage, None) or self.paths.id

    @cached_property
    def exit_code(self) -> int | None:
        """The exit code that its job script wrote; None before its end."""
        return unless_damaged(lambda: attempts.load_exit_code(self.paths), self.damage, None)

    def settle(self, state: str | None, note: str | None) -> None:
        """Write down how its newest attempt has ended, as its back end says."""
        submissions.settle(self.paths, Settled(self.newest_attempt, state, note, self._resumed_at))

    def settle_if_gone(self, answer: Answer) -> None:
        """Write down how its newest attempt has ended, if the answer of its back end tells: nobody need ask again."""
        if answer.liveness is not Liveness.GONE:
            return
        if answer.state is not None or not self.is_open:
            self.settle(answer.state, answer.note)
        elif self.submission is not None and self.submission.is_cancelled and self.has_waited:
            self.settle(states.CANCELLED, _CANCELLED_WAITING)

    @property
    def _resumed_at(self) -> str | None:
        return self.submission.resumed_at if self.submission else None

    @property
    def _waits_for_its_attempt(self) -> bool:
        """Whether a newer attempt was submitted. Where that has no job, the older one may have completed the run."""
        if self.submission is None or self.attempt >= self.submission.attempt:
            return False
        return self.submission.native is not None or self.word != states.COMPLETED

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

    def is_outdated_by(self, answer: Answer) -> bool:
        """Return whether the answer contradicts the files: the run may have ended, or begun again, since."""
        return answer.liveness is (Liveness.GONE if self.is_open else Liveness.ALIVE)

    def state_with(self, answer: Answer | None) -> tuple[str, str | None]:
        """Return the state, and a note of what a reader could not guess, given the answer of its back end, if any."""
        if not self.is_open:
            return self._ended(answer)
        if not self.paths.whole.folder.is_dir():
            return states.LOST, f"its run directory {self.paths.whole.folder} is gone"
        if self.submission is None and self.damage:
            return (states.LOST if self.word is None else self.state), "its records are damaged"
        if self.submission is not None and self.submission.copy_of is not None:
            return states.LOST, f"this is a copy of {self.submission.copy_of}: what runs belongs to the original"
        if self.submission is None or self.is_by_hand:
            return self.state, "it was started by hand, so trainjob can't tell whether it still runs"
        unanswered = answer if answer is not None and answer.liveness is Liveness.UNKNOWN else None
        if self.submission.native is None and unanswered is not None:
            return self.state, unanswered.note
        if self.submission.native is None and self.submission.cancelled_at:
            return states.CANCELLED, _CANCELLED_WAITING
        if self.submission.native is None:
            return states.LOST, "its submission was interrupted: `trainjob resume` starts it"
        if answer is not None and answer.liveness is Liveness.GONE:
            return self._gone(answer)
        settled = self.settled if unanswered or answer is None else None
        if settled is not None and settled.state is not None:
            return settled.state, settled.note
        if self.submission.is_cancelled and self.has_waited and (answer is None or unanswered):
            # Its back end has confirmed that already, and need not answer again.
            return states.CANCELLED, _CANCELLED_WAITING
        if answer is None:
            return self.state, None
        if self.state == states.RUNNING and attempts.has_lost_step(self.paths, self.attempt):
            note = "all ranks have ended but srun is still running; the job script stops waiting within a minute"
            return self.state, note
        # A job that ran and waits again was requeued by its scheduler, which its files do not show.
        waits_again = answer.state == states.PENDING and self.state == states.RUNNING
        return (states.PENDING if waits_again else self.state), answer.note

    def _ended(self, answer: Answer | None) -> tuple[str, str | None]:
        """Return the state of a run whose files say that it has ended."""
        if answer is None or answer.liveness is Liveness.GONE:
            return self.state, None
        if answer.liveness is Liveness.UNKNOWN:
            return self.state, f"whether its scheduler still holds its job is not known: {answer.note}"
        before = f"its last attempt ended as {self.state}, and its scheduler"
        if answer.state == states.PENDING:
            return states.PENDING, f"{before} holds the job: {answer.note}"
        # One that has just ended still is at its nodes. One that was started since has not said so yet.
        if answer.started_at is not None and answer.started_at > attempts.ended_at(self.paths):
            return states.PENDING, f"{before} has started the job again"
        return self.state, None

    def _gone(self, answer: Answer) -> tuple[str, str | None]:
        """Return the state of a run that is open by its files, and whose back end has nothing of it."""
        settled = None if answer.state is not None else self.settled
        state, note = (answer.state, answer.note) if settled is None else (settled.state, settled.note)
        if state is not None:
            return state, note
        if self.submission and self.submission.cancelled_at:
            return states.CANCELLED, _CANCELLED_WAITING if self.has_waited else CANCELLED_RUNNING
        if events.was_signalled(self.noted, self.newest_attempt):
            return states.CANCELLED, _KILLED
        if self.has_waited and self.submission and registry.has_scheduler(self.submission.backend):
            # A job that waits can end in no other way.
            return states.CANCELLED, "its job waited, and is no longer in the queue: it was cancelled there"
        return states.LOST, note or _LOST


def look(paths: RunPaths, whole: Submission | None = None) -> Seen:
    """Return what the files of a run say now.

    `whole` is how it was submitted, or the array to which it belongs, from a caller that has read that.
    """
    see_anew(paths.folder)
    damage: list[str] = []
    is_known = whole is not None and paths.element is None
    submission = whole if is_known else unless_damaged(lambda: submissions.load(paths, whole), damage, None)
    # Without a number of its own, a run counts as in the attempt that was submitted last.
    attempt = unless_damaged(lambda: attempts.load_current(paths), damage, submission and submission.attempt)
    # The state last: a script removes it before it claims a new attempt, and writes the new one after.
    word = unless_damaged(lambda: attempts.load_state(paths), damage, None)
    return Seen(paths, submission, word, attempt or 0, damage)


def unless_damaged(read: Callable[[], Value], damage: list[str], otherwise: Value) -> Value:
    """Return what `read` does; `otherwise`, with a line added to `damage`, where the file is damaged."""
    try:
        return read()
    except DamagedError as error:
        damage.append(str(error))
        return otherwise
