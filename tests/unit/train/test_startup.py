"""Rank 0 divides the time until its first update."""

from __future__ import annotations

import pytest

from tests.support.clock import Clock
from trainjob.train.recording import startup
from trainjob.train.recording.startup import Startup


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(startup, "clock", made)
    return made


def started(clock: Clock) -> Startup:
    """Return a start whose launcher began 9 s ago, and the rank 7 s ago."""
    made = Startup({"TRAINJOB_STARTED": f"{clock.now - 9:.3f},{clock.now - 7:.3f}"})
    made.end("imports")
    clock.now += 3
    made.end("data")
    return made


def test_what_the_first_block_took_longer_than_the_second_is_compiling(clock: Clock) -> None:
    made = started(clock)
    clock.now += 10
    assert made.block_made(10.0) is None
    ended_at = clock.now
    clock.now += 4
    made.end("data")  # of the second block: no part of the start
    figures = made.block_made(0.5)
    assert figures == {
        "time": ended_at,
        "seconds": {"launcher": 2.0, "imports": 7.0, "data": 3.0, "first update": 0.5, "compile": 9.5},
    }
    assert (made.block_made(0.5), made.figures()) == (None, None)


def test_of_a_single_block_nobody_knows_what_was_compiling(clock: Clock) -> None:
    made = started(clock)
    clock.now += 10
    made.block_made(10.0)
    figures = made.figures()
    assert figures is not None
    assert figures["seconds"] == {"launcher": 2.0, "imports": 7.0, "data": 3.0, "first update": 10.0}


def test_a_slower_second_block_takes_nothing_from_the_first(clock: Clock) -> None:
    made = started(clock)
    clock.now += 1
    made.block_made(1.0)
    figures = made.block_made(5.0)
    assert figures is not None
    assert (figures["seconds"]["first update"], figures["seconds"]["compile"]) == (1.0, 0.0)


def test_without_a_launcher_it_begins_with_the_rank(clock: Clock) -> None:
    made = Startup({"TRAINJOB_STARTED": "nonsense"})
    clock.now += 1
    made.block_made(1.0)
    assert made.figures() == {"time": clock.now, "seconds": {"first update": 1.0}}
    assert Startup({}).figures() is None
