"""trainjob export: the model as plain weights, and a run's metrics for the tools that people already use."""

from __future__ import annotations

from collections.abc import Mapping
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
    "trainjob export k3xq --tensorboard tb --mlflow sqlite:///mlflow.db --json",
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
    mlflow: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Log settings and metrics to an MLflow server or store."),
    ] = None,
    averaged: Annotated[
        bool,
        typer.Option("--averaged", help="With -o: the moving average of the weights, of a run with --average-decay."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the trained model as plain weights, or metrics for TensorBoard and MLflow."""
    from trainjob.observe import index

    targets = {"tensorboard": tensorboard, "mlflow": mlflow}
    wanted = {tool: target for tool, target in targets.items() if target is not None}
    if averaged and output is None:
        raise typer.BadParameter("--averaged is for the weights: name a file for them with -o FILE")
    if output is None and not wanted:
        raise typer.BadParameter("name what to write: -o FILE, --tensorboard DIR or --mlflow URI")
    paths = index.find(run)
    written = {} if output is None else _weights(paths, output, averaged=averaged, quiet=as_json)
    exported = _to_trackers(paths, wanted, quiet=as_json) if wanted else []
    if as_json:
        show.as_json({**written, **({"exported": exported} if wanted else {})})


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


def _to_trackers(paths: RunPaths, targets: Mapping[str, str], *, quiet: bool) -> list[dict[str, Any]]:
    """Export a run, or each element of an array, to every tool that was named."""
    from trainjob.lifecycle.trackers import TRACKERS, history
    from trainjob.observe import arrays

    rows = []
    for one in arrays.elements(paths) or [paths]:
        seen = history(one)
        for tool, target in targets.items():
            place, lines = TRACKERS[tool](seen, target)
            rows.append({"run": one.id, "to": tool, "place": place, "lines": lines})
            if not quiet:
                typer.echo(f"{one.id}: {lines} new lines of metrics for {tool}: {place}")
    return rows
