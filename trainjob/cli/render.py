"""trainjob render: the bytes that would run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.job_flags import JobFlags, takes_a_job

app = new()


@app.command()
@takes_a_job
def render(
    flags: JobFlags,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write: job script, job.json, code.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show beside each line where its values came from.")
    ] = False,
    as_json: show.AsJson = False,
) -> None:
    """Print or write the bytes that would run."""
    from trainjob.cli.prepared import prepare, selected
    from trainjob.submit import folder

    prepared = prepare(flags)
    rendered = prepared.render()
    if explain:
        _explain(prepared.explained())
    elif output is not None:
        chosen = selected(prepared, untracked=flags.untracked)
        paths = folder.create(output, rendered, prepared.project if chosen else None, chosen)
        typer.echo(f"{paths.folder / rendered.script} is written: run it with `cd {output} && bash {rendered.script}`")
    elif as_json:
        show.as_json({name: file.content.decode() for name, file in rendered.files.items()})
    else:
        sys.stdout.buffer.write(rendered.files[rendered.script].content)


def _explain(explained: str) -> None:
    from trainjob.render.explain import beside

    lines = list(beside(explained))
    width = min(100, max(len(line) for line, _ in lines))
    for line, origins in lines:
        typer.echo(f"{line:<{width}}  # {origins}" if origins else line)
