"""Calls ssh with the user's own configuration, one shared connection, and never a question on a terminal."""

from __future__ import annotations

import functools
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
class SshTarget:
    """A host that ssh reaches, for one of its users."""

    host: str
    user: str | None

    @property
    def _words(self) -> list[str]:
        return [*([] if self.user is None else ["-l", self.user]), "--", self.host]

    @functools.cached_property
    def _configured(self) -> list[tuple[str, str]]:
        """The user's configuration of the host, which `ssh -G` prints without connecting. Raises CommandError."""
        lines = process.run(["ssh", "-G", *self._words]).text.splitlines()
        return [(key, value) for key, _, value in (line.partition(" ") for line in lines)]

    @functools.cached_property
    def settings(self) -> dict[str, str]:
        """The user's configuration of the host, by the keys of ssh_config in lower case."""
        return dict(self._configured)

    @property
    def identity_files(self) -> list[str]:
        """The private keys that ssh tries."""
        return [os.path.expanduser(value) for key, value in self._configured if key == "identityfile"]

    @property
    def address(self) -> str:
        """The name and port that ssh connects to."""
        return f"{self.settings.get('hostname', self.host)} port {self.settings.get('port', '22')}"

    @property
    def login(self) -> str:
        """The command with which a user logs in."""
        return shlex.join(["ssh", *([] if self.user is None else ["-l", self.user]), self.host])

    @property
    def options(self) -> list[str]:
        """The options of ssh: the user's settings of the connection stay, the rest is ours."""
        timeout = self.settings.get("connecttimeout", "none")
        words = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout if timeout.isdigit() else CONNECT_S}"]
        if self.settings.get("serveraliveinterval", "0") == "0":
            words += ["-o", "ServerAliveInterval=15"]
        return words if self._has_own_sockets else [*words, *self._sharing(f"{PERSIST_S}")]

    @property
    def _has_own_sockets(self) -> bool:
        return self.settings.get("controlpath", "none") != "none"

    def _sharing(self, persist: str) -> list[str]:
        """Return the options that share a connection, at the user's own path if one is set."""
        path = [] if self._has_own_sockets else ["-o", f"ControlPath={socket_folder()}/%C"]
        return ["-o", "ControlMaster=auto", *path, "-o", f"ControlPersist={persist}"]

    @property
    def opening_command(self) -> str:
        """The command with which a user opens the connection that later commands share."""
        return shlex.join(["ssh", "-fN", *self._sharing("8h"), *self._words])

    @property
    def for_rsync(self) -> str:
        """The value of rsync's -e, which is split at spaces; none of our options contains one."""
        return shlex.join(["ssh", "-T", *self.options, *([] if self.user is None else ["-l", self.user])])

    def command(self, remote: str, *, terminal: bool = False) -> list[str]:
        """Return the words that run `remote`, finished shell, on the host."""
        return ["ssh", "-t" if terminal else "-T", *self.options, *self._words, remote]


def socket_folder() -> Path:
    """Return the private folder of the shared connections. Raises UserError if it belongs to another user."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108 - checked below
        name = "trainjob" if parent == os.environ.get("XDG_RUNTIME_DIR") else f"trainjob-{os.getuid()}"
        path = f"{parent}/{name}"
        is_plain = len(path) <= _LONGEST_FOLDER and not any(sign in path for sign in " %\"'\\$~")
        if parent and os.path.isdir(parent) and is_plain:
            folder = Path(path)
            break
    else:
        raise UserError(
            "no folder has a path short enough for ssh's socket", "set XDG_RUNTIME_DIR to a folder of yours"
        )
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
