"""Plots of measured figures, with matplotlib (extra `report`)."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainjob.contract import clock, package
from trainjob.contract.errors import UserError

if TYPE_CHECKING:
    from trainjob.bench.parts import Loading, Reduction
    from trainjob.bench.scaling import Scale


def draw_scaling(rows: Sequence[Scale], target: Path) -> None:
    """Draw samples a second over instances with 90 % intervals, beside perfect scaling."""
    with _plot(target, "Training speed by number of instances", "instances", "samples/s") as axes:
        instances = [row.instances for row in rows]
        axes.set_xticks(sorted(set(instances)))
        perfect = [row.instances * rows[0].samples_per_s / rows[0].instances for row in rows]
        axes.plot(instances, perfect, linestyle="--", color="grey", label="perfect")
        rates = [row.samples_per_s for row in rows]
        below = [max(0.0, row.samples_per_s - row.samples_per_s_low) for row in rows]
        above = [max(0.0, row.samples_per_s_high - row.samples_per_s) for row in rows]
        axes.errorbar(instances, rates, yerr=[below, above], marker="o", capsize=4, label="measured, 90 % interval")
        axes.set_ylim(bottom=0)


def draw_loader(rows: Sequence[Loading], target: Path) -> None:
    """Draw samples a second over instances, one line a number of workers."""
    instances = sorted({row.instances for row in rows})
    with _plot(target, "Samples loaded, without training", "instances", "samples/s") as axes:
        axes.set_xticks(instances)
        for workers in dict.fromkeys(row.workers for row in rows):
            rates = [(row.instances, row.samples_per_s) for row in rows if row.workers == workers]
            axes.plot(*zip(*rates, strict=True), marker="o", label=f"{workers} workers")
        axes.set_yscale("log")


def draw_collective(rows: Sequence[Reduction], target: Path) -> None:
    """Draw seconds an all-reduce over bytes, one line a way, into `target`."""
    with _plot(target, "Time of one all-reduce by size", "size (bytes)", "seconds") as axes:
        for way in dict.fromkeys(row.way for row in rows):
            seconds = [(row.bytes, row.seconds) for row in rows if row.way == way]
            axes.loglog(*zip(*seconds, strict=True), marker="o", label=way)


def check(target: Path) -> None:
    """Raise UserError, before anything is measured, if a plot can't be drawn into `target`."""
    if target.suffix[1:] not in _figure().canvas.get_supported_filetypes():
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
    processors = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        processors = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores = os.cpu_count() or 1
    today = datetime.fromtimestamp(clock.time(), UTC).strftime("%Y-%m-%d")
    processor = next(iter(processors), platform.machine())
    return f"{platform.node()} · {processor} · {cores} core{'' if cores == 1 else 's'} · {today}"


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("a plot needs matplotlib", package.install_command("report")) from None
    return Figure(figsize=(6, 4), layout="constrained")


@contextmanager
def _plot(target: Path, title: str, across: str, up: str) -> Iterator[Any]:
    """Yield axes to draw on, which are written to `target` afterwards."""
    figure = _figure()
    axes = figure.subplots()
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    yield axes
    axes.legend()
    figure.supxlabel(machine_and_date(), fontsize=8, color="grey")
    try:
        figure.savefig(target)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{target} can't be drawn: {error}", "give --plot a file that you may write, .svg or .png"
        ) from None
