"""The one place that turns exceptions into exit codes and messages."""

from __future__ import annotations

import json
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


class ReaderLeftError(Exception):
    """Nobody reads what we print any more; not an OSError, which typer would turn into exit code 1."""


@contextmanager
def handled(arguments: Sequence[str]) -> Iterator[None]:
    """End the process with the exit code of whatever is raised inside; no traceback is ever printed."""
    try:
        yield
    except UserError as error:
        _say(arguments, str(error))
        sys.exit(exits.USER_OR_CLUSTER_CAN_FIX)
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except typer.TyperException as error:
        error.show()  # type: ignore[attr-defined] # every kind that is raised has it
        sys.exit(exits.USAGE)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(exits.INTERRUPTED)
    except (BrokenPipeError, ReaderLeftError):
        _leave_the_pipe()
    except PermissionError as error:
        _say(arguments, f"{error.filename} can't be read or written ({error.strerror}): ask whoever owns it")
        sys.exit(exits.USER_OR_CLUSTER_CAN_FIX)
    except Exception as error:  # noqa: BLE001 - whatever is left is our bug, and says so
        _say(arguments, f"BUG: {type(error).__name__}: {error}. What happened is in {_write_log(arguments)}")
        sys.exit(exits.OUR_BUG)


def _say(arguments: Sequence[str], message: str) -> None:
    if "--json" in _before_the_command(arguments):
        typer.echo(json.dumps({"error": message}, ensure_ascii=False))
    typer.echo(f"trainjob: {message}", err=True)


def _before_the_command(arguments: Sequence[str]) -> Sequence[str]:
    return arguments[: list(arguments).index("--")] if "--" in arguments else arguments


def _leave_the_pipe() -> None:
    # `trainjob logs RUN | head`: nobody reads on, and Python would complain again when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(exits.DONE)


def _folder_for_logs() -> Path:
    import tempfile

    from trainjob.runs import index

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
