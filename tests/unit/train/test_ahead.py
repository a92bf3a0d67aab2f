"""A background thread prepares the next values: in order, never too many, and it goes when nobody wants them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from trainjob.train.samples.batches import ahead

PATIENCE_S = 20


def wait_until(holds: Any) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.005)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("trainjob-ahead")]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    wait_until(lambda: not threads())


def test_values_come_in_order_and_then_no_more() -> None:
    upcoming = ahead(iter(range(1000)), 3)
    assert list(upcoming) == list(range(1000))
    assert next(upcoming, "none") == "none"


def test_no_more_are_made_than_asked_for() -> None:
    made: list[int] = []

    def values() -> Iterator[Any]:
        for value in range(100):
            made.append(value)
            yield value

    upcoming = ahead(values(), 2)
    assert next(upcoming) == 0
    wait_until(lambda: made == [0, 1, 2])
    assert [next(upcoming), next(upcoming)] == [1, 2]
    wait_until(lambda: made == [0, 1, 2, 3, 4])
    time.sleep(0.05)
    assert made == [0, 1, 2, 3, 4]
    upcoming.close()


def test_what_is_raised_comes_where_the_value_would_have_come() -> None:
    def values() -> Iterator[int]:
        yield 1
        raise ValueError("no second one")

    upcoming = ahead(values(), 2)
    assert next(upcoming) == 1
    with pytest.raises(ValueError, match="no second one"):
        next(upcoming)


def test_closing_ends_a_thread_that_waits_for_room() -> None:
    upcoming = ahead(iter(range(100)), 1)
    assert next(upcoming) == 0
    upcoming.close()
    assert not threads()
    assert next(upcoming, "none") == "none"


def test_closing_waits_for_the_value_that_is_being_made() -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def values() -> Iterator[int]:
        yield 0
        begun.set()
        may_go_on.wait(PATIENCE_S)
        yield 1

    upcoming = ahead(values(), 1)
    assert next(upcoming) == 0
    assert begun.wait(PATIENCE_S)
    closing = threading.Thread(target=upcoming.close)
    closing.start()
    assert threads()
    may_go_on.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
