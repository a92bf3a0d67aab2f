"""Whether a run directory is this user's alone to write: what is in it is executed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.machines.machine import Machine

# What `share` in a cluster file gives a run directory. Nobody but its owner ever writes in it.
MODES = {"none": 0o700, "group": 0o750, "all": 0o755}


class ForeignRunError(UserError):
    """A run directory in which somebody else has, or could have, put what we would execute."""

    code = "foreign-run"


def refuse_foreign(folder: Path) -> None:
    """Raise ForeignRunError unless `folder` is a folder, no link, of this user, in which nobody else may write."""
    try:
        status = folder.lstat()
    except OSError as error:
        raise UserError(
            f"run directory {folder} can't be read: {error.strerror}", "`trainjob list` shows the runs"
        ) from None
    if stat.S_ISLNK(status.st_mode):
        raise ForeignRunError(
            f"run directory {folder} is a link, and a run is used only under its own path",
            f"Nobody but you can have put it there, or somebody has replaced your run. Look at it: ls -ld {folder}",
        )
    if status.st_uid != os.geteuid():
        raise ForeignRunError(
            f"run directory {folder} belongs to {_user(status.st_uid)}, and you are {_user(os.geteuid())}",
            "Only its owner can use it: trainjob would execute what is in it",
        )
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise ForeignRunError(
            f"run directory {folder} has mode {stat.S_IMODE(status.st_mode):04o}: others can change what it executes",
            f"If you trust what is in it: chmod go-w {folder}",
        )


def refuse_foreign_content(machine: Machine, folder: str) -> None:
    """Raise ForeignRunError where others could have replaced what is executed in the run directory on `machine`."""
    ended = machine.run(package.program_command(__file__, "foreign_files", folder), check=False)
    if ended.code != 0:
        listed = ended.text.strip().splitlines() or [ended.stderr.strip() or "it can't be read"]
        raise ForeignRunError(
            f"run directory {folder} on {machine.name} holds what others can have put there: {'; '.join(listed)}",
            f"If you trust it: chmod -R go-w {folder}. A link, or what belongs to somebody else, has to go",
        )


def _user(uid: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
