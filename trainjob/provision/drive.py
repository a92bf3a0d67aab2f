"""Runs the playbooks on a cluster's hosts with ansible-playbook, which comes with the extra `provision`."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.cluster import hostlist
from trainjob.contract import package
from trainjob.contract.errors import UserError, nearest
from trainjob.machines import process
from trainjob.provision.events import CALLBACK, Event, HostDone, parse
from trainjob.provision.inventory import as_file
from trainjob.provision.outcome import Outcome
from trainjob.records.files import read_json, write_atomically

TAGS = ("sdk", "horovod", "pods", "datasets", "check", "prune")


@dataclass(frozen=True)
class Request:
    """The options of `trainjob provision`."""

    limit: str | None = None
    tags: tuple[str, ...] = ()
    check: bool = False
    become: bool = False
    extra: tuple[str, ...] = ()


def provision(inventory: dict[str, Any], request: Request, say: Callable[[Event], None]) -> Outcome:
    """Return what became of the hosts; `say` hears of every task. Raises UserError before anything has run."""
    ends_with_verdict = not request.check and (not request.tags or "check" in request.tags)
    outcome = Outcome(hosts_of(inventory, request.limit), verdict_expected=ends_with_verdict)
    with tempfile.TemporaryDirectory(prefix="trainjob-provision-") as folder:
        verdict = Path(folder) / "verdict.json"
        arguments = _arguments(_written(inventory, Path(folder)), verdict, outcome.hosts, request)
        for line in _Lines(arguments, outcome):
            event = parse(line, diffs=request.check)
            if isinstance(event, HostDone):
                outcome.add(event)
            if event is not None:
                say(event)
        outcome.verdict = read_json(verdict)
    return outcome


def hosts_of(inventory: dict[str, Any], limit: str | None) -> tuple[str, ...]:
    """Return the hosts that `limit` leaves, all without one. Raises UserError for a host the cluster lacks."""
    known = tuple(inventory["_meta"]["hostvars"])
    if limit is None:
        return known
    limited = hostlist.expand(limit)
    for host in limited:
        if host not in known:
            near = nearest(host, known)
            hint = f"did you mean {near}? " if near else ""
            raise UserError(
                f"--limit {limit}: the cluster has no host {host}", f"{hint}It has {hostlist.compress(known)}"
            )
    return limited


class _Lines:
    """The output of ansible-playbook; its exit code goes to the outcome."""

    def __init__(self, arguments: Sequence[str], outcome: Outcome) -> None:
        self._arguments, self._outcome = arguments, outcome

    def __iter__(self) -> Any:
        """Yield the lines."""
        self._outcome.code = yield from process.lines_of(self._arguments, folder=Path.cwd(), environment=_environment())


def _arguments(inventory: Path, verdict: Path, hosts: Sequence[str], request: Request) -> list[str]:
    flags = [
        *(["--limit", ",".join(hosts)] if request.limit else []),
        *(["--tags", ",".join(request.tags)] if request.tags else []),
        *(["--check", "--diff"] if request.check else []),
        *(["--become"] if request.become else []),
        *(word for value in request.extra for word in ("--extra-vars", value)),
    ]
    extra = json.dumps({"proof_verdict": str(verdict)})
    return [
        _program(),
        "--inventory",
        str(inventory),
        "--extra-vars",
        extra,
        *flags,
        str(package.companion("playbooks") / "site.yml"),
    ]


def _program() -> str:
    found = shutil.which("ansible-playbook", path=process.search_path())
    if found is None:
        raise UserError("ansible-playbook is not installed", "pip install 'trainjob[provision]'")
    return found


def _environment() -> dict[str, str]:
    """Return our environment and what makes Ansible speak events; a configuration of the user's own stays."""
    return {
        "ANSIBLE_CONFIG": str(package.companion("playbooks") / "ansible.cfg"),
        # Of what Ansible's own collections still use; nobody who provisions can change it.
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        **os.environ,
        "ANSIBLE_STDOUT_CALLBACK": CALLBACK,
        "ANSIBLE_JSON_INDENT": "0",
        "ANSIBLE_NOCOLOR": "1",
    }


def _written(inventory: dict[str, Any], folder: Path) -> Path:
    path = folder / "inventory.json"
    write_atomically(path, json.dumps(as_file(inventory), indent=1), 0o600)
    return path
