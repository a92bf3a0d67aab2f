"""trainjob stacks: where the Python code of every rank is right now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.look.report import Run
from trainjob.watch import show, terminal

if TYPE_CHECKING:
    from trainjob.records.stacks import RankStacks

app = new()


@app.command(epilog=examples("trainjob stacks last", "trainjob stacks k3xq --rank 3"))
def stacks(
    run: Run,
    rank: Annotated[int | None, typer.Option("--rank", help="Only this rank.")] = None,
    limit_s: Annotated[float, typer.Option("--limit-s", min=1, help="Seconds to wait for answers.")] = 75.0,
    as_json: show.AsJson = False,
) -> None:
    """Show where the Python code of every rank is right now, in all its threads and processes.

    Works for tasks and for commands of your own, on every kind of cluster. The ranks are not disturbed. For a run that
    has ended, the stacks that were kept last are shown: for one that hung, those at that time.
    """
    import time
    from dataclasses import asdict

    from trainjob.observe import arrays, index
    from trainjob.observe import stacks as found

    paths = index.find(run)
    arrays.refuse_whole(paths, "stacks")
    answers = found.of_run(paths, limit_s)
    shown = [one for one in answers.stacks if rank in (None, one.rank)]
    if as_json:
        show.as_json([asdict(one) for one in shown])
    else:
        if not answers.are_current:
            typer.echo(f"{paths.id} does not run: these stacks are {show.seconds(time.time() - shown[0].time)} old")
        for one in shown:
            _print(one)
    answers.refuse_silent(paths, rank)


def _print(one: RankStacks) -> None:
    typer.echo(f"rank {one.rank} · {one.host} · attempt {one.attempt}")
    for process in one.processes:
        typer.echo(terminal.visible(f"  process {process.pid} ({process.state}): {process.command}"))
        for line in (process.stack or "no stack: not a Python process, or one started with -I, -E or -S").splitlines():
            typer.echo(terminal.visible(f"    {line}"))
