"""Curves as SVG, by matplotlib (extra `report`), in colors that a light and a dark page can both show."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.observe.report.ranks import RankFigures, over_time
from trainjob.observe.report.series import MOST_POINTS, Columns, Point, Series
from trainjob.records.measures import PHASES
from trainjob.records.usage import UsageRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# matplotlib writes each color as it is; this one becomes the page's own text color.
_INK = "#010203"
# Distinguishable with color blindness (Okabe and Ito, without yellow and black).
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_WIDTH_IN, _HEIGHT_IN = 6.0, 3.2
_STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    "font.size": 11,
    "font.family": "sans-serif",
    "svg.fonttype": "none",  # text stays text, which a reader can select
}


@dataclass(frozen=True)
class Drawing:
    """An SVG that fits any width, with the title that stands above it."""

    title: str
    svg: str


@dataclass(frozen=True)
class Curve:
    """One curve of a drawing."""

    label: str
    points: Sequence[Point]


def of_run(series: Series) -> list[Drawing]:
    """Return the drawings of one run; those that nothing was measured for are left out."""
    training, held_out = series.training, series.held_out
    parts = (
        ("loss", "Loss", [_curve("training", training, "loss"), _curve("held out", held_out, "loss")]),
        (
            "accuracy",
            "Accuracy (%)",
            [_curve("training", training, "accuracy"), _curve("held out", held_out, "accuracy")],
        ),
        ("rate", "Learning rate", [_curve("learning rate", training, "learning_rate")]),
        ("speed", "Speed (samples/s)", [_curve("samples/s", training, "samples_per_s")]),
    )
    starts = [update for attempt, update in series.attempts.items() if attempt > 1]
    drawn = _drawings(parts, starts=starts)
    phases = list(training.shares(PHASES))
    # The parts of a command's update are not timed.
    if any(sum(shares) for _, shares in phases):
        ends, shares = zip(*phases, strict=True)

        def stacked(axes: Axes) -> None:
            axes.stackplot(ends, *zip(*shares, strict=True), labels=PHASES, colors=COLORS[: len(PHASES)], alpha=0.85)
            axes.set_ylim(0, 100)

        picture = _svg("phases", stacked, has_legend=True, is_filled=True)
        drawn.append(Drawing("Where the time went (% of rank 0's time)", picture))
    return drawn


def _curve(label: str, columns: Columns, name: str) -> Curve:
    points = columns.curve(name)
    return Curve(label, [(x, 100 * y) for x, y in points] if name == "accuracy" else points)


def _drawings(parts: Iterable[tuple[str, str, list[Curve]]], **how: Any) -> list[Drawing]:
    """Return a drawing for each name, title and curves, but for those that nothing was measured for."""
    return [
        Drawing(title, draw(name, lines, **how)) for name, title, lines in parts if any(one.points for one in lines)
    ]


def of_runs(runs: Mapping[str, Series]) -> list[Drawing]:
    """Return the drawings that lay the curves of several runs over each other, by the label of each run."""
    parts = (
        ("loss", "Training loss", "training", "loss"),
        ("held-out-loss", "Held-out loss", "held_out", "loss"),
        ("held-out-accuracy", "Held-out accuracy (%)", "held_out", "accuracy"),
        ("speed", "Speed (samples/s)", "training", "samples_per_s"),
    )
    return _drawings(
        (name, title, [_curve(label, getattr(series, part), figure) for label, series in runs.items()])
        for name, title, part, figure in parts
    )


def of_usage(samples: Mapping[int, Iterable[UsageRecord]]) -> list[Drawing]:
    """Return the drawings of what ranks used, by rank; those that nothing was sampled for are left out."""
    ranks = {f"rank {rank}": _usage(records) for rank, records in samples.items()}
    parts = (
        ("cpus", "CPUs used (% of those that a rank may use)"),
        ("devices", "Devices used (%, mean of a rank's)"),
        ("memory", "Memory (GB)"),
        ("device-memory", "Memory of the devices (GB)"),
    )
    return _drawings(
        (
            (f"usage-{name}", title, [Curve(rank, one.curve(name, MOST_POINTS // 4)) for rank, one in ranks.items()])
            for name, title in parts
        ),
        across="minutes",
        from_zero=True,
    )


def of_ranks(listed: Sequence[RankFigures], most: int) -> list[Drawing]:
    """Return the drawing of how long the `most` slowest ranks took for an update of their own samples."""
    slowest_first = sorted(listed, key=lambda rank: -rank.own_s)[:most]
    lines = [Curve(f"rank {rank.rank}", over_time(rank)) for rank in sorted(slowest_first, key=lambda rank: rank.rank)]
    title = "Data and compute of an update, by rank (ms)"
    # One point a rank says no more than the table does.
    has_course = len(listed) > 1 and any(len(line.points) > 1 for line in lines)
    return [Drawing(title, draw("ranks", lines))] if has_course else []


def _usage(records: Iterable[UsageRecord]) -> Columns:
    columns, first = Columns("cpus", "devices", "memory", "device-memory"), None
    for record in records:
        first = record.time if first is None else first
        shares = [device.use for device in record.devices if device.use is not None]
        bytes_used = [device.memory_bytes for device in record.devices if device.memory_bytes is not None]
        figures = (
            None if record.cpu_cores is None or not record.cpus else 100 * record.cpu_cores / record.cpus,
            100 * fmean(shares) if shares else None,
            record.memory_bytes / 1e9,
            sum(bytes_used) / 1e9 if bytes_used else None,
        )
        columns.add((record.time - first) / 60, figures)
    return columns


def draw(
    name: str,
    lines: Sequence[Curve],
    starts: Sequence[float] = (),
    across: str = "weight updates",
    *,
    from_zero: bool = False,
) -> str:
    """Return curves as SVG, over updates or `across`; a dotted line stands where an attempt began, at `starts`.

    `from_zero`: so that a hundredth of a gigabyte more does not look like much.
    """
    lines = [line for line in lines if line.points]

    def content(axes: Axes) -> None:
        for line, color in zip(lines, COLORS * len(lines), strict=False):
            xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
            axes.plot(xs, ys, label=line.label, color=color, linewidth=1.4, marker="o" if len(xs) < 40 else None, ms=3)
        for number, start in enumerate(starts):
            axes.axvline(start, color=_INK, linestyle=":", linewidth=1, label=None if number else "attempt begins")
        if from_zero:
            axes.set_ylim(bottom=0)

    return _svg(name, content, has_legend=len(lines) > 1 or bool(starts), across=across)


def _svg(
    name: str,
    content: Callable[[Axes], None],
    *,
    has_legend: bool,
    is_filled: bool = False,
    across: str = "weight updates",
) -> str:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise UserError("an HTML report needs matplotlib", package.install_command("report")) from None
    # With a salt of ours, the same curves give the same ids.
    style: Any = {**_STYLE, "svg.hashsalt": name}
    with rc_context(style):
        figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), layout="constrained")
        axes = figure.subplots()
        content(axes)
        axes.set_xlabel(across)
        axes.xaxis.set_major_locator(MaxNLocator(integer=across == "weight updates", nbins=7))
        axes.grid(visible=True, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if has_legend and is_filled:
            figure.legend(loc="outside upper center", ncols=len(PHASES), frameon=False, fontsize=10)
        elif has_legend:
            axes.legend(loc="best", frameon=False, fontsize=10)
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    # As part of a page: as wide as its place, in the page's color, with ids of its own, and without the metadata and
    # namespaces, which name addresses that are not needed.
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
