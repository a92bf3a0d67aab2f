"""A machine that ssh reaches."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from trainjob.contract import quoting
from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.machines.machine import ANSWER_S
from trainjob.machines.process import Completed, TimedOutError
from trainjob.machines.ssh import failures, transfer
from trainjob.machines.ssh.connection import Target
from trainjob.machines.ssh.failures import SshError

_MARK = "::trainjob::"


class SshMachine:
    """Fits Machine. The first command opens the connection, which all later ones share."""

    def __init__(self, host: str, user: str | None = None) -> None:
        self.name = host
        self._target = Target(host, user)

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
        """Return the command's result. Raises SshError when the machine can't be reached or the connection is cut."""
        words = self._target.command(remote_text(arguments, folder, _MARK if stdout is None else ""))
        try:
            ended = process.run(words, timeout_s=timeout_s, check=False, stdin=stdin, stdout=stdout)
        except TimedOutError:
            message = f"ssh to {self.name}: `{arguments[0]}` did not answer within {timeout_s:g} s"
            raise SshError("timeout", message, reached=True) from None
        if ended.code == failures.FAILED:
            raise failures.error(self._target, ended.stderr)
        # Errors show the command itself, not how ssh was called.
        # A start-up file of the user's shell may have printed text before the mark.
        greeting, mark, rest = ended.stdout.partition(f"{_MARK}\n".encode())
        completed = Completed(tuple(arguments), ended.code, rest if mark else greeting, ended.stderr)
        if check:
            process.refuse_failure(completed)
        return completed

    def interactive(self, arguments: Sequence[str], *, terminal: bool) -> list[str]:
        """Return the ssh command that runs `arguments`."""
        return self._target.command(remote_text(arguments, None), terminal=terminal)

    def send(self, source: Path, target: str) -> None:
        """Copy a folder to the machine by rsync, or by tar if one end lacks rsync."""
        transfer.send(self, source, target)

    def receive(self, source: str, target: Path) -> None:
        """Copy a folder from the machine."""
        transfer.receive(self, source, target)

    def rsync(self, arguments: Sequence[str], *, timeout_s: float) -> Completed:
        """Return rsync's result, over the connection of `run`; the caller reads its exit code."""
        command = ["rsync", "-e", self._target.for_rsync, *arguments]
        return process.run(command, timeout_s=timeout_s, check=False)

    def failure(self, ended: Completed) -> SshError:
        """Return the error that an ssh has ended with."""
        return failures.error(self._target, ended.stderr)

    def disconnect(self) -> None:
        """Close the shared connection, if trainjob has opened one."""
        process.run(self._target.closing_command, check=False)


def remote_text(arguments: Sequence[str], folder: str | None, mark: str = "") -> str:
    """Return the text for the user's shell on the machine, which is not always sh: a list of words, each quoted once.

    A line with `mark` is printed first. Raises UserError for text that no argument can hold.
    """
    if not arguments:
        raise UserError("a command needs at least one word", "name a program")
    line = shlex.join(arguments)
    print_mark = f"printf '{mark}\\n'; " if mark else ""
    change_folder = "" if folder is None else f"cd {quoting.path(folder)} && "
    return quoting.for_any_shell(f"{print_mark}{change_folder}exec {line}")
