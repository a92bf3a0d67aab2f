"""A miniature V-IPU controller: a folder that keeps partitions, and refuses what the real one refuses."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import tempfile
import time
from typing import Any, Dict, Iterator, Optional

from standins.pod import Refused

FOLDER = "TRAINJOB_STANDIN_VIPU"
USER = "TRAINJOB_STANDIN_USER"
ACTIVE = "PS_ACTIVE"
SYNC_TYPES = ("c2-compatible", "pod-native-default")
# The default site: a POD64 with one allocation.
_SITE: Dict[str, Any] = {"ipus": 64, "allocations": ["default"], "delay_s": 0, "partitions": {}}


def folder() -> str:
    """Return the folder of the controller's state, created at the first request."""
    named = os.environ.get(FOLDER)
    return named or os.path.join(tempfile.gettempdir(), "trainjob-standin-vipu-%d" % os.getuid())


def user() -> str:
    """Return the user of the request."""
    return os.environ.get(USER) or getpass.getuser()


class Server:
    """The controller; one request at a time. An administrator may see and change everybody's partitions."""

    def __init__(self, timeout_s: float = 120.0, is_admin: bool = False) -> None:
        self._timeout_s = timeout_s
        self._is_admin = is_admin

    def site(self) -> Dict[str, Any]:
        """Return the controller's state. Raises Refused if it doesn't answer in time."""
        with self._state() as state:
            return state

    def visible(self) -> Dict[str, Dict[str, Any]]:
        """Return the user's partitions by name: only an administrator sees another user's."""
        with self._state() as state:
            return {name: one for name, one in state["partitions"].items() if self._may_see(one)}

    def get(self, name: str) -> Optional[Dict[str, Any]]:
        """Return a partition; None if there is none that the user may see."""
        return self.visible().get(name)

    def create(self, name: str, size: int, **more: object) -> Dict[str, Any]:
        """Return the new partition `name` of `size` IPUs. Raises Refused."""
        with self._state(changes=True) as state:
            if name in state["partitions"]:
                raise Refused("partition '%s' already exists" % name)
            made = _partition(state, size, more)
            state["partitions"][name] = made
            return made

    def remove(self, name: str) -> None:
        """Remove a partition. Raises Refused for one that the user may not see."""
        with self._state(changes=True) as state:
            self._own(state, name)
            del state["partitions"][name]

    def reset(self, name: str) -> None:
        """Reset a partition to its initial state. Raises Refused."""
        with self._state(changes=True) as state:
            self._own(state, name)["state"] = ACTIVE

    def resize(self, name: str, size: int) -> Dict[str, Any]:
        """Return partition `name` with `size` IPUs. Raises Refused."""
        with self._state(changes=True) as state:
            old = self._own(state, name)
            del state["partitions"][name]
            state["partitions"][name] = _partition(state, size, old)
            made: Dict[str, Any] = state["partitions"][name]
            return made

    def _may_see(self, partition: Dict[str, Any]) -> bool:
        return self._is_admin or partition["owner"] == user()

    def _own(self, state: Dict[str, Any], name: str) -> Dict[str, Any]:
        partition: Optional[Dict[str, Any]] = state["partitions"].get(name)
        if partition is None or not self._may_see(partition):
            raise Refused("partition '%s' not found" % name)
        return partition

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


def _partition(state: Dict[str, Any], size: int, options: Dict[str, Any]) -> Dict[str, Any]:
    _check(state, size, options)
    return {
        "size": size,
        "owner": user(),
        "state": ACTIVE,
        "allocation": options.get("allocation") or state["allocations"][0],
        "reconfigurable": bool(options.get("reconfigurable")),
        "gcds": options.get("gcds") or 1,
        "sync_type": options.get("sync_type") or SYNC_TYPES[0],
    }


def _check(state: Dict[str, Any], size: int, options: Dict[str, Any]) -> None:
    if size < 1 or size & (size - 1):
        raise Refused("the size of a partition must be a power of two, and %d is not" % size)
    free = state["ipus"] - sum(one["size"] for one in state["partitions"].values())
    if size > free:
        raise Refused("%d IPUs were requested, and %d of %d are free" % (size, free, state["ipus"]))
    allocation = options.get("allocation")
    if allocation and allocation not in state["allocations"]:
        raise Refused("allocation '%s' not found; there is %s" % (allocation, ", ".join(state["allocations"])))
    sync = options.get("sync_type") or SYNC_TYPES[0]
    if sync not in SYNC_TYPES:
        raise Refused("sync type '%s' is not one of %s" % (sync, ", ".join(SYNC_TYPES)))
    if options.get("reconfigurable") and sync != "c2-compatible":
        raise Refused("a reconfigurable partition needs sync type c2-compatible, not %s" % sync)
    if (options.get("gcds") or 1) > size:
        raise Refused("%d GCDs don't fit a partition of %d IPUs" % (options["gcds"], size))
