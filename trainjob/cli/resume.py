"""trainjob resume: one more attempt."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.report import Run

app = new()


@app.command()
def resume(
    run: Run,
    instances: Annotated[
        int | None,
        typer.Option("--instances", help="Go on with another number of instances and the same global batch."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stay until the run ends; Ctrl-C lets go of it.")
    ] = False,
    as_json: show.AsJson = False,
) -> None:
    """Start one more attempt of a run that ended early."""
    from trainjob.cli import following
    from trainjob.cli.prepared import our_templates, site_templates
    from trainjob.render.rendered import render
    from trainjob.runs import index, start
    from trainjob.runs import resume as resuming
    from trainjob.submit.folder import write_rendered

    start.refuse_redirects(os.environ)
    paths = index.find(run)
    resuming.check_resumable(paths)
    if instances is not None:
        write_rendered(paths, render(resuming.with_instances(paths, instances), our_templates(), site_templates()))
    resuming.resume(paths)
    if not as_json:
        typer.echo(f"run {paths.id} goes on: {paths.folder}")
    if follow:
        raise typer.Exit(following.to_the_end(paths, as_json=as_json))
    if as_json:
        show.as_json({"id": paths.id, "folder": str(paths.folder)})
