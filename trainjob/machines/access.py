"""Returns machines: this one, or one that ssh reaches."""

from __future__ import annotations

import functools
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from trainjob.cluster.base import Cluster
from trainjob.contract.errors import UserError
from trainjob.contract.paths import with_home
from trainjob.machines import process
from trainjob.machines.machine import ANSWER_S, Machine
from trainjob.machines.process import Completed


class ThisMachine:
    """Fits Machine. Nothing is quoted, because no shell is in between. `before` are words before every command."""

    name = "this machine"

    def __init__(self, before: Sequence[str] = ()) -> None:
        self._before = tuple(before)

    def run(
        self,
        arguments: Sequence[str],
        *,
        folder: str | None = None,
        stdin: bytes | IO[bytes] = b"",
        stdout: IO[bytes] | None = None,
        timeout_s: float = ANSWER_S,
        check: bool = True,
    ) -> Completed:
        """Return the command's result."""
        working_folder = None if folder is None else with_home(folder)
        words = [*self._before, *arguments]
        return process.run(words, timeout_s=timeout_s, folder=working_folder, check=check, stdin=stdin, stdout=stdout)

    def interactive(self, arguments: Sequence[str], *, terminal: bool) -> list[str]:  # noqa: ARG002 - see Machine
        """Return the command as it is."""
        return [*self._before, *arguments]

    def send(self, source: Path, target: str) -> None:
        """Copy a folder under another name first, then move it into place."""
        _copy(source, with_home(target))

    def receive(self, source: str, target: Path) -> None:
        """Copy a folder under another name first, then move it into place."""
        _copy(with_home(source), target)


def _copy(source: Path, target: Path) -> None:
    if os.path.lexists(target):
        raise UserError(f"{target} already exists", "choose another name")
    staging = target.with_name(f".{target.name}.part")
    try:
        _refuse_endless(source, target)
        shutil.copytree(source, staging, symlinks=True, dirs_exist_ok=True)
        staging.replace(target)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise UserError(
            f"{source} can't be copied to {target}: {error}",
            "choose a folder that you may write, on a disk with enough space",
        ) from None


def _refuse_endless(source: Path, target: Path) -> None:
    """Raise UserError for a device, a pipe or a socket, of which a copy may never end, and for more than has room."""
    total = 0
    for folder, _, names in os.walk(source):
        for path in (Path(folder, name) for name in names):
            facts = path.lstat()
            if not (stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode)):
                raise UserError(f"{path} is no regular file, and can't be copied", "remove it")
            total += facts.st_size
    there = next(folder for folder in target.parents if folder.exists())
    free = shutil.disk_usage(there).free
    if total > free:
        raise UserError(
            f"{source} has {total / 1e9:,.1f} GB of files, and {there} has room for {free / 1e9:,.1f} GB",
            "remove what is not needed, or choose a folder on a disk with enough space",
        )


HERE: Machine = ThisMachine()


@functools.cache
def machine_at(host: str | None, user: str | None = None) -> Machine:
    """Return the machine that ssh knows as `host`; None is this one. All callers share one connection to it."""
    if host is None:
        return HERE
    from trainjob.machines.ssh.machine import SshMachine

    return SshMachine(host, user)


def machine_of(cluster: Cluster) -> Machine:
    """Return the machine on which jobs of `cluster` are submitted."""
    return machine_at(cluster.ssh.host, cluster.ssh.user) if cluster.ssh else HERE
