"""role.json: where a server of a job with roles is reached, and how it is. Its folder is a run directory of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import List, Optional

from trainjob.contract.paths import ROLES, RunPaths
from trainjob.records import attempts, typed
from trainjob.records.files import remove_if_there, write_atomically, write_json

STARTING, READY, ENDED, FAILED = "STARTING", "READY", "ENDED", "FAILED"


@dataclass(frozen=True)
class RoleRecord:
    """A server as it was last seen. `since` is when it became so, in seconds since 1970."""

    attempt: int
    state: str
    address: str  # host:port
    starts: int
    since: float
    exit_code: Optional[int] = None


def of_run(paths: RunPaths) -> List[RunPaths]:
    """Return the folders of a run's servers, by name; none for a job without roles."""
    try:
        names = sorted(os.listdir(str(paths.folder / ROLES)))
    except OSError:
        return []
    return [paths.of_role(name) for name in names]


def read(paths: RunPaths) -> Optional[RoleRecord]:
    """Return what is known of the server in this folder; None before its first start, or if the file is damaged."""
    return typed.read(RoleRecord, paths.role_record)


def write(paths: RunPaths, record: RoleRecord) -> None:
    """Record how a server is. Raises OSError."""
    write_json(paths.role_record, typed.to_json(record), durable=False)


def begin(paths: RunPaths, attempt: int) -> None:
    """Make a server's folder ready for its next start in this attempt of its run. Raises OSError."""
    paths.logs.mkdir(parents=True, exist_ok=True)
    if not paths.code.exists():
        os.symlink(os.path.join("..", "..", "code"), str(paths.code))
    for stale in (paths.failure, paths.terminated(attempt), paths.asked(attempt), paths.end_mark(attempt, 0)):
        remove_if_there(stale)
    token = attempts.token(paths.run)
    if token is not None:
        write_atomically(paths.token, token + "\n")
    write_atomically(paths.attempt, "%d\n" % attempt)
