"""trainjob completion: the script with which a shell completes the words of `trainjob`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
import typer.completion

from trainjob.cli import complete
from trainjob.cli.command import command, commands

app = commands()


@command(app, "trainjob completion bash", "trainjob completion fish")
def completion(
    ctx: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print what makes a shell complete run ids, names, clusters, tasks and settings."""
    from trainjob.contract import package

    if shell == "fish":
        complete.know_shells()
        typer.completion.shell_complete(ctx.find_root().command, {}, "trainjob", complete.VARIABLE, "source_fish")
        return
    # typer's own needs bash 4.4, where macOS has 3.2; and in a folder of fpath, zsh does not find it.
    typer.echo(package.program(__file__, f"completion.{'sh' if shell == 'bash' else 'zsh'}"), nl=False)
