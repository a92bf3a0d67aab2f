"""What submit and resume print once a run has started."""

from __future__ import annotations

import sys

import typer

from trainjob.cli import failures
from trainjob.contract.paths import RunPaths
from trainjob.watch import show


def started(paths: RunPaths, summary: str, following_steps: str = "", *, follow: bool, as_json: bool) -> None:
    """Say that a run has started, and what the user may do next; with `follow` stay, and end as the run does."""
    with failures.printed_on_lost_output(summary):
        if not as_json:
            typer.echo(summary)
        if follow:
            from trainjob.cli.following import to_the_end  # loads all that shows a run

            raise typer.Exit(to_the_end(paths, as_json=as_json))
        if as_json:
            show.as_json({"id": paths.id, "folder": str(paths.folder)})
        elif following_steps:
            typer.echo(f"next: {following_steps}")
        sys.stdout.flush()
