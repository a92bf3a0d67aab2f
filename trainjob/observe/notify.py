"""Tells the user when a run ends, fails, stalls or comes near its limit: decided once, delivered once.

A run is watched from its submission. A record of it in the user's data folder says what was delivered; whoever holds
the lock beside the records looks and delivers. That is a process in the background, which the first submission starts
and which ends when no run is watched any more, or `trainjob notify` by hand.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainjob.cluster import slurm_text
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines import process
from trainjob.observe import index
from trainjob.observe.status import Status, statuses
from trainjob.records.files import read_json, remove_if_there, write_json

if TYPE_CHECKING:
    from trainjob.cluster.preferences import Event, Notify
    from trainjob.observe.delivery import Message

_FAILED = frozenset((states.FAILED, states.LOST, states.TIMEOUT))
_MOST_TRIES = 3
# What became of a message, in the record.
_TRYING, _DELIVERED, _FAILED_TRY = "trying", "delivered", "failed "
_MOST_LOG_BYTES = 1 << 20
Say = Callable[[str], None]
Deliveries = dict[str, dict[str, str]]  # attempt and event → way → what became of it


def folder() -> Path:
    """Return where records, the lock and the background's log lie."""
    return index.home() / "notify"


def configured() -> Notify | None:
    """Return who is told; None where nobody is. Raises UserError for a configuration that can't be read."""
    from trainjob.cluster.reading import read_preferences  # loads a YAML parser: most looks find nothing watched

    return read_preferences().notify


def watch(paths: RunPaths) -> None:
    """Watch a run that was just submitted or resumed. It has begun, whatever happens here."""
    with contextlib.suppress(UserError, OSError):
        if configured() is not None:
            folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(_file(paths.whole.id), {"since": time.time(), "deliveries": _deliveries(paths.whole.id)})
            start_if_needed()


def start_if_needed() -> None:
    """Start the process in the background where runs are watched and none looks. Raises nothing: nobody waits for it.

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
    from trainjob.cluster import preferences

    if configured() is None:
        raise UserError(f"{preferences.file()} does not say who is told", "add `notify:`, as docs/reports.md shows it")
    folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked() as is_mine:
        if not is_mine:
            return False
        while (rules := configured()) is not None:
            _look_once(rules, say)
            if not stay or not any(_watched()):
                break
            time.sleep(rules.every_s)
    return True


def events(now: Status, rules: Notify, at_s: float) -> list[Event]:
    """Return what is to be told of a run as it stands; nothing while nobody could be asked."""
    if now.is_stale:
        return []
    if now.state not in states.ACTIVE:
        return ["failed" if now.state in _FAILED else "ended"]
    if now.state != states.RUNNING:
        return []
    due: list[Event] = []
    if now.heartbeat is not None and at_s - now.heartbeat > rules.stalled_after_s:
        due.append("stalled")
    with contextlib.suppress(ValueError):
        left_s = slurm_text.seconds(now.scheduler.get("time_left", "UNLIMITED"))
        if left_s is not None and left_s <= rules.limit_within_s:
            due.append("limit")
    return due


def _look_once(rules: Notify, say: Say) -> None:
    from trainjob.observe import delivery  # loads OpenSSL: `status` and `list` do without

    watched = _paths_of(_watched())
    since = {paths.id: _since(paths.id) for paths in watched}
    for now in statuses(watched):
        deliveries = _deliveries(now.id)
        for event in events(now, rules, time.time()):
            if rules.on is None or event in rules.on:
                ways = deliveries.setdefault(f"{now.attempt} {event}", {})
                for _ in _tries(delivery.message(now, event), delivery.ways(rules), ways, say):
                    write_json(_file(now.id), {"since": since[now.id], "deliveries": deliveries})
        is_over = now.state not in states.ACTIVE and not now.is_stale
        is_settled = all(_is_settled(word) for ways in deliveries.values() for word in ways.values())
        # It may have been resumed since it was looked at.
        if is_over and is_settled and _since(now.id) == since[now.id]:
            remove_if_there(_file(now.id))


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


def _paths_of(run_ids: Iterator[str]) -> list[RunPaths]:
    found = []
    for run_id in run_ids:
        try:
            found.append(index.find(run_id))
        except UserError:
            remove_if_there(_file(run_id))
    return found


def _watched() -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from sorted(path.stem for path in folder().glob("*.json"))


def _file(run_id: str) -> Path:
    return folder() / f"{run_id}.json"


def _since(run_id: str) -> Any:
    """Return when the run began to be watched, which tells one record of it from the next."""
    record = read_json(_file(run_id))
    return record.get("since") if isinstance(record, dict) else None


def _deliveries(run_id: str) -> Deliveries:
    """Return what was told of a run; a word that we have not written counts for nothing."""
    record = read_json(_file(run_id))
    deliveries = record.get("deliveries") if isinstance(record, dict) else None
    known = (_TRYING, _DELIVERED, *(f"{_FAILED_TRY}{number}" for number in range(1, _MOST_TRIES + 1)))
    return {
        event: {way: word for way, word in ways.items() if word in known}
        for event, ways in (deliveries.items() if isinstance(deliveries, dict) else ())
        if isinstance(ways, dict)
    }


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
