"""trainjob watch: runs as they go, on a terminal; plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trainjob.cli import complete
from trainjob.cli.app import examples, new

app = new()

_Run = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]", help="Begin with this run: an id, a unique prefix, or last.", autocompletion=complete.runs
    ),
]
_Every = Annotated[float, typer.Option("--every-s", min=0.5, help="Seconds between two looks.")]


_Web = Annotated[bool, typer.Option("--web", help="Serve the same as a read-only page on this machine.")]


@app.command(epilog=examples("trainjob watch last", "trainjob watch --web"))
def watch(run: _Run = None, every_s: _Every = 3.0, web: _Web = False) -> None:
    """Show the newest runs on all clusters, or one run, until you leave; keys cancel, resume and open logs."""
    from trainjob.observe import index, notify
    from trainjob.watch import screen

    notify.start_if_needed()
    paths = None if run is None else index.find(run)
    if web:
        screen.serve(every_s, paths)
    elif sys.stdout.isatty() and sys.stdin.isatty():
        screen.Screen(every_s, paths).stay()
    else:
        screen.print_changes(every_s, paths)
