"""The one place that starts subprocesses: arguments are lists, and a failure carries everything."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from trainjob.contract.errors import UserError


@dataclass(frozen=True)
class Completed:
    """A command that has ended. `stdout` is bytes where git or a log may hold any."""

    arguments: tuple[str, ...]
    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """The output as text."""
        return self.stdout.decode(errors="replace")


class CommandError(UserError):
    """A system command failed, hung or is missing."""

    def __init__(self, message: str, completed: Completed | None = None) -> None:
        super().__init__(message)
        self.completed = completed


class TimedOutError(CommandError):
    """A system command gave no answer in time: what it was to do may be done or not."""


def run(
    arguments: Sequence[str],
    *,
    timeout_s: float = 60.0,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    check: bool = True,
    stdin: bytes | IO[bytes] = b"",
    stdout: IO[bytes] | None = None,
) -> Completed:
    """Return what the command left when it has ended. `stdin` is what it reads, bytes or an open file.

    With `stdout`, its output goes into that open file, and none is in what is returned. Raises TimedOutError when it
    takes longer than `timeout_s`, CommandError when it is missing or (with `check`) exits non-zero.
    """
    # Errors go to a file: a helper that outlives the command, as ssh's shared connection does, would hold a pipe open.
    with tempfile.TemporaryFile() as stderr:
        try:
            ended = subprocess.run(
                list(arguments),
                **_streams(stdin, stdout),
                stderr=stderr,
                timeout=timeout_s,
                cwd=folder,
                env=None if environment is None else dict(environment),
                check=False,
            )
        except OSError as error:
            raise CommandError(_why_not_started(arguments[0], folder, error)) from None
        except subprocess.TimeoutExpired:
            raise TimedOutError(f"`{shlex.join(arguments)}` gave no answer in {timeout_s:g} s") from None
        stderr.seek(0)
        said = stderr.read().decode(errors="replace")
    completed = Completed(tuple(arguments), ended.returncode, ended.stdout or b"", said)
    if check:
        refuse_failure(completed)
    return completed


def _streams(stdin: bytes | IO[bytes], stdout: IO[bytes] | None) -> dict[str, Any]:
    given = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    return {**given, "stdout": subprocess.PIPE if stdout is None else stdout}


def refuse_failure(completed: Completed) -> None:
    """Raise CommandError, with what it said, for a command that exited non-zero."""
    if completed.code != 0:
        said = completed.stderr.strip() or completed.text.strip()
        raise CommandError(f"`{shlex.join(completed.arguments)}` exited with {completed.code}: {said}", completed)


def _why_not_started(program: str, folder: Path | None, error: OSError) -> str:
    if folder is not None and not folder.is_dir():
        return f"{program} can't be started in {folder}: that is not a folder"
    if isinstance(error, FileNotFoundError):
        return f"{program} is not on PATH: install it, or add its folder to PATH"
    return f"{program} can't be started: {error.strerror}"


def show(
    arguments: Sequence[str],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    to_stderr: bool = False,
) -> int:
    """Return the exit code of a command that reads and writes our own terminal. Raises CommandError when missing.

    `to_stderr`: for what it prints, where our own output is for machines.
    """
    output = sys.stderr if to_stderr else None
    environ = None if environment is None else dict(environment)
    # A relative name is looked up on the command's own PATH, not on ours.
    program = shutil.which(arguments[0], path=None if environ is None else environ.get("PATH")) or arguments[0]
    try:
        return subprocess.run([program, *arguments[1:]], cwd=folder, env=environ, stdout=output, check=False).returncode
    except OSError as error:
        raise CommandError(_why_not_started(arguments[0], folder, error)) from None


def search_path() -> str:
    """Return the PATH of local runs: the folder of the interpreter that runs us comes first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def start_detached(arguments: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str]) -> int:
    """Return the process id of a command that outlives us: own session, no terminal, output appended to `log`."""
    with log.open("ab", buffering=0) as stream:
        process = subprocess.Popen(
            list(arguments),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    # Nobody here waits for it: its files say how it ends. Without this, Popen warns when it is collected.
    process.returncode = 0
    return process.pid


def ask_for_password() -> None:
    """Return when sudo will run commands without asking. Raises CommandError when it refuses."""
    said = ["sudo", "--validate", *([] if sys.stdin.isatty() else ["--non-interactive"])]
    # The user's own terminal: sudo asks there, and remembers for the commands that follow.
    if subprocess.run(said, check=False).returncode != 0:
        raise CommandError(
            "root's rights are needed and sudo refused them: run the command as root, or ask your administrator"
        )


class Kept:
    """A command that lives as long as we do: its standard input ends with us, however we end, and so should it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    def end(self, timeout_s: float = 30.0) -> None:
        """Close its input and return when it has ended; it is killed where that takes longer than `timeout_s`."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout_s)


def keep(arguments: Sequence[str], *, log: Path) -> Kept:
    """Return the command, started with its input held open by us and its output appended to `log`.

    Raises CommandError when it can't be started. Ctrl-C does not reach it: whoever keeps it ends it.
    """
    with log.open("ab", buffering=0) as stream:
        try:
            process = subprocess.Popen(
                list(arguments), stdin=subprocess.PIPE, stdout=stream, stderr=stream, process_group=0
            )
        except OSError as error:
            raise CommandError(_why_not_started(arguments[0], None, error)) from None
    return Kept(process)


def lines_of(arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> Generator[str, None, int]:
    """Yield a command's output line by line and return its exit code; its errors go where ours go.

    Whoever stops listening ends it. Raises CommandError when it is missing.
    """
    try:
        process = subprocess.Popen(
            list(arguments),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
    except OSError as error:
        raise CommandError(_why_not_started(arguments[0], folder, error)) from None
    with process:
        try:
            yield from process.stdout or ()
        finally:
            if process.poll() is None:
                process.terminate()
    return process.returncode
