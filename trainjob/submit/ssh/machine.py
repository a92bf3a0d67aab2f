"""One machine over ssh, as a place where commands run."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from trainjob.contract.errors import UserError
from trainjob.render import quoting
from trainjob.submit import process
from trainjob.submit.machine import ANSWER_S
from trainjob.submit.process import Completed, TimedOutError
from trainjob.submit.ssh import connection, failures, transfer
from trainjob.submit.ssh.connection import Settings
from trainjob.submit.ssh.failures import SshError, Target

_MARK = "::trainjob::"


class SshMachine:
    """Fits Machine. Nothing is connected before the first command; the connection is shared by all that follow."""

    def __init__(self, host: str, user: str | None = None) -> None:
        self.name = host
        self._user = user

    @functools.cached_property
    def _settings(self) -> Settings:
        return connection.settings(self.name, self._user)

    @property
    def _target(self) -> Target:
        return Target(self.name, self._user, self._settings)

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
        """Return what the command left. Raises SshError when the machine can't be reached or the connection is cut."""
        words = connection.command(self.name, self._user, self._settings, self._text(arguments, folder, stdout))
        try:
            ended = process.run(words, timeout_s=timeout_s, check=False, stdin=stdin, stdout=stdout)
        except TimedOutError:
            message = f"ssh to {self.name}: `{arguments[0]}` gave no answer in {timeout_s:g} s"
            raise SshError("timeout", message, reached=True) from None
        if ended.code == failures.FAILED:
            raise failures.error(self._target, ended.stderr)
        # What the user reads is the command as it was meant, not as ssh was called.
        said = Completed(tuple(arguments), ended.code, _behind_the_greeting(ended.stdout), ended.stderr)
        if check:
            process.refuse_failure(said)
        return said

    @staticmethod
    def _text(arguments: Sequence[str], folder: str | None, stdout: IO[bytes] | None) -> str:
        text = remote_text(arguments, folder)
        return f"printf '{_MARK}\\n'; {text}" if stdout is None else text

    def send(self, source: Path, target: str) -> None:
        """Copy a folder there by rsync, or by tar where one end has none; half of one waits under another name."""
        transfer.send(self, source, target)

    def receive(self, source: str, target: Path) -> None:
        """Copy a folder from there."""
        transfer.receive(self, source, target)

    def rsync(self, arguments: Sequence[str], *, timeout_s: float) -> Completed:
        """Return what rsync left, which reaches the machine as `run` does; its exit code is the caller's to read."""
        asked = ["rsync", "-e", connection.for_rsync(self._user, self._settings), *arguments]
        return process.run(asked, timeout_s=timeout_s, check=False)

    def failure(self, ended: Completed) -> SshError:
        """Return what the words of an ssh that has failed mean."""
        return failures.error(self._target, ended.stderr)

    def disconnect(self) -> None:
        """End the shared connection that we opened, if there is one."""
        process.run(connection.closing_command(self.name, self._user, self._settings), check=False)


def remote_text(arguments: Sequence[str], folder: str | None) -> str:
    """Return the text that the user's shell over there reads: a list of words, each quoted once.

    Raises UserError for what no argument can carry.
    """
    if not arguments:
        raise UserError("a command has at least one word")
    line = " ".join(quoting.word(word) for word in arguments)
    place = "" if folder is None else f"cd {quoting.path(folder)} && "
    return f"{place}exec {line}"


def _behind_the_greeting(stdout: bytes) -> bytes:
    """Return what the command printed: a start-up file of the user's shell may have printed before it."""
    _, found, rest = stdout.partition(f"{_MARK}\n".encode())
    return rest if found else stdout
