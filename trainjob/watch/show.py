"""What commands print: aligned rows that can be copied, or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainjob.planning.words import size as size
from trainjob.watch import terminal

if TYPE_CHECKING:
    from trainjob.observe.status import Snapshot

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def as_json(value: Any) -> None:
    """Print `value` as indented JSON."""
    typer.echo(terminal.as_json(value, indent=1))


def rows(pairs: Iterable[tuple[str, str]], indent: int = 2) -> None:
    """Print names and values in two aligned columns; never wrapped, so that a path can be copied."""
    listed = list(pairs)
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        typer.echo(f"{' ' * indent}{name:<{width}}  {_cell(value)}")


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> None:
    """Print a table with one line of headings."""
    lines = [list(head), *([_cell(cell) for cell in line] for line in body)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        typer.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(text: str) -> str:
    # One line is one row, whatever a file says, and columns are aligned by what is seen.
    return terminal.visible(str(text)).replace("\n", "\\n").replace("\t", "\\t")


def figures(
    measured: Sequence[Any],
    head: Sequence[str],
    line: Callable[[Any], Sequence[str]],
    output: Path | None,
    *,
    in_json: bool,
) -> None:
    """Print what was measured as a table, or as JSON; with `output`, also write it to that file."""
    values = [row.as_json() for row in measured]
    if output is not None:
        from trainjob.records.files import write_json

        write_json(output, values)
    if in_json:
        as_json(values)
    else:
        table(head, (line(row) for row in measured))


def progress(line: str) -> None:
    """Print progress where it does not mix with the output of a command."""
    typer.echo(line, err=True)


def time_left(now: Snapshot) -> str:
    """Return how long a run still takes, as in "2 min 5 s left"; empty if that is unknown, or it is at its end."""
    if now.outlook is None or now.update is None or now.update >= (now.total_updates or 0):
        return ""
    return f"{seconds(now.outlook.left_s)} left"


def seconds(value: float) -> str:
    """Return a duration as people read it: 0.12 s, 34.5 s, 12 min 5 s, 3 h 20 min."""
    if value < 60:
        return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
