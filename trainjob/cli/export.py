"""trainjob export: the model as plain weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.report import Run

app = new()


@app.command()
def export(
    run: Run,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, in the safetensors layout.")],
    as_json: show.AsJson = False,
) -> None:
    """Write the trained model as plain weights."""
    from trainjob.runs import arrays, index
    from trainjob.runs.export import export as write

    paths = index.find(run)
    arrays.refuse_whole(paths, "export")
    checkpoint = write(paths, output, lambda text: typer.echo(f"warning: {text}", err=True))
    if as_json:
        show.as_json({"file": str(output), "update": checkpoint.update, "bytes": output.stat().st_size})
    else:
        typer.echo(f"{output} holds the weights after update {checkpoint.update} ({show.size(output.stat().st_size)})")
