"""Plots of measured figures, with matplotlib (extra `report`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainjob.contract.errors import UserError

if TYPE_CHECKING:
    from trainjob.bench.collective import Reduction
    from trainjob.bench.growth import Growth
    from trainjob.bench.loader import Loading
    from trainjob.bench.scaling import Scale


def draw_scaling(rows: Sequence[Scale], target: Path) -> None:
    """Draw samples a second over instances, beside the line of perfect scaling, into `target`."""
    figure, axes = _axes("instances", "samples/s")
    instances = [row.instances for row in rows]
    perfect = [row.instances * rows[0].samples_per_s / rows[0].instances for row in rows]
    axes.plot(instances, perfect, linestyle="--", color="grey", label="perfect")
    axes.plot(instances, [row.samples_per_s for row in rows], marker="o", label="measured")
    _save(figure, axes, target)


def draw_loader(rows: Sequence[Loading], appetite: float | None, target: Path) -> None:
    """Draw samples a second over instances, one line a number of workers, beside what the devices take."""
    figure, axes = _axes("instances", "samples/s")
    for workers in dict.fromkeys(row.workers for row in rows):
        mine = [row for row in rows if row.workers == workers]
        axes.plot(
            [row.instances for row in mine], [row.samples_per_s for row in mine], marker="o", label=f"{workers} workers"
        )
    if appetite is not None:
        instances = sorted({row.instances for row in rows})
        axes.plot(instances, [number * appetite for number in instances], linestyle="--", color="grey", label="taken")
    axes.set_yscale("log")
    _save(figure, axes, target)


def draw_growth(rows: Sequence[Growth], target: Path) -> None:
    """Draw seconds an epoch over the parameters and over the data, one line a number of instances."""
    figure, (of_model, of_data) = _axes("", "seconds an epoch", columns=2)
    smallest = (rows[0].width, rows[0].samples)
    for instances in dict.fromkeys(row.instances for row in rows):
        mine = [row for row in rows if row.instances == instances]
        of_width = [(row.parameters, row.seconds_per_epoch) for row in mine if row.samples == smallest[1]]
        of_size = [(row.samples, row.seconds_per_epoch) for row in mine if row.width == smallest[0]]
        of_model.loglog(*zip(*of_width, strict=True), marker="o", label=f"{instances} instances")
        of_data.loglog(*zip(*of_size, strict=True), marker="o", label=f"{instances} instances")
    of_model.set_xlabel("parameters")
    of_data.set_xlabel("samples")
    _save(figure, of_model, target)


def draw_collective(rows: Sequence[Reduction], target: Path) -> None:
    """Draw seconds an all-reduce over bytes, one line a way, into `target`."""
    figure, axes = _axes("bytes", "seconds")
    for way in dict.fromkeys(row.way for row in rows):
        mine = [row for row in rows if row.way == way]
        axes.loglog([row.bytes for row in mine], [row.seconds for row in mine], marker="o", label=way)
    _save(figure, axes, target)


def _axes(across: str, up: str, columns: int = 1) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("a plot needs matplotlib: pip install 'trainjob[report]'") from None
    figure = Figure(figsize=(6 * columns, 4), layout="constrained")
    axes = figure.subplots(1, columns)
    for one in figure.axes:
        one.set_xlabel(across)
        one.set_ylabel(up)
    return figure, axes


def _save(figure: Any, axes: Any, target: Path) -> None:
    axes.legend()
    try:
        figure.savefig(target)
    except (OSError, ValueError) as error:
        raise UserError(f"{target} can't be drawn: {error}") from None
