"""trainjob provision: the playbooks on a cluster file's hosts."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.command import AsJson, cluster_option, command, commands, fail_unless
from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.planning.words import quantity
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.provision.drive import ProvisionOutcome
    from trainjob.provision.events import Event

app = commands()


@command(app, "trainjob provision --cluster pod64 --check", "trainjob provision --cluster pod64 --limit pod-host2")
def provision(
    cluster: Annotated[str, cluster_option("Cluster whose hosts are provisioned.")],
    check: Annotated[bool, typer.Option("--check", help="Show what would change without changing it.")] = False,
    limit: Annotated[str | None, typer.Option(help="Only these hosts: host3, or host[3-4].")] = None,
    tags: Annotated[
        str | None, typer.Option(help="Only these parts: sdk, horovod, pods, datasets, check, prune.")
    ] = None,
    become: Annotated[bool, typer.Option("--become", help="Become root on the hosts, through sudo.")] = False,
    extra: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A variable of a role.")] = None,
    as_json: AsJson = False,
) -> None:
    """Install virtualenvs and data sets on a cluster's hosts, and check them with a tiny job."""
    from trainjob.kinds.lookup import find
    from trainjob.provision.drive import TAGS, ProvisionRequest
    from trainjob.provision.drive import provision as driven
    from trainjob.provision.inventory import inventory

    asked = tuple(tags.split(",")) if tags else ()
    for tag in asked:
        if tag not in TAGS:
            raise UserError(f"--tags {tags}: there is no tag {tag}", f"use {', '.join(TAGS)}")
    request = ProvisionRequest(limit, asked, check, become, tuple(extra or ()))
    teller = Teller(to_errors=as_json)
    with show.every(teller.period_s, teller.tell):
        outcome = driven(inventory(find(cluster)), request, teller.hear)
    teller.end()
    if as_json:
        show.as_json(outcome.as_json())
    else:
        _print(outcome)
    fail_unless(outcome.ok)


class Teller:
    """Prints what has happened, and what is running: as a last line on a terminal, elsewhere as lines of their own."""

    def __init__(self, to_errors: bool, lines_every_s: float = 10.0) -> None:
        from trainjob.provision.events import Story

        self._story, self._to_errors = Story(), to_errors
        self._on_terminal = sys.stderr.isatty() and not to_errors
        self.period_s = 1.0 if self._on_terminal else lines_every_s
        self._printed_at, self._lock = clock.monotonic(), threading.Lock()

    def hear(self, event: Event) -> None:
        """Print the message about an event."""
        with self._lock:
            self._print(self._story.heard(event))
        if self._on_terminal:
            self.tell()

    def tell(self) -> None:
        """Print what is running, unless a line has just been printed."""
        with self._lock:
            now = self._story.now(clock.monotonic())
            if self._on_terminal:
                show.raw(sys.stderr).write(f"\r\x1b[K  … {show.visible(now)[:100]}")
                sys.stderr.flush()
            elif now and clock.monotonic() - self._printed_at >= self.period_s / 2:
                typer.echo(f"  … {now}", err=self._to_errors)

    def end(self) -> None:
        """Print what is left to say."""
        with self._lock:
            self._print(self._story.rest())

    def _print(self, lines: list[str]) -> None:
        if self._on_terminal:
            show.raw(sys.stderr).write("\r\x1b[K")
        for line in lines:
            self._printed_at = clock.monotonic()
            typer.echo(line, err=self._to_errors)


def _print(outcome: ProvisionOutcome) -> None:
    body = ((host, *(outcome.status(host, role) for role in outcome.roles)) for host in outcome.hosts)
    typer.echo()
    show.table(("HOST", *(role.upper() for role in outcome.roles)), body)
    typer.echo()
    for why, hosts in outcome.reasons.items():
        typer.echo(f"{', '.join(hosts)}: {why}")
    if not outcome.ok:
        bad = [host for hosts in outcome.reasons.values() for host in hosts]
        verdict = f"NOT READY: {', '.join(bad) or 'no host reported a verdict'}"
    elif outcome.verdict_expected:
        verdict = f"READY: {quantity(len(outcome.hosts), 'host')}"
    else:
        verdict = "done, without the tiny job that checks it"
    typer.echo(f"{verdict} · changed={outcome.changed}")
