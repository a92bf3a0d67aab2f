"""The tab-separated event log that job scripts write, and the nodes that later attempts avoid."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from trainjob.contract.paths import RunPaths
from trainjob.records.files import DamagedError, read_small, write_atomically

BEGAN, SIGNAL, ENDED = "began", "signal", "ended"
ASKED = "asked"  # the signal that a handler of a rank got first, also past the job script
BYPASSED = "bypassed"  # a signal that a launcher got, and the job script did not
LAUNCH, COMPILED = "launch", "compiled"  # the ranks are being started; before that, IPUs' executable was compiled
IMAGE = "image"  # the digest of what a job under Slurm runs inside of
RETRY = "retry"  # the next attempt asks for more
IDLE = "idle"  # nobody uses the nodes that the job holds: what it says; empty: somebody does again
LOST = "lost"  # an attempt that noted no end: at its last sign of life
_WHY_LOST = "its job script noted no end: its node failed, or something killed it"
TO_END = ("TERM", "INT", "HUP", "URG")
_TIME = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?\Z")
_NUMBER = re.compile(r"[0-9]{1,9}\Z")


class Event(NamedTuple):
    """One line of `events`; `at` is in seconds since 1970."""

    at: float
    attempt: int
    what: str
    # began: the nodes; signal, asked: its name; bypassed: its name, whose launcher got it, and from whom; image: its
    # digest; retry: mem or time, and sbatch's option; ended: state, code, and why
    detail: str


class Attempt(NamedTuple):
    """One start of a run, as its events tell it. `ended_at` is None for one that has noted no end yet."""

    number: int
    began_at: float
    ended_at: Optional[float]
    state: Optional[str]
    nodes: str
    why: str = ""


def read(paths: RunPaths) -> List[Event]:
    """Return the events of a run in their order. Damaged lines are passed over."""
    events = []
    for at, attempt, what, detail in _lines(paths.events, 4):
        if _TIME.match(at) and _NUMBER.match(attempt):
            events.append(Event(float(at), int(attempt), what, detail))
    return events


def attempts(events: List[Event]) -> List[Attempt]:
    """Return the attempts that the events tell of, in order."""
    begun: Dict[int, Attempt] = {}
    for event in events:
        one = begun.get(event.attempt)
        if event.what == BEGAN:
            begun[event.attempt] = Attempt(event.attempt, event.at, None, None, event.detail)
        elif event.what in (ENDED, LOST) and one is not None:
            state, _, why = parse_end(event) if event.what == ENDED else ("LOST", "", _WHY_LOST)
            begun[event.attempt] = one._replace(ended_at=max(event.at, one.began_at), state=state, why=why)
    return [begun[number] for number in sorted(begun)]


def parse_end(event: Event) -> Tuple[str, str, str]:
    """Return the state, the exit code and the sentence of an `ended` event."""
    state, code, why = (*event.detail.split(" ", 2), "", "")[:3]
    return state, code, why


def why_ended(events: List[Event], attempt: int) -> str:
    """Return the sentence that explains how an attempt ended; "" where its state says all, or it has noted no end."""
    return next((one.why for one in attempts(events) if one.number == attempt), "")


def idle(events: List[Event], attempt: int) -> str:
    """Return what a job that holds nodes has said last of being idle; "" for one that is used, and for any other."""
    said = (one.detail for one in reversed(events) if one.what == IDLE and one.attempt == attempt)
    return next(said, "")


def was_signalled(events: List[Event], attempt: int) -> bool:
    """Return whether the last event of an attempt is a signal to end, and not its end."""
    # Ranks that were being started when TERM came may have noted that after it.
    noted = (event for event in reversed(events) if event.attempt == attempt)
    last = next((event for event in noted if event.what not in (LAUNCH, COMPILED, ASKED, BYPASSED)), None)
    return last is not None and last.what == SIGNAL and last.detail in TO_END


def image(events: List[Event]) -> Optional[str]:
    """Return the digest of the image that the run used last, as its job script noted it; None if it noted none."""
    return next((event.detail for event in reversed(events) if event.what == IMAGE), None)


def excluded_nodes(paths: RunPaths) -> List[Dict[str, str]]:
    """Return node, attempt and why of each node that later attempts avoid."""
    return [dict(zip(("node", "attempt", "why"), fields)) for fields in _lines(paths.excluded_nodes, 3)]


def blame_node(paths: RunPaths, node: str, why: str) -> None:
    """Note that a node is to blame for a failure, so that the job script has later attempts avoid it."""
    write_atomically(paths.bad_node, "%s %s\n" % (node, why))


def note_out_of_memory(paths: RunPaths) -> None:
    """Note that a rank ran out of its host's memory, so that the job script may have the next attempt ask for more."""
    write_atomically(paths.out_of_memory, "")


def retries(events: List[Event]) -> List[Dict[str, str]]:
    """Return what and option of each time that an attempt asked for more than `attempt`, which ran out of it."""
    return [
        {"attempt": str(event.attempt), "what": what, "option": option}
        for event in events
        if event.what == RETRY
        for what, _, option in (event.detail.partition(" "),)
    ]


def _lines(path: Path, fields: int) -> Iterator[List[str]]:
    text = ""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, DamagedError):
        text = read_small(path).decode("utf-8", "replace")
    for line in text.splitlines():
        words = line.split("\t", fields - 1)
        if len(words) == fields:
            yield words
