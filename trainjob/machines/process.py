"""The only module that starts subprocesses: arguments are lists, and a failure keeps the whole output."""

from __future__ import annotations

import errno
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from trainjob.contract.errors import UserError


class Completed(NamedTuple):
    """A command that has ended. `stdout` is bytes, because git's output and logs may contain any bytes."""

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

    code = "command"

    def __init__(self, text: str, completed: Completed | None = None, cure: str = "") -> None:
        super().__init__(text, cure)
        self.completed = completed


class NotStartedError(CommandError):
    """A system command that could not be started, so that it has done nothing."""


class TimedOutError(CommandError):
    """A system command did not end in time; it may or may not have done its work."""


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
    """Return the command's result when it has ended. `stdin` is what it reads, bytes or an open file.

    With `stdout`, its output goes into that open file instead. Raises TimedOutError when it takes longer than
    `timeout_s`, CommandError when it is missing or (with `check`) exits non-zero.
    """
    # Errors go to a file: a helper that outlives the command, like ssh's shared connection, would keep a pipe open.
    streams: dict[str, Any] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    with _starting(arguments[0], folder), tempfile.TemporaryFile() as stderr:
        try:
            ended = subprocess.run(
                list(arguments),
                **streams,
                stdout=subprocess.PIPE if stdout is None else stdout,
                stderr=stderr,
                timeout=timeout_s,
                cwd=folder,
                env=None if environment is None else dict(environment),
                check=False,
            )
        except subprocess.TimeoutExpired:
            text = f"`{_shown(arguments)}` did not end within {timeout_s:g} s"
            raise TimedOutError(text, cure="call it in a shell to see whether it hangs") from None
        stderr.seek(0)
        errors = stderr.read().decode(errors="replace")
    completed = Completed(tuple(arguments), ended.returncode, ended.stdout or b"", errors)
    if check:
        refuse_failure(completed)
    return completed


def refuse_failure(completed: Completed) -> None:
    """Raise CommandError, with its output, for a command that exited non-zero."""
    if completed.code != 0:
        output = completed.stderr.strip() or completed.text.strip()
        raise CommandError(f"`{_shown(completed.arguments)}` exited with {completed.code}: {output}", completed)


def _shown(arguments: Sequence[str]) -> str:
    """Return the command as one line. A program whose source is an argument is named, not printed."""
    words = list(arguments)
    if len(words) > 3 and words[1] == "-c" and "\n" in words[2]:
        words = words[3:]
    return shlex.join(f"{word.splitlines()[0]} …" if "\n" in word else word for word in words)


@contextmanager
def _starting(program: str, folder: Path | None = None) -> Iterator[None]:
    """Raise NotStartedError where the system does not start what is started inside."""
    try:
        yield
    except OSError as error:
        raise _not_started(program, folder, error) from None


def _not_started(program: str, folder: Path | None, error: OSError) -> NotStartedError:
    if folder is not None and not folder.is_dir():
        return NotStartedError(f"{program} can't be started in {folder}: that is not a folder", cure="create it")
    if isinstance(error, FileNotFoundError):
        return NotStartedError(f"{program} is not on PATH", cure="install it, or add its folder to PATH")
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM):
        cure = "wait, or raise the limit (ulimit -a shows them)"
        return NotStartedError(f"{program} can't be started: {error.strerror}", cure=cure)
    if error.errno == errno.E2BIG:
        text = f"the arguments and the environment of {program} are larger than this system takes"
        return NotStartedError(text, cure="shorten what is passed to it, or unset large variables")
    cure = "make it executable" if isinstance(error, PermissionError) else "call it in a shell to see whether it works"
    return NotStartedError(f"{program} can't be started: {error.strerror}", cure=cure)


def show(
    arguments: Sequence[str],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    to_stderr: bool = False,
) -> int:
    """Return the exit code of a command that reads and writes our own terminal. Raises CommandError when missing.

    `to_stderr`: its output goes to stderr, because ours is for machines.
    """
    output = sys.stderr if to_stderr else None
    environ = None if environment is None else dict(environment)
    # A relative name is looked up on the command's own PATH, not on ours.
    program = shutil.which(arguments[0], path=None if environ is None else environ.get("PATH")) or arguments[0]
    with _starting(arguments[0], folder):
        return subprocess.run([program, *arguments[1:]], cwd=folder, env=environ, stdout=output, check=False).returncode


def search_path(python: str = sys.executable) -> str:
    """Return the user's PATH, with the folder of the interpreter `python` in front unless PATH names it already."""
    path = os.environ.get("PATH", os.defpath)
    folder, name = os.path.split(python)
    return path if shutil.which(name, path=path) == python else os.pathsep.join([folder, path])


def path_of_ranks(*, is_command: bool) -> str:
    """Return the PATH of ranks that run on this machine, for a cluster file that names no interpreter.

    A user's own command runs what the user's PATH names: an activated virtualenv, say. A task is trained by our own
    interpreter, unless only the user's has torch (trainjob installed as a tool).
    """
    has_torch = importlib.util.find_spec("torch") is not None
    if shutil.which("python3") is not None and (is_command or not has_torch):
        return os.environ.get("PATH", os.defpath)
    return search_path()


def start_detached(arguments: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str]) -> int:
    """Return the process id of a command that outlives us: its own session, no terminal, output appended to `log`."""
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
    # No process waits for it; its files record how it ends. Without this, Popen warns when it is garbage-collected.
    process.returncode = 0
    return process.pid


def ask_for_password() -> None:
    """Return once sudo runs commands without asking. Raises CommandError if it refuses."""
    command = ["sudo", "--validate", *([] if sys.stdin.isatty() else ["--non-interactive"])]
    # sudo asks on the user's own terminal, and remembers the answer for the commands that follow.
    if subprocess.run(command, check=False).returncode != 0:
        raise CommandError(
            "this needs root, and sudo refused", cure="run the command as root, or ask your administrator"
        )


class Kept:
    """A command that lives as long as this process, whose end closes the command's input."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """True if it has ended by itself."""
        return self._process.poll() is not None

    def tell(self, line: str) -> None:
        """Write a line to its input. Raises CommandError where it has ended."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(f"{line}\n".encode(errors="surrogateescape"))
                self._process.stdin.flush()
        except OSError as error:
            raise CommandError(f"a helper process has ended: {error.strerror}", cure="try again") from None

    def close(self, timeout_s: float) -> bool:
        """Close its input, and return whether it has ended within `timeout_s`; otherwise it goes on."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self, timeout_s: float = 30.0) -> None:
        """Close its input and return when it has ended; it is killed if that takes longer than `timeout_s`."""
        if not self.close(timeout_s):
            self._process.kill()
            self._process.wait(timeout_s)


def keep(arguments: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None) -> Kept:
    """Return the command, started with its input kept open by us and its output appended to `log`.

    Raises CommandError when it can't be started. Ctrl-C does not reach it; the caller ends it.
    """
    with log.open("ab", buffering=0) as stream, _starting(arguments[0]):
        process = subprocess.Popen(
            list(arguments),
            env=None if environment is None else dict(environment),
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=stream,
            process_group=0,
        )
    return Kept(process)


def lines_of(arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> Generator[str, None, int]:
    """Yield a command's output line by line and return its exit code; its errors go where ours go.

    Closing the generator ends the command. Raises CommandError when it is missing.
    """
    with _starting(arguments[0], folder):
        process = subprocess.Popen(
            list(arguments),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
    with process:
        try:
            yield from process.stdout or ()
        finally:
            if process.poll() is None:
                process.terminate()
    return process.returncode
