"""Goodput: the share of a run's allocated time that ended up in its final weights, and where the rest went."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from trainjob.contract import states
from trainjob.records.events import Attempt

LEAST_SHOWN_S = 0.005
_LEAST_WAIT_S = 2.0  # a submission is recorded in whole seconds, and itself takes one
# The parts of Goodput that add up, in words.
_PARTS = {
    "final_weights_s": "training in the final weights",
    "lost_updates_s": "updates lost",
    "start_up_s": "start-up",
    "checkpoints_s": "checkpoints",
    "evaluation_s": "evaluation",
    "ending_s": "ending",
    "unrecorded_s": "without recorded updates",
}


@dataclass(frozen=True)
class Goodput:
    """The parts of the wall-clock time of all attempts, in seconds. The seven parts add up to `allocated_s`.

    Waiting is no part of it: nothing was allocated.
    """

    share: float | None  # of allocated_s in the final weights; None: unknown how long updates took (a command)
    allocated_s: float
    final_weights_s: float
    lost_updates_s: float  # trained, then trained again by a later attempt, or in no checkpoint at the end
    checkpoints_s: float
    evaluation_s: float
    start_up_s: float  # from the beginning of a job script to the first update of its attempt
    ending_s: float  # after the last update: the last evaluation's barrier, processes that end, a checkpoint on request
    unrecorded_s: float  # of attempts that recorded no updates
    queue_s: float | None  # waiting for the scheduler; None: not known when it was submitted
    stopped_s: float  # between an attempt that was not continued automatically and the next one

    @property
    def parts(self) -> list[tuple[str, float]]:
        """The parts of the allocated time in words, with the seconds of each that took any."""
        named = ((words, getattr(self, name)) for name, words in _PARTS.items())
        return [(words, seconds) for words, seconds in named if seconds >= LEAST_SHOWN_S]

    @property
    def waits(self) -> list[tuple[str, float]]:
        """The time between attempts, in words, when nothing was allocated."""
        named = (("in the queue", self.queue_s or 0.0), ("stopped until it was resumed", self.stopped_s))
        return [(name, seconds) for name, seconds in named if seconds >= _LEAST_WAIT_S]


@dataclass(frozen=True)
class Trained:
    """The training that one attempt recorded: intervals by their last update, and their seconds without checkpoints."""

    attempt: int
    began_at: float
    first_update: int  # made before it
    updates: Sequence[int]
    seconds: Sequence[float]
    checkpoint_s: float


@dataclass(frozen=True)
class GoodputFacts:
    """The facts about time in the folder of a run."""

    attempts: Sequence[Attempt]
    trained: Sequence[Trained]
    evaluation_s: Mapping[int, float]  # by attempt
    end_s: float | None  # seconds of training of the attempt that completed the run, its last checkpoint included
    submitted_at: str | None
    resumed: tuple[int, str] | None  # the attempt that was resumed last, and when it was asked for
    heartbeat: float | None
    saved_update: int  # of the newest checkpoint; 0: none

    def end_of(self, attempt: Attempt) -> float:
        """Return when an attempt ended. If it recorded no end, return its last sign of life."""
        if attempt.ended_at is not None:
            return attempt.ended_at
        after = [one.began_at for one in self.attempts if one.number > attempt.number]
        return max(attempt.began_at, min([self.heartbeat or attempt.began_at, *after]))


def _parts_of(attempt: Attempt, trained: Trained, kept_until: float, facts: GoodputFacts) -> dict[str, float]:
    """Return the parts of one attempt; of its updates, those after `kept_until` are not in the final weights."""
    allocated = facts.end_of(attempt) - attempt.began_at
    start_up = min(allocated, max(0.0, trained.began_at - attempt.began_at))
    kept, lost = _kept_and_lost(trained, kept_until)
    evaluation = facts.evaluation_s.get(attempt.number, 0.0)
    checkpoints = trained.checkpoint_s
    if attempt.state == states.COMPLETED and facts.end_s is not None:
        # The last checkpoint is written after the last interval has been recorded.
        checkpoints += max(0.0, facts.end_s - kept - lost - checkpoints)
    rest = allocated - start_up - kept - lost - evaluation - checkpoints
    if rest < 0:  # the clock was set, or seconds were rounded: what the intervals measured counts
        start_up, rest = max(0.0, start_up + rest), 0.0
    has_saved_all = attempt.state == states.CANCELLED and not lost
    ending = 0.0
    if attempt.ended_at is None:  # at work
        kept += rest
    elif has_saved_all or attempt.state in (states.COMPLETED, states.STOPPED, states.REQUEUED):
        ending = rest
    else:
        lost += rest
    return dict(zip(_PARTS, (kept, lost, start_up, checkpoints, evaluation, ending), strict=False))


def goodput(facts: GoodputFacts, state: str | None) -> Goodput | None:
    """Return where the time went; None before the first attempt, and for a run whose job script noted no times."""
    if not facts.attempts:
        return None
    parts, trained = dict.fromkeys(_PARTS, 0.0), {one.attempt: one for one in facts.trained}
    starts = [one.first_update for one in facts.trained]
    # Until a run ends, it may still save every update. A completed run has saved them all.
    has_lost = state in states.ENDED and state != states.COMPLETED
    saved = facts.saved_update if has_lost else math.inf
    for attempt in facts.attempts:
        mine = trained.get(attempt.number)
        if mine is None:
            parts["unrecorded_s"] += facts.end_of(attempt) - attempt.began_at
            continue
        later = starts[facts.trained.index(mine) + 1 :]
        for name, seconds in _parts_of(attempt, mine, min([*later, saved]), facts).items():
            parts[name] += seconds
    allocated = sum(parts.values())
    queue, stopped = _between(facts)
    if not all(map(math.isfinite, (allocated, queue or 0.0, stopped))):
        return None
    # A short command's updates may all be seen at once, so that none of them took any time.
    is_timed = parts["final_weights_s"] + parts["lost_updates_s"] > 0
    share = parts["final_weights_s"] / allocated if allocated and is_timed else None
    return Goodput(share, allocated, **parts, queue_s=queue, stopped_s=stopped)


def _kept_and_lost(trained: Trained, kept_until: float) -> tuple[float, float]:
    """Return the seconds of the updates up to `kept_until`, and of those after it."""
    if kept_until == math.inf:
        return math.fsum(trained.seconds), 0.0
    kept = lost = 0.0
    stretches = pairwise([trained.first_update, *trained.updates])
    for (before, update), seconds in zip(stretches, trained.seconds, strict=True):
        share = min(1.0, max(0.0, (kept_until - before) / (update - before))) if update > before else 1.0
        kept, lost = kept + share * seconds, lost + (1 - share) * seconds
    return kept, lost


def _between(facts: GoodputFacts) -> tuple[float | None, float]:
    """Return the seconds in a queue, and the seconds before a further attempt was requested."""
    queue, stopped = 0.0, 0.0
    for before, after in pairwise(facts.attempts):
        gap = max(0.0, after.began_at - facts.end_of(before))
        # Only a scheduler names nodes, and it starts a job again whose node has failed.
        if before.state == states.REQUEUED or (before.state == states.LOST and after.nodes):
            queue += gap
            continue
        waited = 0.0
        if facts.resumed is not None and facts.resumed[0] == after.number:
            asked_at = datetime.fromisoformat(facts.resumed[1]).timestamp()
            waited = min(gap, max(0.0, after.began_at - asked_at))
        queue, stopped = queue + waited, stopped + gap - waited
    if facts.submitted_at is None:
        return queue or None, stopped
    first = facts.attempts[0].began_at - datetime.fromisoformat(facts.submitted_at).timestamp()
    return queue + max(0.0, first), stopped
