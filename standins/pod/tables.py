"""Tables as Graphcore's programs print them: vipu with rules above and below, gc-monitor with boxes."""

from __future__ import annotations

from typing import Iterator, Optional, Sequence, Tuple

Row = Sequence[str]


def ruled(heads: Row, rows: Sequence[Row], rule_above: bool = False) -> Iterator[str]:
    """Yield a table of vipu's: a rule below the headings and below the rows."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in (heads, *rows)]
    rule = "-" * (len(lines[0]) + 2)
    if rule_above:
        yield rule
    yield (" " + lines[0]).rstrip()
    yield rule
    for line in lines[1:]:
        yield (" " + line).rstrip()
    if rows:
        yield rule


def titles(cells: Sequence[Tuple[str, int]]) -> Iterator[str]:
    """Yield the first two lines of a box: titles, each with the width that it spans."""
    yield _rule([width for _, width in cells])
    yield _line([text for text, _ in cells], [width for _, width in cells])


def boxed(widths: Sequence[int], heads: Row, rows: Sequence[Row], group_by: Optional[int] = None) -> Iterator[str]:
    """Yield a box: headings, and rows with a rule wherever the column `group_by` changes."""
    yield _rule(widths)
    yield _line(heads, widths)
    last: Optional[str] = None
    for row in rows:
        group = "" if group_by is None else row[group_by]
        if group != last:
            yield _rule(widths)
        last = group
        yield _line(row, widths)
    yield _rule(widths)


def _rule(widths: Sequence[int]) -> str:
    return "+%s+" % "+".join("-" * width for width in widths)


def _line(cells: Row, widths: Sequence[int]) -> str:
    return "|%s|" % "|".join(cell.center(width) for cell, width in zip(cells, widths))
