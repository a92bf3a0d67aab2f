"""Tells the user when a run ends, fails, stalls or comes near its limit: decided once, delivered once.

A run is watched from its submission. A record of it in the user's data folder says what was delivered; whoever holds
the lock beside the records looks and delivers. That is a process in the background, which the first submission starts
and which ends when no run is watched any more, or `trainjob notify` by hand.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainjob.cluster import slurm_text
from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.liveness import PROGRESS, SignsOfLife, StallLimits, silence_of
from trainjob.contract.paths import RunPaths, home
from trainjob.machines import process
from trainjob.observe import index
from trainjob.observe.asking import Sparing, spread
from trainjob.records.files import read_json, remove_if_there, write_json

if TYPE_CHECKING:
    from trainjob.cluster.preferences import Event, Notify
    from trainjob.observe.delivery import Message
    from trainjob.observe.status import Snapshot

_FAILED = frozenset((states.FAILED, states.LOST, states.TIMEOUT))
_MOST_TRIES = 3
# What became of a message, in the record.
_TRYING, _DELIVERED, _FAILED_TRY = "trying", "delivered", "failed "
_MOST_LOG_BYTES = 1 << 20
Say = Callable[[str], None]
Deliveries = dict[str, dict[str, str]]  # attempt and event → way → what became of it


def folder() -> Path:
    """Return where records, the lock and the background's log lie."""
    return home() / "notify"


def configured() -> Notify | None:
    """Return the notification settings; None without any. Raises UserError for a configuration that can't be read."""
    from trainjob.cluster.reading import read_preferences  # loads a YAML parser: most looks find nothing watched

    return read_preferences().notify


def watch(paths: RunPaths) -> None:
    """Watch a run that was just submitted or resumed. It has begun, whatever happens here."""
    with contextlib.suppress(UserError, OSError):
        if configured() is not None:
            folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            dataclasses.replace(_Watched.of(paths.whole.id), since=clock.time()).write()
            start_if_needed()


def start_if_needed() -> None:
    """Start the background process if runs are watched and no such process runs. Raises nothing and doesn't wait.

    After a reboot, the next `status`, `list` or `watch` starts it again.
    """
    with contextlib.suppress(UserError, OSError):
        if not any(_watched()):
            return
        rules = configured()
        if rules is None or not rules.background:
            return
        with _locked() as is_mine:
            if not is_mine:
                return
        log = folder() / "log"
        if log.exists() and log.stat().st_size > _MOST_LOG_BYTES:
            remove_if_there(log)
        command = [sys.executable, "-m", "trainjob.cli.main", "notify", "--stay"]
        process.start_detached(command, folder=folder(), log=log, environment=os.environ)


def look(say: Say, *, stay: bool) -> bool:
    """Deliver what is due; with `stay` until no run is watched. Return False where another process does that already.

    Raises UserError without a configuration.
    """
    required()
    folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked() as is_mine:
        if not is_mine:
            return False
        asking: Sparing | None = None
        while (rules := configured()) is not None:
            asking = asking or Sparing(rules.every_s)
            _look_once(rules, say, asking)
            if not stay or not any(_watched()):
                break
            clock.sleep(spread(rules.every_s))
    return True


def required() -> Notify:
    """Return the notification settings. Raises UserError if none are configured."""
    from trainjob.cluster import preferences

    rules = configured()
    if rules is None:
        raise UserError(
            f"no notification is configured in {preferences.file()}", "add `notify:`, as docs/reports.md shows it"
        )
    return rules


def events(now: Snapshot, rules: Notify, at_s: float) -> list[Event]:
    """Return the messages about a run in its present state; none while its back end can't be asked."""
    if now.is_stale:
        return []
    if now.state not in states.ACTIVE:
        return ["failed" if now.state in _FAILED else "ended"]
    if now.state != states.RUNNING:
        return []
    due: list[Event] = []
    if silence_of(PROGRESS, SignsOfLife(progress=now.heartbeat), at_s, StallLimits(rules.stalled_after_s)) is not None:
        due.append("stalled")
    with contextlib.suppress(ValueError):
        left_s = slurm_text.seconds(now.scheduler.get("time_left", "UNLIMITED"))
        if left_s is not None and left_s <= rules.limit_within_s:
            due.append("limit")
    return due


