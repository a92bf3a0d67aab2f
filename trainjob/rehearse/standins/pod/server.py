"""A V-IPU controller in small: a folder that keeps partitions, and refuses what the real one refuses."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import tempfile
import time
from typing import Any, Dict, Iterator, Optional

from trainjob.rehearse.standins.pod.refusal import Refused

FOLDER = "TRAINJOB_STANDIN_VIPU"
USER = "TRAINJOB_STANDIN_USER"
ACTIVE = "PS_ACTIVE"
SYNC_TYPES = ("c2-compatible", "pod-native-default")
# What a site with nothing said of it has: a POD64 with one allocation.
_SITE: Dict[str, Any] = {"ipus": 64, "allocations": ["default"], "delay_s": 0, "partitions": {}}


def folder() -> str:
    """Return the folder of the controller's state; it is made when it is first asked."""
    named = os.environ.get(FOLDER)
    return named or os.path.join(tempfile.gettempdir(), "trainjob-standin-vipu-%d" % os.getuid())


def user() -> str:
    """Return who asks."""
    return os.environ.get(USER) or getpass.getuser()


class Server:
    """The controller, as one request after another sees it."""

    def __init__(self, timeout_s: float = 120.0) -> None:
        self._timeout_s = timeout_s

    def site(self) -> Dict[str, Any]:
        """Return all that the controller keeps. Raises Refused when it gives no answer in time."""
        with self._state() as state:
            return state

    def visible(self) -> Dict[str, Dict[str, Any]]:
        """Return the partitions of whoever asks, by name: nobody sees another's."""
        with self._state() as state:
            return {name: one for name, one in state["partitions"].items() if one["owner"] == user()}

    def get(self, name: str) -> Optional[Dict[str, Any]]:
        """Return a partition; None where there is none that the asker may see."""
        return self.visible().get(name)

    def create(self, name: str, size: int, **more: Any) -> Dict[str, Any]:
        """Return the new partition `name` of `size` IPUs. Raises Refused."""
        with self._state(changes=True) as state:
            if name in state["partitions"]:
                raise Refused("partition '%s' already exists" % name)
            made = _partition(state, size, more)
            state["partitions"][name] = made
            return made

    def remove(self, name: str) -> None:
        """Remove a partition. Raises Refused for one that the asker does not see."""
        with self._state(changes=True) as state:
            _mine(state, name)
            del state["partitions"][name]

    def reset(self, name: str) -> None:
        """Bring a partition back to its first state. Raises Refused."""
        with self._state(changes=True) as state:
            _mine(state, name)["state"] = ACTIVE

    def resize(self, name: str, size: int) -> Dict[str, Any]:
        """Return partition `name` with `size` IPUs. Raises Refused."""
        with self._state(changes=True) as state:
            old = _mine(state, name)
            del state["partitions"][name]
            state["partitions"][name] = _partition(state, size, old)
            made: Dict[str, Any] = state["partitions"][name]
            return made

    @contextlib.contextmanager
    def _state(self, changes: bool = False) -> Iterator[Dict[str, Any]]:
        where = folder()
        os.makedirs(where, exist_ok=True)
        with open(os.path.join(where, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = _read(where)
            self._answer(state)
            yield state
            if changes:
                _write(where, state)

    def _answer(self, state: Dict[str, Any]) -> None:
        delay_s = float(state["delay_s"])
        time.sleep(min(delay_s, self._timeout_s))
        if delay_s > self._timeout_s:
            raise Refused("the V-IPU server gave no answer within %g s" % self._timeout_s)


def _read(where: str) -> Dict[str, Any]:
    try:
        with open(os.path.join(where, "site.json"), encoding="utf-8") as stream:
            state: Dict[str, Any] = {**_SITE, **json.load(stream)}
    except FileNotFoundError:
        state = json.loads(json.dumps(_SITE))
    return state


def _write(where: str, state: Dict[str, Any]) -> None:
    beside = os.path.join(where, ".site.%d" % os.getpid())
    with open(beside, "w", encoding="utf-8") as stream:
        json.dump(state, stream, indent=1, sort_keys=True)
    os.replace(beside, os.path.join(where, "site.json"))


def _mine(state: Dict[str, Any], name: str) -> Dict[str, Any]:
    found: Optional[Dict[str, Any]] = state["partitions"].get(name)
    if found is None or found["owner"] != user():
        raise Refused("partition '%s' not found" % name)
    return found


def _partition(state: Dict[str, Any], size: int, asked: Dict[str, Any]) -> Dict[str, Any]:
    _check(state, size, asked)
    return {
        "size": size,
        "owner": user(),
        "state": ACTIVE,
        "allocation": asked.get("allocation") or state["allocations"][0],
        "reconfigurable": bool(asked.get("reconfigurable")),
        "gcds": asked.get("gcds") or 1,
        "sync_type": asked.get("sync_type") or SYNC_TYPES[0],
    }


def _check(state: Dict[str, Any], size: int, asked: Dict[str, Any]) -> None:
    if size < 1 or size & (size - 1):
        raise Refused("a partition has a power of two of IPUs, and %d is none" % size)
    free = state["ipus"] - sum(one["size"] for one in state["partitions"].values())
    if size > free:
        raise Refused("%d IPUs asked for, %d of %d are free" % (size, free, state["ipus"]))
    allocation = asked.get("allocation")
    if allocation and allocation not in state["allocations"]:
        raise Refused("allocation '%s' not found; there is %s" % (allocation, ", ".join(state["allocations"])))
    sync = asked.get("sync_type") or SYNC_TYPES[0]
    if sync not in SYNC_TYPES:
        raise Refused("sync type '%s' is none of %s" % (sync, ", ".join(SYNC_TYPES)))
    if asked.get("reconfigurable") and sync != "c2-compatible":
        raise Refused("a reconfigurable partition has sync type c2-compatible, not %s" % sync)
    if (asked.get("gcds") or 1) > size:
        raise Refused("%d GCDs in a partition of %d IPUs" % (asked["gcds"], size))
