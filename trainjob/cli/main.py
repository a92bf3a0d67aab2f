"""The `trainjob` command: finds the sub-command, and turns every exception into an exit code."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import trainjob
from trainjob.cli import failures
from trainjob.cli.app import new
from trainjob.cli.lazy import LazyGroup
from trainjob.contract import exits
from trainjob.watch import terminal

app = new(cls=LazyGroup, name="trainjob", no_args_is_help=True, add_completion=True)


def _show_version(is_given: bool) -> None:
    if is_given:
        typer.echo(f"trainjob {trainjob.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Take one training job from a laptop to a cluster, and prove it before a cluster hour is spent."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    asked = list(sys.argv[1:] if arguments is None else arguments)
    with terminal.protected(), failures.handled(asked):
        code = typer.main.get_command(app).main(args=asked, prog_name="trainjob", standalone_mode=False)
        # The interpreter would look at every object once more before it ends: 10 % of the time of `render`.
        gc.freeze()
        sys.exit(code if isinstance(code, int) else exits.DONE)


if __name__ == "__main__":
    main()
