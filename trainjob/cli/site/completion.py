"""trainjob completion: what a shell reads to complete the words of `trainjob`."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli.app import examples, new

app = new()

_SHELLS = ("bash", "zsh", "fish")
_Shell = Annotated[str, typer.Argument(metavar="SHELL", help=f"One of {', '.join(_SHELLS)}.")]


@app.command(epilog=examples("trainjob completion bash", "trainjob completion fish"))
def completion(shell: _Shell) -> None:
    """Print what makes a shell complete run ids, names, clusters, tasks and settings."""
    if shell not in _SHELLS:
        raise typer.BadParameter(f"{shell}: shells are {', '.join(_SHELLS)}")
    if shell == "bash":
        from trainjob.contract import package

        typer.echo(package.program(__file__, "completion.sh"), nl=False)
    else:
        from typer._completion_shared import get_completion_script

        typer.echo(get_completion_script(prog_name="trainjob", complete_var="_TRAINJOB_COMPLETE", shell=shell))
