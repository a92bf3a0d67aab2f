"""Plots of measured figures, with matplotlib (extra `report`)."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainjob.contract.errors import UserError

if TYPE_CHECKING:
    from trainjob.bench.collective import Reduction
    from trainjob.bench.growth import Growth
    from trainjob.bench.loader import Loading
    from trainjob.bench.scaling import Amdahl, Scale


def draw_scaling(rows: Sequence[Scale], law: Amdahl | None, target: Path) -> None:
    """Draw samples a second over instances with 90 % intervals, beside perfect scaling and the fitted law."""
    figure, axes = _axes("instances", "samples/s")
    axes.set_title("Training speed by number of instances")
    instances = [row.instances for row in rows]
    axes.set_xticks(sorted(set(instances)))
    perfect = [row.instances * rows[0].samples_per_s / rows[0].instances for row in rows]
    axes.plot(instances, perfect, linestyle="--", color="grey", label="perfect")
    rates = [row.samples_per_s for row in rows]
    if law is not None:
        fitted = [rates[0] * law.speed_up(number) for number in instances]
        label = f"Amdahl's law, {100 * law.serial_share:.0f} % serial"
        axes.plot(instances, fitted, linestyle=":", color="black", label=label)
    below = [max(0.0, row.samples_per_s - row.samples_per_s_low) for row in rows]
    above = [max(0.0, row.samples_per_s_high - row.samples_per_s) for row in rows]
    axes.errorbar(instances, rates, yerr=[below, above], marker="o", capsize=4, label="measured, 90 % interval")
    axes.set_ylim(bottom=0)
    _save(figure, axes, target)


def draw_loader(rows: Sequence[Loading], appetite: float | None, target: Path) -> None:
    """Draw samples a second over instances, one line a number of workers, beside what the devices take."""
    figure, axes = _axes("instances", "samples/s")
    axes.set_title("Samples loaded, without training")
    axes.set_xticks(sorted({row.instances for row in rows}))
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
    figure, (of_model, of_data) = _axes("", "seconds per epoch", columns=2)
    of_model.set_title("Time per epoch as the model grows")
    of_data.set_title("Time per epoch as the data grow")
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
    figure, axes = _axes("size (bytes)", "seconds")
    axes.set_title("Time of one all-reduce by size")
    for way in dict.fromkeys(row.way for row in rows):
        mine = [row for row in rows if row.way == way]
        axes.loglog([row.bytes for row in mine], [row.seconds for row in mine], marker="o", label=way)
    _save(figure, axes, target)


def check(target: Path) -> None:
    """Raise UserError, before anything is measured, if a plot can't be drawn into `target`."""
    figure, _ = _axes("", "")
    if target.suffix[1:] not in figure.canvas.get_supported_filetypes():
        kind = target.suffix or "file without a suffix"
        raise UserError(f"--plot {target}: matplotlib draws no {kind}", "take .svg or .png")
    check_folder("--plot", target)


def check_folder(flag: str, target: Path) -> None:
    """Raise UserError if the folder of a file that the command will write at its end does not exist."""
    if not target.parent.is_dir():
        raise UserError(
            f"{flag} {target}: there is no folder {target.parent}", f"make it first: mkdir -p {target.parent}"
        )


def machine_and_date() -> str:
    """Return where and when a figure was measured."""
    cores = os.cpu_count() or 1
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    return f"{platform.node()} · {_processor()} · {cores} core{'' if cores == 1 else 's'} · {today}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _axes(across: str, up: str, columns: int = 1) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("a plot needs matplotlib", "pip install 'trainjob[report]'") from None
    figure = Figure(figsize=(6 * columns, 4), layout="constrained")
    axes = figure.subplots(1, columns)
    for one in figure.axes:
        one.set_xlabel(across)
        one.set_ylabel(up)
    return figure, axes


def _save(figure: Any, axes: Any, target: Path) -> None:
    axes.legend()
    figure.supxlabel(machine_and_date(), fontsize=8, color="grey")
    try:
        figure.savefig(target)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{target} can't be drawn: {error}", "give --plot a file that you may write, .svg or .png"
        ) from None
