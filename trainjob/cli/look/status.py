"""trainjob status: what has become of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.look.report import Run
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.observe.outlook import Outlook
    from trainjob.observe.status import Snapshot

app = new()


@app.command(epilog=examples("trainjob status last", "trainjob status k3xq --json"))
def status(run: Run, as_json: show.AsJson = False) -> None:
    """Show the state of a run."""
    from trainjob.observe import index, notify
    from trainjob.observe.status import status as found

    notify.start_if_needed()
    now = found(index.find(run))
    if as_json:
        show.as_json(now.as_json())
        return
    typer.echo(f"{now.id} · {now.state}{f' ({now.note})' if now.note else ''}")
    show.rows(_rows(now))
    print_elements(now)
    print_failure(now)


def _rows(now: Snapshot) -> Iterator[tuple[str, str]]:
    yield "cluster", now.cluster or "by hand"
    yield "submitted", now.submitted_at or "by hand"
    if now.scheduler:
        yield "scheduler", " · ".join(f"{key.replace('_', ' ')} {value}" for key, value in now.scheduler.items())
    yield "attempt", str(now.attempt)
    if now.update is not None:
        yield "progress", f"epoch {now.epoch}, update {now.update} of {now.total_updates or 'unknown'}"
    if now.heartbeat is not None:
        yield "last sign of life", f"{show.seconds(max(0.0, time.time() - now.heartbeat))} ago"
    if now.outlook is not None:
        yield from _outlook(now.outlook)
    for excluded in now.excluded_nodes:
        yield "excluded node", f"{excluded['node']}, since attempt {excluded['attempt']}: {excluded['why']}"
    if now.at_risk:
        yield "disk", now.at_risk
    for line in now.checkpoint_lines:
        yield "checkpoints", line
    for line in now.damage:
        yield "damaged", line
    if now.exit_code is not None:
        yield "exit code", str(now.exit_code)
    yield "run directory", now.folder


def _outlook(outlook: Outlook) -> Iterator[tuple[str, str]]:
    yield "should end", f"in {show.seconds(outlook.left_s)}, by {outlook.basis}"
    if outlook.more_attempts and outlook.limit_left_s is not None:
        more = "another attempt" if outlook.more_attempts == 1 else f"{outlook.more_attempts} more attempts"
        limit = show.seconds(outlook.limit_left_s)
        yield "WARNING", f"its time limit comes first, in {limit}: it needs about {more}"


def print_elements(now: Snapshot) -> None:
    """Print the elements of an array, one a line."""
    if now.elements:
        typer.echo()
        # Why an element can't be asked about stands in the first line, once for all of them.
        body = (
            (one.id, one.state, str(one.attempt), str(one.update or "-"), "" if one.is_stale else one.note or "")
            for one in now.elements
        )
        show.table(("ELEMENT", "STATE", "ATTEMPT", "UPDATE", ""), body)


def print_failure(now: Snapshot) -> None:
    """Print why the run ended, and the last lines of the rank that failed first, else of the job script."""
    failed = now.failure
    if now.cause is not None:
        typer.echo(f"\nwhy: {now.cause}")
    if failed is not None:
        code = _exit(failed.exit_code)
        lines = "Its last lines:" if failed.tail else "It printed nothing."
        typer.echo(f"\nrank {failed.rank} on {failed.host} failed first, with exit code {code}. {lines}")
    elif now.script_tail:
        typer.echo("\nno failing rank is known. The last lines of the job script:")
    for line in failed.tail if failed else now.script_tail:
        typer.echo(f"  | {line}")


def _exit(code: int) -> str:
    import signal

    try:
        return f"{code} ({signal.Signals(code - 128).name})" if code > 128 else str(code)
    except ValueError:
        return str(code)
