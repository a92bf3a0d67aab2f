"""trainjob completion: the script with which a shell completes the words of `trainjob`."""

from __future__ import annotations

import click

from trainjob.cli.command import command


@command("trainjob completion bash", "trainjob completion fish")
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]), help="bash, zsh or fish.")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes a shell complete run ids, names, clusters, tasks and settings."""
    from click.shell_completion import FishComplete, ZshComplete

    from trainjob.contract import package

    if shell == "bash":
        # click's own needs bash 4.4; macOS still has 3.2.
        click.echo(package.program(__file__, "completion.sh"), nl=False)
        return
    kind = ZshComplete if shell == "zsh" else FishComplete
    click.echo(kind(ctx.find_root().command, {}, "trainjob", "_TRAINJOB_COMPLETE").source())
