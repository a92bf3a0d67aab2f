"""trainjob export: the model as plain weights, and a run's metrics for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainjob.cli.command import AsJson, RunName, command, commands
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.contract.paths import RunPaths

app = commands()


@command(
    app,
    "trainjob export last -o model.safetensors",
    "trainjob export k3xq --tensorboard tb --json",
)
def export(
    run: RunName,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the weights to FILE, in the safetensors layout."),
    ] = None,
    tensorboard: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Write settings and metrics for TensorBoard; `wandb sync` uploads these event files to Weights & "
            "Biases.",
        ),
    ] = None,
    averaged: Annotated[
        bool,
        typer.Option("--averaged", help="With -o: the moving average of the weights, of a run with --average-decay."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the trained model as plain weights, or metrics for TensorBoard."""
    from trainjob.observe import index

    if averaged and output is None:
        raise typer.BadParameter("--averaged is for the weights: name a file for them with -o FILE")
    if output is None and tensorboard is None:
        raise typer.BadParameter("name what to write: -o FILE or --tensorboard DIR")
    paths = index.find(run)
    written = {} if output is None else _weights(paths, output, averaged=averaged, quiet=as_json)
    exported = {} if tensorboard is None else {"exported": _to_tensorboard(paths, tensorboard, quiet=as_json)}
    if as_json:
        show.as_json({**written, **exported})


def _weights(paths: RunPaths, output: Path, *, averaged: bool, quiet: bool) -> dict[str, Any]:
    from trainjob.lifecycle.export import export as write
    from trainjob.observe import arrays

    arrays.refuse_whole(paths, "export")
    what = "moving average of the weights" if averaged else "weights"
    checkpoint = write(paths, output, show.warning, averaged=averaged)
    size = output.stat().st_size
    if not quiet:
        typer.echo(f"{output} holds the {what} after update {checkpoint.update} ({show.size(size)})")
    return {"file": str(output), "update": checkpoint.update, "bytes": size}


def _to_tensorboard(paths: RunPaths, target: str, *, quiet: bool) -> list[dict[str, Any]]:
    """Export a run, or each element of an array."""
    from trainjob.lifecycle.tensorboard import history, to_tensorboard

    rows = []
    for one in paths.elements() or [paths]:
        place, lines = to_tensorboard(history(one), target)
        rows.append({"run": one.id, "to": "tensorboard", "place": place, "lines": lines})
        if not quiet:
            typer.echo(f"{one.id}: {lines} new lines of metrics for tensorboard: {place}")
    return rows
