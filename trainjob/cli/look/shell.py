"""trainjob shell: a shell next to a rank of a running run."""

from __future__ import annotations

import click

from trainjob.cli.command import command, run_argument


@command(
    "trainjob shell k3xq --rank 3",
    "trainjob shell last -- nvidia-smi",
    context_settings={"ignore_unknown_options": True},
)
@run_argument
@click.argument("words", nargs=-1, metavar="[-- COMMAND…]", help="A command instead of a shell, after --.")
@click.option("--rank", type=int, default=0, help="Next to this rank.")
def shell(run: str, words: tuple[str, ...], rank: int) -> None:
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
    raise click.exceptions.Exit(process.show(next_to_rank(paths, rank, words, terminal=sys.stdin.isatty())))
