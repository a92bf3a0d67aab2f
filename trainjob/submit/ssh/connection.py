"""How ssh is called: the user's own configuration, one shared connection, and never a question that nobody answers."""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trainjob.contract.errors import UserError
from trainjob.submit import process

CONNECT_S = 15
# How long the shared connection stays open after the last command.
PERSIST_S = 120
# A socket's path may have some 104 characters; %C is 40 of them, and ssh adds 17 while it opens the connection.
_LONGEST_FOLDER = 40


@dataclass(frozen=True)
class Settings:
    """What `ssh -G` says of a host: keys of ssh_config in lower case; identity files may be several."""

    single: dict[str, str]
    identity_files: tuple[str, ...]


def settings(host: str, user: str | None) -> Settings:
    """Return what the user's configuration says of `host`; nothing is connected. Raises CommandError."""
    single: dict[str, str] = {}
    identities = []
    for line in process.run(["ssh", "-G", *_destination(host, user)]).text.splitlines():
        key, _, value = line.partition(" ")
        single[key] = value
        if key == "identityfile":
            identities.append(os.path.expanduser(value))
    return Settings(single, tuple(identities))


def options(found: Settings) -> list[str]:
    """Return ssh's options: what the user has set for the connection holds, and the rest is ours."""
    asked = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_connect_s(found)}"]
    if found.single.get("serveraliveinterval", "0") == "0":
        asked += ["-o", "ServerAliveInterval=15"]
    if _has_own_sockets(found):
        return asked
    return [*asked, *_shared(), "-o", f"ControlPersist={PERSIST_S}"]


def _connect_s(found: Settings) -> str:
    asked = found.single.get("connecttimeout", "none")
    return asked if asked.isdigit() else str(CONNECT_S)


def _has_own_sockets(found: Settings) -> bool:
    return found.single.get("controlpath", "none") != "none"


def _shared() -> list[str]:
    return ["-o", "ControlMaster=auto", "-o", f"ControlPath={socket_folder()}/%C"]


def opening_command(host: str, user: str | None, found: Settings) -> str:
    """Return the command with which a user opens the connection that later commands share."""
    sockets = [] if _has_own_sockets(found) else _shared()
    opening = ["ssh", "-fN", "-o", "ControlMaster=auto", *sockets[2:], "-o", "ControlPersist=8h"]
    return shlex.join([*opening, *_destination(host, user)])


def command(host: str, user: str | None, found: Settings, remote: str) -> list[str]:
    """Return the words that run `remote`, finished shell, on the host."""
    return ["ssh", "-T", *options(found), *_destination(host, user), remote]


def closing_command(host: str, user: str | None, found: Settings) -> list[str]:
    """Return the words that end the shared connection."""
    return ["ssh", *options(found), "-O", "exit", *_destination(host, user)]


def for_rsync(user: str | None, found: Settings) -> str:
    """Return rsync's `-e`: it splits at spaces, and none of our options holds one."""
    return shlex.join(["ssh", "-T", *options(found), *([] if user is None else ["-l", user])])


def _destination(host: str, user: str | None) -> list[str]:
    return [*([] if user is None else ["-l", user]), "--", host]


def socket_folder() -> Path:
    """Return the private folder of the shared connections. Raises UserError where it is somebody else's."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108 - checked below
        name = "trainjob" if parent == os.environ.get("XDG_RUNTIME_DIR") else f"trainjob-{os.getuid()}"
        if parent and os.path.isdir(parent) and _is_plain(f"{parent}/{name}"):
            return _private(Path(parent) / name)
    raise UserError("no folder is short enough for ssh's socket: set XDG_RUNTIME_DIR to one of yours")


def _is_plain(path: str) -> bool:
    return len(path) <= _LONGEST_FOLDER and not any(sign in path for sign in " %\"'\\$~")


def _private(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}, for ssh's shared connection, can't be made: {error.strerror}") from None
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise UserError(f"{folder}, for ssh's shared connection, must be a folder of yours alone: chmod 700 {folder}")
    return folder
