"""Calls ssh with the user's own configuration, one shared connection, and never a question on a terminal."""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trainjob.contract.errors import UserError
from trainjob.machines import process

CONNECT_S = 15
# How long the shared connection stays open after the last command.
PERSIST_S = 120
# A socket's path may have some 104 characters; %C is 40 of them, and ssh adds 17 while it opens the connection.
_LONGEST_FOLDER = 40


@dataclass(frozen=True)
class Settings:
    """A host's configuration by `ssh -G`: keys of ssh_config in lower case; there may be several identity files."""

    single: dict[str, str]
    identity_files: tuple[str, ...]


def settings(host: str, user: str | None) -> Settings:
    """Return the user's configuration of `host`, without connecting. Raises CommandError."""
    single: dict[str, str] = {}
    identities = []
    for line in process.run(["ssh", "-G", *_destination(host, user)]).text.splitlines():
        key, _, value = line.partition(" ")
        single[key] = value
        if key == "identityfile":
            identities.append(os.path.expanduser(value))
    return Settings(single, tuple(identities))


def options(configured: Settings) -> list[str]:
    """Return ssh's options: the user's settings of the connection stay, the rest is ours."""
    timeout = configured.single.get("connecttimeout", "none")
    words = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout if timeout.isdigit() else CONNECT_S}"]
    if configured.single.get("serveraliveinterval", "0") == "0":
        words += ["-o", "ServerAliveInterval=15"]
    if _has_own_sockets(configured):
        return words
    return [*words, *_shared(), "-o", f"ControlPersist={PERSIST_S}"]


def _has_own_sockets(configured: Settings) -> bool:
    return configured.single.get("controlpath", "none") != "none"


def _shared() -> list[str]:
    return ["-o", "ControlMaster=auto", "-o", f"ControlPath={socket_folder()}/%C"]


def opening_command(host: str, user: str | None, configured: Settings) -> str:
    """Return the command with which a user opens the connection that later commands share."""
    sockets = [] if _has_own_sockets(configured) else _shared()
    opening = ["ssh", "-fN", "-o", "ControlMaster=auto", *sockets[2:], "-o", "ControlPersist=8h"]
    return shlex.join([*opening, *_destination(host, user)])


def command(host: str, user: str | None, configured: Settings, remote: str) -> list[str]:
    """Return the words that run `remote`, finished shell, on the host."""
    return ["ssh", "-T", *options(configured), *_destination(host, user), remote]


def closing_command(host: str, user: str | None, configured: Settings) -> list[str]:
    """Return the words that close the shared connection."""
    return ["ssh", *options(configured), "-O", "exit", *_destination(host, user)]


def for_rsync(user: str | None, configured: Settings) -> str:
    """Return the value of rsync's -e, which is split at spaces; none of our options contains one."""
    return shlex.join(["ssh", "-T", *options(configured), *([] if user is None else ["-l", user])])


def _destination(host: str, user: str | None) -> list[str]:
    return [*([] if user is None else ["-l", user]), "--", host]


def socket_folder() -> Path:
    """Return the private folder of the shared connections. Raises UserError if it belongs to somebody else."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108 - checked below
        name = "trainjob" if parent == os.environ.get("XDG_RUNTIME_DIR") else f"trainjob-{os.getuid()}"
        path = f"{parent}/{name}"
        is_plain = len(path) <= _LONGEST_FOLDER and not any(sign in path for sign in " %\"'\\$~")
        if parent and os.path.isdir(parent) and is_plain:
            return _private(Path(path))
    raise UserError("no folder has a path short enough for ssh's socket", "set XDG_RUNTIME_DIR to a folder of yours")


def _private(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder}, for ssh's shared connection, can't be created: {error.strerror}",
            "set XDG_RUNTIME_DIR to a folder of yours",
        ) from None
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise UserError(
            f"{folder}, for ssh's shared connection, must be a folder of yours alone", f"run: chmod 700 {folder}"
        )
    return folder
