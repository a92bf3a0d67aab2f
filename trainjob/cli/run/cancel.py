"""trainjob cancel: ends one run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trainjob.cli import complete
from trainjob.cli.command import AsJson, command, commands, fail_unless, finite
from trainjob.contract import states
from trainjob.watch import show

app = commands()


@command(app, "trainjob cancel last", "trainjob cancel k3xq --stop")
def cancel(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="Run id, a unique prefix of one, last, or a path. Without it, trainjob asks about the last.",
            autocompletion=complete.runs,
        ),
    ] = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="Only ask for a checkpoint and a stop at the next block.")
    ] = False,
    grace_s: Annotated[float, typer.Option(min=0, callback=finite, help="Seconds the ranks get to checkpoint.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """End every process of a run, and no other."""
    from trainjob.lifecycle import cancel as cancelling
    from trainjob.observe import index

    paths = index.find(run or "last")
    if run is None:
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"name the run: trainjob cancel {paths.id} is the last one")
        typer.confirm(f"cancel {paths.id}, the last run?", abort=True)
    after = cancelling.stop(paths) if stop else cancelling.cancel(paths, grace_s=grace_s)
    is_active = after.state in states.ACTIVE
    if as_json:
        show.as_json(after.as_json())
    elif stop and is_active:
        typer.echo(f"run {paths.id} was asked to checkpoint and stop at its next block")
    else:
        typer.echo(f"run {paths.id} is {after.state}")
    fail_unless(stop or not is_active)
