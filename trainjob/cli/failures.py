"""The one place that turns exceptions into exit codes and messages."""

from __future__ import annotations

import errno
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

import trainjob
from trainjob.contract import exits
from trainjob.contract.errors import UserError
from trainjob.watch import terminal


class ReaderLeftError(Exception):
    """Nobody reads what we print any more; not an OSError, which typer would turn into exit code 1."""


@contextmanager
def handled(arguments: Sequence[str]) -> Iterator[None]:
    """End the process with the exit code of whatever is raised inside; no traceback is ever printed."""
    try:
        yield
    except UserError as error:
        _say(arguments, error)
        sys.exit(exits.USER_OR_CLUSTER_CAN_FIX)
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except typer.TyperException as error:
        error.show()  # type: ignore[attr-defined] # every kind that is raised has it
        sys.exit(exits.USAGE)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(exits.INTERRUPTED)
    except (BrokenPipeError, ReaderLeftError):
        # `trainjob logs RUN | head`
        write_to_nobody()
        sys.exit(exits.DONE)
    except OSError as error:
        refused = _refused(error)
        if refused is None:
            _say(arguments, _bug(arguments, error))
            sys.exit(exits.OUR_BUG)
        _say(arguments, refused)
        sys.exit(exits.USER_OR_CLUSTER_CAN_FIX)
    except Exception as error:  # noqa: BLE001 - whatever is left is our bug, and says so
        _say(arguments, _bug(arguments, error))
        sys.exit(exits.OUR_BUG)


def _refused(error: OSError) -> UserError | None:
    """Return what a disk or its owner refuses; None for anything else."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" for {error.filename}" if error.filename else ""
        return UserError(f"no space is left on the disk{where}", "Free some (`trainjob prune`)", "disk-full")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO):
        return UserError(
            f"{error.filename or 'a file'} can't be read or written ({error.strerror})",
            "ask whoever owns it",
            "permission",
        )
    if error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        return UserError(
            f"the machine refuses another process, memory or file ({error.strerror})",
            "wait, or raise the limit (ulimit -a shows them), then run the command again",
            "limits",
        )
    return None


def _bug(arguments: Sequence[str], error: Exception) -> UserError:
    try:
        where = f"What happened is in {_write_log(arguments)}"
    except OSError as refused:
        where = f"What happened can't be written down ({refused.strerror}): it was at {_place(error)}"
    return UserError(f"BUG: {type(error).__name__}: {error}. {where}", code="bug")


def _place(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"line {last.lineno} of {last.filename}"


def _say(arguments: Sequence[str], error: UserError) -> None:
    if "--json" in _before_the_command(arguments):
        typer.echo(terminal.as_json(error.as_json()))
    typer.echo(f"trainjob: {error}", err=True)


def _before_the_command(arguments: Sequence[str]) -> Sequence[str]:
    return arguments[: list(arguments).index("--")] if "--" in arguments else arguments


def write_to_nobody() -> None:
    """Drop what is printed from now on: Python would complain again when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _folder_for_logs() -> Path:
    import tempfile

    from trainjob.observe import index

    folder = index.home() / "bugs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir())
    return folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())


def _write_log(arguments: Sequence[str]) -> Path:
    log = _folder_for_logs() / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    head = f"trainjob {trainjob.__version__}, Python {platform.python_version()}, {platform.platform()}"
    log.write_text(f"{head}\ncommand: {list(arguments)}\n\n{traceback.format_exc()}")
    return log
