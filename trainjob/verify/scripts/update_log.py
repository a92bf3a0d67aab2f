"""The updates of a script of the user's own, as the hook in its ranks recorded them: by rank, attempt and update."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainjob.contract.paths import RunPaths
from trainjob.records import updates
from trainjob.records.updates import UpdatePaths

_LISTS = ("batches", "losses", "rates")


@dataclass(frozen=True)
class LoadedBatch:
    """One batch that a loader delivered. `place`: its number in its pass; both numbers count within the attempt."""

    loader_pass: int
    place: int
    samples: tuple[str, ...]  # digests


@dataclass(frozen=True)
class ScriptUpdate:
    """One step of an optimizer. Digests are of what the step found, and `weights` and `state` of what it left."""

    batches: tuple[LoadedBatch, ...]
    losses: tuple[float, ...]
    rates: tuple[float, ...]
    scale: float | None
    gradients: str
    norm: float
    weights_before: str
    state_before: str  # "": the optimizer had no state
    random_before: str  # digests of several generators, with dots between them; "": one that this run never draws from
    weights: str
    state: str
    sharded: bool = False  # other ranks have other parts of the weights
    divided: bool = True  # a loss, or the sum of several losses' gradients
    with_gradient: int = 1  # weights of the optimizer
    kept: bool = False  # gradients of the update before were still there
    rounded: str = ""  # of an attempt's first update: the shorter type whose values all weights have
    evaluating: bool = False  # a model with dropout or batch norm, in evaluation mode

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> ScriptUpdate:
        """Return the update of a recorded line."""
        batches = tuple(LoadedBatch(number, place, tuple(samples)) for number, place, samples in line["samples"])
        others = {
            one.name: line[one.name] for one in dataclasses.fields(cls) if one.name not in _LISTS and one.name in line
        }
        return cls(batches, tuple(line["losses"]), tuple(line["rates"]), **others)

    @property
    def samples(self) -> tuple[tuple[str, ...], ...]:
        """The digests of its samples, by batch."""
        return tuple(batch.samples for batch in self.batches)

    def ends_as(self, other: ScriptUpdate) -> bool:
        """Return whether both leave the same weights, made with the same rates and scale."""
        return (self.weights, self.rates, self.scale) == (other.weights, other.rates, other.scale)

    def goes_on_as(self, other: ScriptUpdate, tolerance: float) -> bool:
        """Return whether this continues as `other`: the same in all that chance has no part in, and losses as near."""
        if tolerance == 0.0 or self.ends_as(other):
            return self.ends_as(other)
        same = ("samples", "rates", "scale")
        near = len(self.losses) == len(other.losses) and all(
            math.isclose(one, two, rel_tol=tolerance) or one == two
            for one, two in zip(self.losses, other.losses, strict=True)
        )
        return near and self.draws_as(other) and all(getattr(self, name) == getattr(other, name) for name in same)

    def draws_as(self, other: ScriptUpdate) -> bool:
        """Return whether both found the same random state, of the generators from which both of their runs draw."""
        pairs = zip(self.random_before.split("."), other.random_before.split("."), strict=False)
        return all(one == two or "" in (one, two) for one, two in pairs)

    def same_losses(self, other: ScriptUpdate) -> bool:
        """Return whether the losses have the same bits; NaN equals NaN."""
        pairs = zip(self.losses, other.losses, strict=False)
        same = all(one == two or (math.isnan(one) and math.isnan(two)) for one, two in pairs)
        return same and len(self.losses) == len(other.losses)


@dataclass(frozen=True)
class ScriptEvent:
    """Something else that the script did, after `update` updates of its attempt."""

    name: str  # of records.updates
    update: int
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class AttemptLog:
    """One attempt of one rank."""

    number: int
    updates: tuple[ScriptUpdate, ...] = ()
    events: tuple[ScriptEvent, ...] = ()

    def named(self, *names: str) -> list[ScriptEvent]:
        """Return the events of these names."""
        return [event for event in self.events if event.name in names]

    def after_wait(self, name: str) -> list[ScriptEvent]:
        """Return the events of this name that came after the interruption."""
        begun = [number for number, event in enumerate(self.events) if event.name == updates.PAUSED]
        return [event for event in self.events[begun[0] :] if event.name == name] if begun else []


def read(paths: RunPaths) -> list[list[AttemptLog]]:
    """Return the attempts of each rank, in order; nothing where no rank recorded anything."""
    return [_without_idle_generators(list(_attempts(lines))) for lines in UpdatePaths(paths).ranks()]


def _attempts(lines: Sequence[Mapping[str, Any]]) -> Iterator[AttemptLog]:
    for number in sorted({line["attempt"] for line in lines}):
        mine = [line for line in lines if line["attempt"] == number]
        made = tuple(ScriptUpdate.of(line) for line in mine if line["event"] == updates.UPDATE)
        others = tuple(
            ScriptEvent(line["event"], line["update"], line) for line in mine if line["event"] != updates.UPDATE
        )
        yield AttemptLog(number, made, others)


def _without_idle_generators(attempts: Sequence[AttemptLog]) -> list[AttemptLog]:
    """Return the attempts without the states of generators that no update of theirs moves.

    Python and numpy begin at random in each process, and no script has to restore a generator that it leaves alone.
    """
    moved = {
        place
        for attempt in attempts
        for one, two in itertools.pairwise(attempt.updates)
        for place, pair in enumerate(zip(one.random_before.split("."), two.random_before.split("."), strict=False))
        if len(set(pair)) > 1
    }

    def without(one: ScriptUpdate) -> ScriptUpdate:
        states = enumerate(one.random_before.split("."))
        kept = ".".join(state if place in moved else "" for place, state in states)
        return dataclasses.replace(one, random_before=kept)

    return [
        dataclasses.replace(attempt, updates=tuple(without(one) for one in attempt.updates)) for attempt in attempts
    ]


def starts_at(attempt: AttemptLog, whole: AttemptLog) -> int | None:
    """Return how many updates the uninterrupted run had made with the weights that `attempt` starts from.

    None if it never had them, or the attempt made no update.
    """
    if not attempt.updates:
        return None
    first = attempt.updates[0]
    places = [number for number, one in enumerate(whole.updates) if one.weights_before == first.weights_before]
    alike = [number for number in places if whole.updates[number].state_before == first.state_before]
    return next(iter([*alike, *places]), None)


@dataclass(frozen=True)
class Resumption:
    """Where an attempt began on the way that the attempts before it had gone, and how that way went on."""

    attempt: AttemptLog
    start: int | None  # updates; None: with weights that this way never had, or no update was made
    expected: tuple[ScriptUpdate, ...]
    way: tuple[ScriptUpdate, ...]  # of the attempts before it
    is_lost: bool = False  # its weights are none that any attempt before it had


def padded(logs: Iterable[AttemptLog]) -> list[str]:
    """Return in words which held-out samples are counted twice."""
    events = (event.fields for log in logs for event in log.named(updates.PADS))
    return [
        f"{one['samples']} held-out samples are evaluated as {one['taken']}: the sampler gives some to two ranks, to "
        "fill up their shares"
        for one in events
    ]


def resumptions(attempts: Sequence[AttemptLog]) -> Iterator[Resumption]:
    """Yield how each attempt went on: an interrupted one has often gone on past the checkpoint that the next loads.

    One that begins as the first did, without a seed and so with weights of its own, begins another way.
    """
    way: list[ScriptUpdate] = []
    known: set[str] = set()
    for attempt in attempts:
        first = attempt.updates[0] if attempt.updates else None
        start = starts_at(attempt, AttemptLog(0, tuple(way))) if way else 0
        is_lost = False
        if start is None and first is not None:
            if first.weights_before == way[-1].weights:
                start = len(way)
            elif (first.state_before, first.rates) == (way[0].state_before, way[0].rates):
                start, way = 0, []
            else:
                is_lost = first.weights_before not in known
        yield Resumption(attempt, start, () if start is None else tuple(way[start:]), tuple(way), is_lost)
        if start is not None:
            way[start:] = attempt.updates
        known.update(digest for one in attempt.updates for digest in (one.weights_before, one.weights))
