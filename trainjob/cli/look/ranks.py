"""trainjob usage, stacks and shell: looks at the ranks of one run."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.command import AsJson, RoleOption, RunOrLast, command, commands, finite
from trainjob.contract import clock
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.observe.ranks import RankUsage

app = commands()

_NO_STACK = "no stack: not a Python process, or one started with -I, -E or -S"


@command(app, "trainjob usage last", "trainjob usage k3xq --json")
def usage(run: RunOrLast = "last", role: RoleOption = None, as_json: AsJson = False) -> None:
    """Show how much CPU, memory and devices the ranks of a run use: means and maxima of its newest attempt.

    Samples are taken every usage_every_s seconds (cluster file), the first ones sooner.
    """
    from trainjob.observe import index
    from trainjob.observe.ranks import usage_of

    paths = index.find_role(run, role, "usage")
    ranks = usage_of(paths)
    if as_json:
        show.as_json([asdict(one) for one in ranks])
        return
    first = ranks[0]
    typer.echo(f"{paths.id} · attempt {first.attempt} · {first.samples} samples in {show.seconds(first.seconds)}")
    show.table(
        ("RANK", "HOST", "CPUS", "MEMORY", "DEVICE", "BUSY", "DEVICE MEMORY", "POWER", ""), map(_usage_row, ranks)
    )
    for openmp in sorted({" ".join(f"{name}={value}" for name, value in one.openmp.items()) for one in ranks} - {""}):
        typer.echo(f"threads: {show.visible(openmp)}")
    if any(one.uses_much_less for one in ranks):
        typer.echo("< uses less than half as much as the median rank: `trainjob stacks` shows where it is")


def _usage_row(one: RankUsage) -> list[str]:
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
    if most is None:
        return "-"
    return show.size(most) if limit is None else f"{show.size(most)} of {show.size(limit)}"


@command(app, "trainjob stacks last", "trainjob stacks k3xq --rank 3")
def stacks(
    run: RunOrLast = "last",
    rank: Annotated[int | None, typer.Option(help="Only this rank.")] = None,
    role: RoleOption = None,
    limit_s: Annotated[float, typer.Option(min=1, callback=finite, help="Seconds to wait for answers.")] = 75.0,
    as_json: AsJson = False,
) -> None:
    """Show where the Python code of every rank is right now, in all its threads and processes.

    Ranks whose main threads are at the same place form a group. The smallest group, which may hold the others up, comes
    first.
    Works for tasks and for commands of your own, on every kind of cluster. The ranks are not disturbed. For a run that
    has ended, the stacks that were kept last are shown: for one that hung, those at that time.
    """
    from trainjob.observe import index
    from trainjob.observe.ranks import stacks_of
    from trainjob.records.stacks import groups

    paths = index.find_role(run, role, "stacks")
    answers = stacks_of(paths, limit_s)
    shown = [one for one in answers.stacks if rank in (None, one.rank)]
    if as_json:
        show.as_json([asdict(one) for one in shown])
    else:
        if not answers.are_current:
            typer.echo(f"{paths.id} does not run: these stacks are {show.seconds(clock.time() - shown[0].time)} old")
        for place in groups(shown) if len(shown) > 1 else ():
            typer.echo(show.visible(str(place)))
        for one in shown:
            typer.echo(f"rank {one.rank} · {one.host} · attempt {one.attempt}")
            for process in one.processes:
                typer.echo(show.visible(f"  process {process.pid} ({process.state}): {process.command}"))
                for line in (process.stack or _NO_STACK).splitlines():
                    typer.echo(show.visible(f"    {line}"))
    answers.refuse_silent(paths, rank)


@command(
    app,
    "trainjob shell k3xq --rank 3",
    "trainjob shell last -- nvidia-smi",
    context_settings={"ignore_unknown_options": True},
)
def shell(
    run: RunOrLast = "last",
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND…]", help="A command instead of a shell, after --.")
    ] = None,
    rank: Annotated[int, typer.Option(help="Next to this rank.")] = 0,
) -> None:
    """Open a shell next to a rank of a running run: on its host, in its folder, with its environment.

    Under Slurm it is a step of the job that takes nothing from the ranks; in containers it runs inside the rank's.
    The exit code is that of the shell.
    """
    from trainjob.machines import process
    from trainjob.observe import arrays, index
    from trainjob.observe.ranks import command_next_to

    paths = index.find(run)
    arrays.refuse_whole(paths, "shell")
    raise typer.Exit(process.show(command_next_to(paths, rank, words or (), terminal=sys.stdin.isatty())))
