"""trainjob stacks: where the Python code of every rank is right now."""

from __future__ import annotations

import click

from trainjob.cli.command import command, json_option, run_argument
from trainjob.watch import show

_NO_STACK = "no stack: not a Python process, or one started with -I, -E or -S"


@command("trainjob stacks last", "trainjob stacks k3xq --rank 3")
@run_argument
@click.option("--rank", type=int, help="Only this rank.")
@click.option("--limit-s", type=click.FloatRange(min=1), default=75.0, help="Seconds to wait for answers.")
@json_option
def stacks(run: str, rank: int | None, limit_s: float, as_json: bool) -> None:
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
            click.echo(f"{paths.id} does not run: these stacks are {show.seconds(time.time() - shown[0].time)} old")
        for one in shown:
            click.echo(f"rank {one.rank} · {one.host} · attempt {one.attempt}")
            for process in one.processes:
                click.echo(show.visible(f"  process {process.pid} ({process.state}): {process.command}"))
                for line in (process.stack or _NO_STACK).splitlines():
                    click.echo(show.visible(f"    {line}"))
    answers.refuse_silent(paths, rank)
