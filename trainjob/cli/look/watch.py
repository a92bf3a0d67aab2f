"""trainjob watch: runs as they go, on a terminal; plain lines elsewhere."""

from __future__ import annotations

import sys

import click

from trainjob.cli import complete
from trainjob.cli.command import FiniteRange, command


@command("trainjob watch last", "trainjob watch --every-s 10")
@click.argument(
    "run",
    required=False,
    metavar="[RUN]",
    help="Begin with this run: an id, a unique prefix, or last.",
    shell_complete=complete.runs,
)
@click.option("--every-s", type=FiniteRange(min=0.5), default=3.0, help="Seconds between two looks.")
def watch(run: str | None, every_s: float) -> None:
    """Show the newest runs on all clusters, or one run, until you leave; keys cancel, resume and open logs."""
    from trainjob.observe import index, notify
    from trainjob.watch import screen

    notify.start_if_needed()
    paths = None if run is None else index.find(run)
    if sys.stdout.isatty() and sys.stdin.isatty():
        screen.Screen(every_s, paths).stay()
    else:
        screen.print_changes(every_s, paths)
