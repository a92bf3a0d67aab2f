"""trainjob usage: how much CPU, memory and devices the ranks of a run use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from trainjob.cli.command import command, json_option, run_argument
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.observe.usage import RankUsage


@command("trainjob usage last", "trainjob usage k3xq --json")
@run_argument
@json_option
def usage(run: str, as_json: bool) -> None:
    """Show how much CPU, memory and devices the ranks of a run use: means and maxima of its newest attempt.

    Samples are taken every usage_every_s seconds (cluster file), the first ones sooner.
    """
    from trainjob.observe import arrays, index
    from trainjob.observe.usage import of_run

    paths = index.find(run)
    arrays.refuse_whole(paths, "usage")
    ranks = of_run(paths)
    if as_json:
        show.as_json([one.as_json() for one in ranks])
        return
    first = ranks[0]
    click.echo(f"{paths.id} · attempt {first.attempt} · {first.samples} samples in {show.seconds(first.seconds)}")
    show.table(("RANK", "HOST", "CPUS", "MEMORY", "DEVICE", "BUSY", "DEVICE MEMORY", "POWER", ""), map(_row, ranks))
    if any(one.uses_much_less for one in ranks):
        click.echo("< uses less than half as much as the median rank: `trainjob stacks` shows where it is")


def _row(one: RankUsage) -> list[str]:
    return [
        str(one.rank),
        one.host,
        "-" if one.cpu_cores is None else f"{one.cpu_cores:.2f} of {one.cpus} (most {one.most_cpu_cores:.2f})",
        _of(one.most_memory_bytes, one.memory_limit_bytes),
        ", ".join(one.devices) or "-",
        "-" if one.device_use is None else f"{one.device_use:.0%}",
        _of(one.most_device_memory_bytes, one.device_memory_total_bytes),
        "-" if one.power_w is None else f"{one.power_w:.0f} W",
        "<" if one.uses_much_less else "",
    ]


def _of(most: int | None, limit: int | None) -> str:
    sizes: Iterator[str] = (show.size(value) for value in (most, limit) if value is not None)
    return " of ".join(sizes) if most is not None else "-"
