"""The views of `trainjob watch`: all runs as one table, or one run with its curves and last lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainjob.observe.report.series import Series
from trainjob.observe.status import Snapshot
from trainjob.watch import show

_BLOCKS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 60
KEYS = "↑↓ choose · enter one run · l its log · esc all runs · c cancel · r resume · q quit"


def all_runs(listed: Sequence[Snapshot], chosen: int) -> RenderableType:
    """Return the table of runs, the one numbered `chosen` marked."""
    table = Table(expand=True, box=None, header_style="bold")
    for column in ("RUN", "STATE", "CLUSTER", "PROGRESS", "", "LEFT", "NOTE"):
        table.add_column(column, no_wrap=True, overflow="ellipsis", ratio=3 if column == "NOTE" else None)
    for number, now in enumerate(listed):
        table.add_row(
            _plain(now.id),
            Text(show.visible(now.state), style=show.STATE_PAINTS.get(now.state, "")),
            _plain(now.cluster or "by hand"),
            _bar(now),
            _plain(progress(now)),
            _plain(time_left(now)),
            _plain(next(iter(notes(now)), "")),
            style="reverse" if number == chosen else "",
        )
    return Group(table, Text(KEYS, style="dim"))


def one_run(now: Snapshot, series: Series, ranks: Sequence[tuple[str, str]], lines: Sequence[str]) -> RenderableType:
    """Return one run: its state, how far it is, its curves, its ranks, and the last lines that they printed."""
    printed = [("as printed", line) for line in now.printed]
    rows: list[RenderableType] = [
        Text(now.id, style="bold"),
        _plain(" · ".join(facts(now))),
        Padding(_bar(now), 0),  # a bar alone ends no line
        *(_plain(f"{title:<18}{text}") for title, text in (*curves(series), *printed, *ranks)),
        *map(_plain, notes(now)),
        Text(""),
        *(_plain(line) for line in lines),
        Text(KEYS, style="dim"),
    ]
    return Group(*rows)


def log(now: Snapshot, lines: Sequence[str]) -> RenderableType:
    """Return the end of a run's log."""
    return Group(Text(now.id, style="bold"), *(_plain(line) for line in lines), Text(KEYS, style="dim"))


def facts(now: Snapshot) -> list[str]:
    """Return a run's state, how far it is, the time that is left, and what its scheduler says."""
    scheduler = (f"{key} {value}" for key, value in now.scheduler.items())
    return [fact for fact in (now.state, progress(now), time_left(now), *scheduler) if fact]


def notes(now: Snapshot) -> list[str]:
    """Return what the figures don't show, the most urgent first."""
    return [text for text in (now.at_risk, now.note, str(now.cause) if now.cause else None) if text]


def curves(series: Series) -> list[tuple[str, str]]:
    """Return the curves that have points, by title."""
    drawn = (
        ("loss", sparkline(series, "training", "loss")),
        ("held-out loss", sparkline(series, "held_out", "loss")),
        ("held-out accuracy", sparkline(series, "held_out", "accuracy")),
        ("samples/s", sparkline(series, "training", "samples_per_s")),
    )
    return [(title, curve) for title, curve in drawn if curve]


def sparkline(series: Series, part: str, name: str) -> str:
    """Return a curve as one line of blocks, with its first and last value; nothing where nothing was measured."""
    values = [value for _, value in getattr(series, part).curve(name, _CURVE_WIDTH)]
    if not values:
        return ""
    low, high = min(values), max(values)
    steps = len(_BLOCKS) - 1
    blocks = "".join(_BLOCKS[round(steps * (value - low) / (high - low)) if high > low else 0] for value in values)
    return f"{values[0]:.4g} {blocks} {values[-1]:.4g}"


def plain_line(now: Snapshot) -> str:
    """Return a run as one line, for where there is no terminal."""
    parts = (now.id, now.state, progress(now), now.at_risk or now.note or "")
    return show.visible(" · ".join(part for part in parts if part))


def _bar(now: Snapshot) -> RenderableType:
    if now.update is None or not now.total_updates:
        return Text("")
    return ProgressBar(total=now.total_updates, completed=now.update, width=20)


def progress(now: Snapshot) -> str:
    """Return how many updates a run has made; of one that tells its epochs alone, the newest."""
    if now.update is None:
        return "" if now.epoch is None else f"epoch {now.epoch}"
    return f"{now.update:,}" + (f" of {now.total_updates:,}" if now.total_updates else "")


def time_left(now: Snapshot) -> str:
    """Return how long a run still takes, and what its time limit leaves it."""
    limit = now.scheduler.get("time_left", "")
    return show.time_left(now) + (f" (limit {limit})" if limit else "")


def _plain(text: str) -> Text:
    # Text, not markup: brackets in a name or a log line are no style.
    return Text(show.visible(text), no_wrap=True, overflow="ellipsis")
