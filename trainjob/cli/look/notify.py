"""trainjob notify: tells when a run ends, fails, stalls or comes near its limit."""

from __future__ import annotations

import click

from trainjob.cli.command import command
from trainjob.contract.errors import UserError


@command("trainjob notify --test", "trainjob notify --stay")
@click.option("--stay", is_flag=True, help="Stay until every watched run has ended.")
@click.option("--test", is_flag=True, help="Send a test message in every way that is configured.")
def notify(stay: bool, test: bool) -> None:
    """Tell you when runs end, fail, stall or approach their limit, as `notify:` in config.yaml says."""
    from trainjob.observe import notify as notifying

    if test:
        _send_test_message()
    elif not notifying.look(click.echo, stay=stay):
        click.echo("a background process is already watching these runs")


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
            click.echo(f"{way}: delivered")
        except UserError as error:
            failed.append(way)
            click.echo(f"{way}: {error}", err=True)
    if failed:
        raise UserError(
            f"{', '.join(failed)} did not take the test message",
            "correct `notify:` in config.yaml: the lines above say why",
        )
