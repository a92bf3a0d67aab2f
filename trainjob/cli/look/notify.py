"""trainjob notify: tells when a run ends, fails, stalls or comes near its limit."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli.command import command, commands
from trainjob.contract.errors import UserError

app = commands()


@command(app, "trainjob notify --test", "trainjob notify --stay")
def notify(
    stay: Annotated[bool, typer.Option("--stay", help="Stay until every watched run has ended.")] = False,
    test: Annotated[bool, typer.Option("--test", help="Send a test message in every way that is configured.")] = False,
) -> None:
    """Tell you when runs end, fail, stall or approach their limit, as `notify:` in config.yaml says."""
    from trainjob.observe import notify as notifying

    if test:
        _send_test_message()
    elif not notifying.look(typer.echo, stay=stay):
        typer.echo("a background process is already watching these runs")


def _send_test_message() -> None:
    from trainjob.contract import states
    from trainjob.observe import delivery
    from trainjob.observe import notify as notifying

    rules = notifying.required()
    message = delivery.Message(
        "test", "ended", states.COMPLETED, "local", 1, None, None, "trainjob notify --test", "This is a test."
    )
    failed = []
    for way, deliver in delivery.ways(rules).items():
        try:
            deliver(message)
            typer.echo(f"{way}: delivered")
        except UserError as error:
            failed.append(way)
            typer.echo(f"{way}: {error}", err=True)
    if failed:
        raise UserError(
            f"{', '.join(failed)} did not take the test message",
            "correct `notify:` in config.yaml: the lines above say why",
        )