@dataclass(frozen=True)
class _Watched:
    """The record of one watched run. `since` tells one record of a run from the next."""

    id: str
    since: float | None = None
    deliveries: Deliveries = field(default_factory=dict)

    @classmethod
    def of(cls, run_id: str) -> _Watched:
        """Return the record of a run; what we have not written counts for nothing."""
        content = read_json(folder() / f"{run_id}.json")
        fields = content if isinstance(content, dict) else {}
        deliveries, since = fields.get("deliveries"), fields.get("since")
        known = (_TRYING, _DELIVERED, *(f"{_FAILED_TRY}{number}" for number in range(1, _MOST_TRIES + 1)))
        kept = {
            event: {way: word for way, word in ways.items() if word in known}
            for event, ways in (deliveries.items() if isinstance(deliveries, dict) else ())
            if isinstance(ways, dict)
        }
        return cls(run_id, since if isinstance(since, float) else None, kept)

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it is to be tried again."""
        return all(_is_settled(word) for ways in self.deliveries.values() for word in ways.values())

    def write(self) -> None:
        """Write the record, atomically."""
        write_json(folder() / f"{self.id}.json", {"since": self.since, "deliveries": self.deliveries})

    def remove(self) -> None:
        """Remove the record: the run is watched no longer."""
        remove_if_there(folder() / f"{self.id}.json")


def _watched() -> list[_Watched]:
    with contextlib.suppress(OSError):
        return [_Watched.of(path.stem) for path in sorted(folder().glob("*.json"))]
    return []


def _look_once(rules: Notify, say: Say, asking: Sparing) -> None:
    from trainjob.observe import delivery  # loads OpenSSL: `status` and `list` do without
    from trainjob.observe.status import statuses  # a submission does without

    found: dict[str, tuple[RunPaths, _Watched]] = {}
    for record in _watched():
        try:
            found[record.id] = (index.find(record.id), record)
        except UserError:
            record.remove()
    for now in statuses((paths for paths, _ in found.values()), asking):
        record = found[now.id][1]
        for event in events(now, rules, clock.time()):
            if rules.on is None or event in rules.on:
                tried = record.deliveries.setdefault(f"{now.attempt} {event}", {})
                for _ in _tries(delivery.message(now, event), delivery.ways(rules), tried, say):
                    record.write()
        is_over = now.state not in states.ACTIVE and not now.is_stale
        # It may have been resumed since it was looked at.
        if is_over and record.is_settled and _Watched.of(now.id).since == record.since:
            record.remove()


def _tries(
    message: Message, ways: Mapping[str, Callable[[Message], None]], deliveries: dict[str, str], say: Say
) -> Iterator[None]:
    """Deliver a message in every way that has not had it, and yield before and after, to have `deliveries` written."""
    for way, deliver in ways.items():
        word = deliveries.get(way, "")
        if _is_settled(word):
            continue
        number = int(word.removeprefix(_FAILED_TRY)) + 1 if word else 1
        deliveries[way] = _TRYING
        yield
        try:
            deliver(message)
            deliveries[way] = _DELIVERED
            say(f"{message.run}: {message.event}: {way} delivered")
        except UserError as error:
            deliveries[way] = f"{_FAILED_TRY}{number}"
            say(f"{message.run}: {message.event}: {way} failed, try {number} of {_MOST_TRIES}: {error}")
        yield


def _is_settled(word: str) -> bool:
    """Return whether a message is not tried again: one whose delivery was interrupted may have arrived."""
    return word in (_TRYING, _DELIVERED, f"{_FAILED_TRY}{_MOST_TRIES}")


@contextmanager
def _locked() -> Iterator[bool]:
    """Yield whether the lock is ours now; the kernel gives it back however we end."""
    with (folder() / "lock").open("ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
