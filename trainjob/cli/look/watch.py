"""trainjob watch: runs as they go, on a terminal; plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trainjob.cli import complete
from trainjob.cli.command import command, commands, finite

app = commands()


@command(app, "trainjob watch last", "trainjob watch --every-s 10")
def watch(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="Begin with this run: an id, a unique prefix, or last.", autocompletion=complete.runs
        ),
    ] = None,
    every_s: Annotated[float, typer.Option(min=0.5, callback=finite, help="Seconds between two looks.")] = 3.0,
) -> None:
    """Show the newest runs on all clusters, or one run, until you leave; keys cancel, resume and open logs."""
    from trainjob.observe import index, notify
    from trainjob.watch import screen

    notify.start_if_needed()
    paths = None if run is None else index.find(run)
    if sys.stdout.isatty() and sys.stdin.isatty():
        screen.Screen(every_s, paths).stay()
    else:
        screen.print_changes(every_s, paths)
