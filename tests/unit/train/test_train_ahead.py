"""A background thread prepares the next values: in order, never too many, and it goes when nobody wants them."""

import subprocess
import sys
import threading
import time

import pytest

from trainjob.train.ahead import Ahead

PATIENCE_S = 20


def wait_until(holds) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.005)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "trainjob-ahead"]


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    wait_until(lambda: not threads())


def test_values_come_in_order_and_then_no_more():
    ahead = Ahead(iter(range(1000)), 3)
    assert list(ahead) == list(range(1000))
    assert next(ahead, "none") == "none"
    ahead.close()


def test_no_more_are_made_than_asked_for():
    made: list[int] = []

    def values():
        for value in range(100):
            made.append(value)
            yield value

    ahead = Ahead(values(), 2)
    wait_until(lambda: made == [0, 1])
    assert [next(ahead), next(ahead), next(ahead)] == [0, 1, 2]
    wait_until(lambda: made == [0, 1, 2, 3, 4])
    time.sleep(0.05)
    assert made == [0, 1, 2, 3, 4]
    ahead.close()


def test_what_is_raised_comes_where_the_value_would_have_come():
    def values():
        yield 1
        raise ValueError("no second one")

    ahead = Ahead(values(), 2)
    assert next(ahead) == 1
    for _ in range(2):
        with pytest.raises(ValueError, match="no second one"):
            next(ahead)
    ahead.close()


def test_closing_ends_a_thread_that_waits_for_room():
    ahead = Ahead(iter(range(100)), 1)
    assert next(ahead) == 0
    ahead.close()
    assert not threads()
    assert next(ahead, "none") == "none"
    ahead.close()


def test_closing_waits_for_the_value_that_is_being_made():
    begun, may_go_on = threading.Event(), threading.Event()

    def values():
        begun.set()
        may_go_on.wait(PATIENCE_S)
        yield 1

    ahead = Ahead(values(), 1)
    assert begun.wait(PATIENCE_S)
    closing = threading.Thread(target=ahead.close)
    closing.start()
    may_go_on.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()


PROGRAM = """
import threading, time
from trainjob.train.ahead import Ahead

begun = threading.Event()

def values():
    yield 0
    begun.set()
    time.sleep(0.3)
    print("made", flush=True)
    yield 1
    yield from range(1000)

print(next(Ahead(values(), 2)), flush=True)
begun.wait()
"""


def test_a_program_ends_though_nobody_closed_and_not_amid_a_value():
    ended = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"0\nmade\n", b"")
