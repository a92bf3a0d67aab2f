"""The interruptions of a run that is verified, of a task or of a script: which comes when, and how a site makes it."""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass

from trainjob.backends import registry
from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe.seen import look
from trainjob.observe.status import between_looks_s, status
from trainjob.records import submission as submissions
from trainjob.records.updates import AT_EVALUATION, AT_SAVE, AT_START, AT_UPDATE
from trainjob.requests.workbench import is_over

TIME_LIMIT, PREEMPTION, KILL = "time-limit", "preemption", "kill"
WAYS = (TIME_LIMIT, PREEMPTION, KILL)
NEAR_END = "near the end"
# How a run is interrupted at each of its moments, in this order, one attempt each.
_AT_MOMENTS = (
    (TIME_LIMIT, AT_UPDATE),
    (KILL, AT_SAVE),
    (PREEMPTION, AT_UPDATE),
    (KILL, AT_START),
    (TIME_LIMIT, AT_EVALUATION),
    (KILL, NEAR_END),
)
_MOMENTS = (AT_START, AT_UPDATE, AT_SAVE, AT_EVALUATION)
_POLL_S = 0.01
# Between USR1 and TERM, for a run whose ranks handle USR1.
MARGIN_S = 20.0


@dataclass(frozen=True)
class PlannedStop:
    """One interruption: how, and at the first such moment after an update of the uninterrupted run."""

    way: str  # of WAYS
    moment: str  # NEAR_END, or one of records.updates
    after: int

    def __str__(self) -> str:
        return f"{self.way}@{AT_UPDATE if self.moment == NEAR_END else self.moment}:{self.after}"


def parse_stops(text: str, most: int | None = None) -> list[PlannedStop]:
    """Return the stops of a text such as `time-limit@update:7,kill@save:12`. Raises UserError for another.

    `most`: of a task, which has no other moments than its updates, up to this one.
    """
    stops = []
    for word in text.split(","):
        match = re.fullmatch(r"([a-z-]+)@([a-z]+):(\d+)", word.strip())
        if match is None or match[1] not in WAYS or match[2] not in _MOMENTS:
            raise UserError(
                f"--stops {word.strip()!r}: expected WAY@MOMENT:UPDATE, with a way of {', '.join(WAYS)}, and a moment "
                f"of {', '.join(_MOMENTS)}",
                "For example --stops time-limit@update:7,kill@save:12",
            )
        stop = PlannedStop(match[1], match[2], int(match[3]))
        if most is not None and stop.moment != AT_UPDATE:
            raise UserError(f"--stops {stop}: of a task, only its updates are moments", "Give WAY@update:UPDATE")
        if most is not None and stop.after > most:
            raise UserError(
                f"--stops {stop}: after update {most} the run ends", "Give an earlier one, or more --updates"
            )
        stops.append(stop)
    return stops


@dataclass(frozen=True)
class InterruptionPlan:
    """The interruptions of one run: those that are stated, else `count` of these ways, drawn from the seed."""

    count: int
    ways: Sequence[str]  # of WAYS
    seed: int = 0
    stated: Sequence[PlannedStop] | None = None

    def at_updates(self, most: int) -> list[PlannedStop]:
        """Return interruptions among the first `most` updates, the ways in turn."""
        ways = itertools.islice(itertools.cycle(self.ways), self.count)
        return self._drawn([(way, AT_UPDATE) for way in ways], range(1, max(self.count, most) + 1))

    def at_moments(self, total: int, happening: Container[str], inside: Sequence[int]) -> list[PlannedStop]:
        """Return interruptions at the moments that a run of `total` updates has.

        Seed 0 has all moments in their order, after updates of `inside`; others draw the order, and any update.
        """
        planned = [pair for pair in _AT_MOMENTS if pair[0] in self.ways and pair[1] in happening][: self.count]
        if self.seed:
            return self._drawn(planned, range(1, max(2, total - 1)), in_order=False)
        last = max(1, total - 2)
        drawn = self._drawn(planned, inside)
        return [PlannedStop(one.way, NEAR_END, last) if one.moment == NEAR_END else one for one in drawn]

    def _drawn(
        self, planned: list[tuple[str, str]], numbers: Sequence[int], *, in_order: bool = True
    ) -> list[PlannedStop]:
        if self.stated is not None:
            return list(self.stated)
        chance = random.Random(self.seed)  # noqa: S311 - where to interrupt is no secret
        if not in_order:
            chance.shuffle(planned)
        # Each in a part of its own, so that every interruption finds progress since the last one.
        count = len(planned)
        bounds = [len(numbers) * number // max(1, count) for number in range(count + 1)]
        parts = (numbers[begin:end] or numbers[-1:] for begin, end in itertools.pairwise(bounds))
        targets = sorted(map(chance.choice, parts))
        return [PlannedStop(way, moment, target) for (way, moment), target in zip(planned, targets, strict=True)]


def interrupt(paths: RunPaths, way: str, rank: int | None, *, takes_usr1: bool) -> None:
    """Interrupt the run as a site does; the caller waits for its end. KILL ends the process `rank` alone, if any.

    `takes_usr1`: its ranks handle USR1, which a time limit then sends first.
    """
    submission = submissions.read(paths)  # anew: each attempt has a process of its own
    assert submission is not None  # noqa: S101 - it was submitted
    native = submission.native
    assert native is not None  # noqa: S101 - and has begun
    backend = registry.get(submission.backend)
    if way == KILL:
        if backend.HAS_SCHEDULER:
            backend.signal_ranks(paths, native, "KILL")
        elif rank is not None:
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL)
        return
    attempt = status(paths).attempt if backend.HAS_SCHEDULER else 0

    def goes_on() -> bool:
        return not is_over(status(paths), attempt) if backend.HAS_SCHEDULER else look(paths).is_open

    if way == TIME_LIMIT and takes_usr1:
        backend.interrupt(native)
        deadline = clock.monotonic() + MARGIN_S
        while goes_on() and clock.monotonic() < deadline:
            clock.sleep(between_looks_s(submission) if backend.HAS_SCHEDULER else _POLL_S)
    if goes_on():
        backend.signal_ranks(paths, native, "TERM")
