"""The one place that starts subprocesses: arguments are lists, and a failure carries everything."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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


def run(
    arguments: Sequence[str],
    *,
    timeout_s: float = 60.0,
    folder: Path | None = None,
    check: bool = True,
) -> Completed:
    """Return what the command left when it has ended.

    Raises CommandError when it is missing, takes longer than `timeout_s`, or (with `check`) exits non-zero.
    """
    try:
        ended = subprocess.run(
            list(arguments), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, cwd=folder, check=False
        )
    except OSError as error:
        raise CommandError(_why_not_started(arguments[0], folder, error)) from None
    except subprocess.TimeoutExpired:
        raise CommandError(f"`{shlex.join(arguments)}` gave no answer in {timeout_s:g} s") from None
    completed = Completed(tuple(arguments), ended.returncode, ended.stdout, ended.stderr.decode(errors="replace"))
    if check and completed.code != 0:
        said = completed.stderr.strip() or completed.text.strip()
        raise CommandError(f"`{shlex.join(arguments)}` exited with {completed.code}: {said}", completed)
    return completed


def _why_not_started(program: str, folder: Path | None, error: OSError) -> str:
    if folder is not None and not folder.is_dir():
        return f"{program} can't be started in {folder}: that is not a folder"
    if isinstance(error, FileNotFoundError):
        return f"{program} is not on PATH: install it, or add its folder to PATH"
    return f"{program} can't be started: {error.strerror}"


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
