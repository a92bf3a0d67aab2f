"""Plots of measured figures, with matplotlib (extra `report`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainjob.contract.errors import UserError

if TYPE_CHECKING:
    from trainjob.bench.collective import Reduction
    from trainjob.bench.scaling import Scale


def draw_scaling(rows: Sequence[Scale], target: Path) -> None:
    """Draw samples a second over instances, beside the line of perfect scaling, into `target`."""
    figure, axes = _axes("instances", "samples/s")
    instances = [row.instances for row in rows]
    perfect = [row.instances * rows[0].samples_per_s / rows[0].instances for row in rows]
    axes.plot(instances, perfect, linestyle="--", color="grey", label="perfect")
    axes.plot(instances, [row.samples_per_s for row in rows], marker="o", label="measured")
    _save(figure, axes, target)


def draw_collective(rows: Sequence[Reduction], target: Path) -> None:
    """Draw seconds an all-reduce over bytes, one line a way, into `target`."""
    figure, axes = _axes("bytes", "seconds")
    for way in dict.fromkeys(row.way for row in rows):
        mine = [row for row in rows if row.way == way]
        axes.loglog([row.bytes for row in mine], [row.seconds for row in mine], marker="o", label=way)
    _save(figure, axes, target)


def _axes(across: str, up: str) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("a plot needs matplotlib: pip install 'trainjob[report]'") from None
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    return figure, axes


def _save(figure: Any, axes: Any, target: Path) -> None:
    axes.legend()
    try:
        figure.savefig(target)
    except (OSError, ValueError) as error:
        raise UserError(f"{target} can't be drawn: {error}") from None
