"""trainjob resume: one more attempt."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.look.report import Run
from trainjob.watch import show

app = new()


@app.command(epilog=examples("trainjob resume last --follow", "trainjob resume k3xq --instances 4"))
def resume(
    run: Run,
    instances: Annotated[
        int | None,
        typer.Option("--instances", help="Continue with this number of instances and the same global batch."),
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Set all checkpoints aside and start over from the first update.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for the end of the run; Ctrl-C leaves it running.")
    ] = False,
    as_json: show.AsJson = False,
) -> None:
    """Continue a run that ended early, from its newest checkpoint."""
    from trainjob.cli import following
    from trainjob.requests import interface

    found = interface.run(run)
    paths = found.resume(instances=instances, from_scratch=from_scratch, warn=_warn).paths
    if not as_json:
        typer.echo(f"run {paths.id} continues: {paths.folder}")
    if follow:
        raise typer.Exit(following.to_the_end(paths, as_json=as_json))
    if as_json:
        show.as_json({"id": paths.id, "folder": str(paths.folder)})


def _warn(line: str) -> None:
    typer.echo(f"warning: {line}", err=True)
