"""What commands print: aligned rows that can be copied, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def as_json(value: Any) -> None:
    """Print `value` as indented JSON."""
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False))


def rows(pairs: Iterable[tuple[str, str]], indent: int = 2) -> None:
    """Print names and values in two aligned columns; never wrapped, so that a path can be copied."""
    listed = list(pairs)
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        typer.echo(f"{' ' * indent}{name:<{width}}  {value}")


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> None:
    """Print a table with one line of headings."""
    lines = [list(head), *(list(line) for line in body)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        typer.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def seconds(value: float) -> str:
    """Return a duration as people read it: 0.12 s, 34.5 s, 12 min 5 s, 3 h 20 min."""
    if value < 60:
        return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def size(count: int) -> str:
    """Return a number of bytes as people read it."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
