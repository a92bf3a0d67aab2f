"""trainjob cancel: ends one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.look.report import Run
from trainjob.contract import exits, states
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.contract.paths import RunPaths

app = new()


@app.command(epilog=examples("trainjob cancel last", "trainjob cancel k3xq --stop"))
def cancel(
    run: Run,
    grace_s: Annotated[float, typer.Option("--grace-s", min=0, help="Seconds the ranks get to checkpoint.")] = 30.0,
    stop: Annotated[
        bool, typer.Option("--stop", help="Only ask for a checkpoint and a stop at the next block.")
    ] = False,
    as_json: show.AsJson = False,
) -> None:
    """End every process of a run, and no other."""
    from trainjob.lifecycle import cancel as cancelling
    from trainjob.observe import index

    paths = index.find(run)
    if stop:
        _stop(paths, as_json=as_json)
        return
    after = cancelling.cancel(paths, grace_s=grace_s)
    if as_json:
        show.as_json(after.as_json())
    else:
        typer.echo(f"run {paths.id} is {after.state}")
    if after.state in states.ACTIVE:
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)


def _stop(paths: RunPaths, *, as_json: bool) -> None:
    from trainjob.lifecycle import cancel as cancelling

    now = cancelling.stop(paths)
    if as_json:
        show.as_json(now.as_json())
    elif now.state in states.ACTIVE:
        typer.echo(f"run {paths.id} was asked to checkpoint and stop at its next block")
    else:
        typer.echo(f"run {paths.id} is {now.state}")
