"""trainjob cancel: ends one run."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.report import Run
from trainjob.contract import exits, states

app = new()


@app.command()
def cancel(
    run: Run,
    grace_s: Annotated[float, typer.Option("--grace-s", min=0, help="Seconds the ranks get to checkpoint.")] = 30.0,
    stop: Annotated[
        bool, typer.Option("--stop", help="Only ask for a checkpoint and a stop at the next block.")
    ] = False,
    as_json: show.AsJson = False,
) -> None:
    """End every process of a run, and no other."""
    from trainjob.runs import cancel as cancelling
    from trainjob.runs import index

    paths = index.find(run)
    if stop:
        cancelling.stop(paths)
        typer.echo(f"run {paths.id} is asked to checkpoint and stop at its next block")
        return
    after = cancelling.cancel(paths, grace_s=grace_s)
    if as_json:
        show.as_json(after.as_json())
    else:
        typer.echo(f"run {paths.id} is {after.state}")
    if after.state in states.ACTIVE:
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)
