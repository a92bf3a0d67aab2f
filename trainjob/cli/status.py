"""trainjob status: what has become of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.report import Run

if TYPE_CHECKING:
    from trainjob.runs.status import Status

app = new()


@app.command()
def status(run: Run, as_json: show.AsJson = False) -> None:
    """Show what has become of a run."""
    from trainjob.runs import index
    from trainjob.runs.status import status as found

    now = found(index.find(run))
    if as_json:
        show.as_json(now.as_json())
        return
    typer.echo(f"{now.id} · {now.state}{f' ({now.note})' if now.note else ''}")
    show.rows(_rows(now))
    print_tasks(now)
    print_failure(now)


def _rows(now: Status) -> Iterator[tuple[str, str]]:
    yield "cluster", now.cluster or "by hand"
    yield "submitted", now.submitted_at or "by hand"
    yield "attempt", str(now.attempt)
    if now.update is not None:
        yield "progress", f"epoch {now.epoch}, update {now.update} of {now.total_updates or 'unknown'}"
    if now.heartbeat is not None:
        yield "last sign of life", f"{show.seconds(max(0.0, time.time() - now.heartbeat))} ago"
    if now.exit_code is not None:
        yield "exit code", str(now.exit_code)
    yield "run directory", now.folder


def print_tasks(now: Status) -> None:
    """Print the tasks of an array, one a line."""
    if now.tasks:
        typer.echo()
        body = ((one.id, one.state, str(one.attempt), str(one.update or "-"), one.note or "") for one in now.tasks)
        show.table(("TASK", "STATE", "ATTEMPT", "UPDATE", ""), body)


def print_failure(now: Status) -> None:
    """Print which rank failed first and the end of what it printed; else the end of what the job script printed."""
    failed = now.failure
    if failed is not None:
        code = _exit(failed.exit_code)
        typer.echo(f"\nrank {failed.rank} on {failed.host} failed first, with exit code {code}. Its last lines:")
    elif now.script_tail:
        typer.echo("\nno rank is known to have failed. The job script's last lines:")
    for line in failed.tail if failed else now.script_tail:
        typer.echo(f"  | {line}")


def _exit(code: int) -> str:
    import signal

    try:
        return f"{code} ({signal.Signals(code - 128).name})" if code > 128 else str(code)
    except ValueError:
        return str(code)
