"""The one place that turns exceptions into exit codes and messages."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

import trainjob
from trainjob.contract import exits
from trainjob.contract.errors import UserError
from trainjob.watch import show

_SHOWN = 200  # signs of a path


class ReaderLeftError(Exception):
    """The reader of the output has gone; not an OSError, which typer would turn into exit code 1."""


@contextmanager
def handled(arguments: Sequence[str]) -> Iterator[None]:
    """End the process with the exit code of whatever is raised inside; no traceback is ever printed."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
    except (BrokenPipeError, ReaderLeftError):
        # `trainjob logs RUN | head`
        discard_output()
        sys.exit(exits.DONE)
    except Exception as error:  # noqa: BLE001 - what is not expected is our bug, and the message says so
        expected = error if isinstance(error, UserError) else _refused(error)
        failure = expected or _bug(arguments, error)
        options = arguments[: list(arguments).index("--")] if "--" in arguments else arguments
        if isinstance(error, show.OutputLostError):
            discard_output()
        elif "--json" in options:
            with suppress(OSError):
                typer.echo(show.json_text(show.versioned(failure.as_json())))
        with suppress(OSError):
            typer.echo(f"{show.painted('trainjob', 'red', sys.stderr)}: {failure}", err=True)
        if expected is not None and expected.is_out_of_reach:
            sys.exit(exits.OUT_OF_REACH)
        sys.exit(exits.USER_OR_CLUSTER_CAN_FIX if expected else exits.OUR_BUG)


@contextmanager
def printed_on_lost_output(line: str) -> Iterator[None]:
    """Print `line` on the error stream where the output can't be written inside: what has begun has a name."""
    try:
        yield
    except (OSError, ReaderLeftError, show.OutputLostError):
        with suppress(OSError):
            typer.echo(line, err=True)
        raise


def discard_output() -> None:
    """Drop what is printed from now on: Python would complain again when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refused(error: Exception) -> UserError | None:
    """Return what a disk, its owner or a limit refuses; None for anything else."""
    # Python has no error of its own for a thread that can't be started.
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't start new thread" in str(error)):
        error = OSError(errno.EAGAIN, "no memory" if isinstance(error, MemoryError) else "no further thread")
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
        return UserError(str(error), "correct the link, which leads to itself")
    if isinstance(error, ModuleNotFoundError) and (error.name or "trainjob").partition(".")[0] != "trainjob":
        cure = "call trainjob by the Python in which pip has installed it"
        return UserError(f"{sys.executable} has no {error.name}, which trainjob needs", cure, "not-installed")
    if not isinstance(error, OSError):
        return None
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        file = str(error.filename or "a path")
        shown = file if len(file) <= _SHOWN else f"{file[:_SHOWN]}…"
        return UserError(f"{shown} can't be used ({error.strerror})", "choose another path, or remove it")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" for {error.filename}" if error.filename else ", or where the output goes"
        return UserError(f"no space is left on the disk{where}", "Free some (`trainjob prune`)", "disk-full")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO):
        file = error.filename or "a file"
        return UserError(f"{file} can't be read or written ({error.strerror})", "ask whoever owns it", "permission")
    if error.errno in (errno.ESTALE, errno.EREMOTEIO, errno.ENOLCK, errno.ETIMEDOUT, errno.ENODEV, errno.ENOTCONN):
        file = error.filename or "a file"
        cure = "its file server or mount has gone: look at it with ls, and call this again once it answers"
        return UserError(f"{file} can't be reached ({error.strerror})", cure, "storage")
    if error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        return UserError(
            f"this machine has run out of processes, memory or open files ({error.strerror})",
            "wait, or raise the limit (ulimit -a shows them), then run the command again",
            "limits",
        )
    return None


def _bug(arguments: Sequence[str], error: Exception) -> UserError:
    """Return what to say of our bug, with the file to which its traceback was written."""
    import platform
    import tempfile
    import time
    import traceback

    from trainjob.contract import clock
    from trainjob.contract.paths import home

    try:
        folder = home() / "bugs"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, UserError):
        folder = Path(tempfile.gettempdir())
    if not os.access(folder, os.W_OK):
        folder = Path(tempfile.gettempdir())
    at = time.strftime("%Y%m%d-%H%M%S", time.localtime(clock.time()))
    log = folder / f"{at}-{os.getpid()}.log"
    system = os.uname()  # platform.platform() would start a process
    where = f"{system.sysname} {system.release} {system.machine}"
    head = f"trainjob {trainjob.__version__}, Python {platform.python_version()}, {where}"
    try:
        with log.open("x") as stream:  # never through a link that waits under the name
            stream.write(f"{head}\ncommand: {list(arguments)}\n\n{traceback.format_exc()}")
        where = f"Details: {log}"
    except OSError as refused:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"It was at line {last.lineno} of {last.filename}; details can't be written ({refused.strerror})"
    return UserError(f"BUG: {type(error).__name__}: {error}. {where}", code="bug")
