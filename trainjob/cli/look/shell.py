"""trainjob shell: a shell next to a rank of a running run."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.look.report import Run

app = new()


@app.command(
    epilog=examples("trainjob shell k3xq --rank 3", "trainjob shell last -- nvidia-smi"),
    context_settings={"ignore_unknown_options": True},
)
def shell(
    run: Run,
    command: Annotated[list[str] | None, typer.Argument(help="After --: a command instead of a shell.")] = None,
    rank: Annotated[int, typer.Option("--rank", help="Next to this rank.")] = 0,
) -> None:
    """Open a shell next to a rank of a running run: on its host, in its folder, with its environment.

    Under Slurm it is a step of the job that takes nothing from the ranks; in containers it runs inside the rank's.
    The exit code is that of the shell.
    """
    import sys

    from trainjob.machines import process
    from trainjob.observe import arrays, index
    from trainjob.observe.shell import command as next_to_rank

    paths = index.find(run)
    arrays.refuse_whole(paths, "shell")
    words = next_to_rank(paths, rank, command or [], terminal=sys.stdin.isatty())
    raise typer.Exit(process.show(words))
