"""trainjob provision: the playbooks on a cluster file's hosts."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli import complete
from trainjob.cli.app import examples, new
from trainjob.contract import exits
from trainjob.watch import show, terminal

if TYPE_CHECKING:
    from trainjob.provision.events import Event
    from trainjob.provision.outcome import Outcome

app = new()

_TELL_EVERY_S = 10.0


@app.command(
    epilog=examples(
        "trainjob provision --cluster pod64 --check", "trainjob provision --cluster pod64 --limit pod-host2"
    )
)
def provision(
    cluster: Annotated[
        str,
        typer.Option("--cluster", "-c", help="Cluster whose hosts are provisioned.", autocompletion=complete.clusters),
    ],
    limit: Annotated[str | None, typer.Option("--limit", help="Only these hosts: host3, or host[3-4].")] = None,
    tags: Annotated[
        str | None, typer.Option("--tags", help="Only these parts: sdk, horovod, pods, datasets, check, prune.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Show what would change without changing it.")] = False,
    become: Annotated[bool, typer.Option("--become", help="Become root on the hosts, through sudo.")] = False,
    extra: Annotated[
        list[str] | None, typer.Option("--extra", metavar="NAME=VALUE", help="A variable of a role.")
    ] = None,
    as_json: show.AsJson = False,
) -> None:
    """Install virtualenvs and data sets on a cluster's hosts, and check them with a tiny job."""
    from trainjob.kinds.lookup import find
    from trainjob.provision.drive import Request
    from trainjob.provision.drive import provision as driven
    from trainjob.provision.inventory import inventory

    request = Request(limit, _known(tags), check, become, tuple(extra or ()))
    teller = _Teller(to_errors=as_json)
    with terminal.every(teller.period_s, teller.tell):
        outcome = driven(inventory(find(cluster)), request, teller.hear)
    teller.end()
    if as_json:
        show.as_json(outcome.as_json())
    else:
        _print(outcome)
    raise typer.Exit(exits.DONE if outcome.ok else exits.USER_OR_CLUSTER_CAN_FIX)


def _known(tags: str | None) -> tuple[str, ...]:
    from trainjob.contract.errors import UserError
    from trainjob.provision.drive import TAGS

    asked = tuple(tags.split(",")) if tags else ()
    unknown = [tag for tag in asked if tag not in TAGS]
    if unknown:
        raise UserError(f"--tags {tags}: there is no tag {unknown[0]}", f"use {', '.join(TAGS)}")
    return asked


class _Teller:
    """Prints what has happened, and what is running: as a last line on a terminal, elsewhere as lines of their own."""

    def __init__(self, to_errors: bool) -> None:
        from trainjob.provision.events import Story

        self._story, self._to_errors = Story(), to_errors
        self._on_terminal = sys.stderr.isatty() and not to_errors
        self.period_s = 1.0 if self._on_terminal else _TELL_EVERY_S
        self._printed_at, self._lock = time.monotonic(), threading.Lock()

    def hear(self, event: Event) -> None:
        with self._lock:
            self._print(self._story.heard(event))
        if self._on_terminal:
            self.tell()

    def tell(self) -> None:
        """Print what is running, unless a line has just been printed."""
        with self._lock:
            now = self._story.now(time.monotonic())
            if self._on_terminal:
                terminal.raw(sys.stderr).write(f"\r\x1b[K  … {terminal.visible(now)[:100]}")
                sys.stderr.flush()
            elif now and time.monotonic() - self._printed_at >= self.period_s / 2:
                typer.echo(f"  … {now}", err=self._to_errors)

    def end(self) -> None:
        with self._lock:
            self._print(self._story.rest())

    def _print(self, lines: list[str]) -> None:
        if self._on_terminal:
            terminal.raw(sys.stderr).write("\r\x1b[K")
        for line in lines:
            self._printed_at = time.monotonic()
            typer.echo(line, err=self._to_errors)


def _print(outcome: Outcome) -> None:
    roles = outcome.roles
    typer.echo()
    show.table(
        ("HOST", *(role.upper() for role in roles)),
        ((host, *(outcome.status(host, role) for role in roles)) for host in outcome.hosts),
    )
    typer.echo()
    for why, hosts in outcome.reasons.items():
        typer.echo(f"{', '.join(hosts)}: {why}")
    typer.echo(_last_line(outcome))


def _last_line(outcome: Outcome) -> str:
    changed = f"changed={outcome.changed}"
    if not outcome.ok:
        bad = [host for hosts in outcome.reasons.values() for host in hosts]
        return f"NOT READY: {', '.join(bad) or 'no host reported a verdict'} · {changed}"
    if not outcome.verdict_expected:
        return f"done, without the tiny job that checks it · {changed}"
    hosts = len(outcome.hosts)
    return f"READY: {hosts} host{'' if hosts == 1 else 's'} · {changed}"
