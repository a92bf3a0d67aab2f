"""The phases of each start and their seconds, from the submission to the end of the first update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainjob.contract import states
from trainjob.records import events
from trainjob.records.events import Event
from trainjob.records.metrics import MetricsLine
from trainjob.records.submission import Submission

# In the order in which they are shown, under the names that lines of metrics.jsonl have.
_PARTS = (
    "queue",
    "environment",
    "image",
    "imports",
    "rendezvous",
    "script",
    "data",
    "model",
    "evaluation",
    "compile",
    "first update",
)


@dataclass(frozen=True)
class StartupFigures:
    """One attempt's start, in seconds, whose parts add up to `whole_s`.

    It begins when the attempt was submitted or requeued, and ends with the first update that was seen.
    """

    attempt: int
    whole_s: float
    parts: Mapping[str, float]


def startups(
    noted: Sequence[Event], lines: Sequence[MetricsLine], submission: Submission | None, has_image: bool
) -> list[StartupFigures]:
    """Return the start of each attempt that made an update; `lines` are those of its ranks' start-ups."""
    begun = {attempt.number: attempt for attempt in events.attempts(list(noted))}
    made = []
    for line in {line.attempt: line for line in lines}.values():
        attempt, before = begun.get(line.attempt), begun.get(line.attempt - 1)
        if attempt is None:
            continue
        asked_at = attempt.began_at
        if submission is not None and submission.attempt == attempt.number:
            asked_at = datetime.fromisoformat(submission.asked_at).timestamp()
        elif before is not None and before.state == states.REQUEUED and before.ended_at is not None:
            asked_at = before.ended_at
        marks = {event.what: event.at for event in noted if event.attempt == attempt.number}
        began = line.time - sum(line.phases.values())  # of the launcher
        launched = marks.get(events.LAUNCH, began)
        compiled = marks.get(events.COMPILED, launched)
        parts = {"queue": attempt.began_at - asked_at, "environment": launched - attempt.began_at}
        parts["compile"] = compiled - launched
        entered = "image" if has_image else "environment"
        parts[entered] = parts.get(entered, 0.0) + began - compiled
        # Nothing is known about the rest of a script whose loader was not seen.
        rest = "script" if "first update" in line.phases else "script until its first update"
        names = {"launcher": "environment", "script": rest}
        for name, taken_s in line.phases.items():
            shown = names.get(name, name)
            parts[shown] = parts.get(shown, 0.0) + taken_s
        # Clocks of two hosts differ a little.
        kept = {name: round(parts[name], 3) for name in sorted(parts, key=_order) if parts[name] > 0}
        made.append(StartupFigures(attempt.number, round(line.time - min(asked_at, attempt.began_at), 3), kept))
    return made


def parts_of(made: Sequence[StartupFigures]) -> list[str]:
    """Return the names of all parts that any of them has, in order."""
    return sorted({name for one in made for name in one.parts}, key=_order)


def _order(name: str) -> int:
    return _PARTS.index(name) if name in _PARTS else len(_PARTS)
