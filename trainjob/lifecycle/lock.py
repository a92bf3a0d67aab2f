"""One command at a time begins an attempt of a run: a lock file in the run directory, which names its holder.

The lock is created by a hard link, which is atomic on NFS too. Its holder's host, process id and start time show
whether the holder still exists, but only to commands on the same host.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records.files import read_json, remove_if_there, write_json

_TRIES = 5
_POLL_S = 0.1


@contextmanager
def locked(paths: RunPaths, command: str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the run's lock inside. Raises UserError, naming the holder, if another command has it after `wait_s`."""
    lock = paths.folder / ".lock"
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an id without an account, as in some containers
        user = str(os.getuid())
    mine = {
        "command": command,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "user": user,
        "since": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(clock.time())),
        "token": secrets.token_hex(8),
    }
    staging = lock.with_name(f".lock.{mine['token']}")
    try:
        write_json(staging, mine, durable=False)
        _take(paths, lock, staging, clock.monotonic() + wait_s)
    except OSError as error:
        raise UserError(
            f"the lock {lock} can't be written ({error.strerror}), so run {paths.id} stays as it is",
            "Free some space there, or ask the owner of the folder",
        ) from None
    finally:
        with contextlib.suppress(OSError):
            staging.unlink()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if _holder(lock).get("token") == mine["token"]:
                lock.unlink()


def _take(paths: RunPaths, lock: Path, staging: Path, deadline: float) -> None:
    tries = 0
    while tries < _TRIES:
        with contextlib.suppress(FileExistsError):
            os.link(staging, lock)
            return
        holder = _holder(lock)
        if _is_gone(holder):
            tries += 1
            _remove_stale(lock, staging, str(holder["token"]))
        elif clock.monotonic() < deadline:
            clock.sleep(_POLL_S)
        else:
            break
    holder = _holder(lock)
    who = f"{holder.get('command')} of {holder.get('user')}, process {holder.get('pid')} on {holder.get('host')}"
    raise UserError(
        f"run {paths.id} is locked by {who}, since {holder.get('since')}" if holder else f"run {paths.id} is locked",
        f"wait until it has ended; if it is gone, remove {lock}",
        "locked",
    )


def _holder(lock: Path) -> dict[str, object]:
    content = read_json(lock)
    return content if isinstance(content, dict) else {}


def _is_gone(holder: Mapping[str, object]) -> bool:
    """Return whether the holder was a process of this host that no longer exists."""
    pid = holder.get("pid")
    if holder.get("host") != socket.gethostname() or not isinstance(pid, int) or not holder.get("token"):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return _started(pid) != holder.get("started")  # the id was given to another process


def _remove_stale(lock: Path, staging: Path, token: str) -> None:
    """Remove a lock whose holder is gone, and no newer one: only the process that creates the claim may remove it.

    A claim names its process, too: that of one that was killed is removed in the same way.
    """
    claim = lock.with_name(f".lock.{''.join(filter(str.isalnum, token))[:32]}.claim")
    try:
        os.link(staging, claim)
    except FileExistsError:
        claimant = _holder(claim)
        if _is_gone(claimant) and claimant["token"] != token:
            _remove_stale(claim, staging, str(claimant["token"]))
        return
    try:
        if _holder(lock).get("token") == token:
            remove_if_there(lock)
    finally:
        remove_if_there(claim)


def _started(pid: int) -> str | None:
    """Return when a process began, in clock ticks since boot; None if the system does not report it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
