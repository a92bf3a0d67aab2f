"""Runs the playbooks on a cluster's hosts with ansible-playbook, which comes with the extra `provision`."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainjob.cluster import slurm_text
from trainjob.contract import package
from trainjob.contract.errors import UserError, did_you_mean
from trainjob.machines import process
from trainjob.provision.events import CALLBACK, Event, HostDone, parse
from trainjob.provision.inventory import Inventory
from trainjob.records.files import read_json, write_atomically

TAGS = ("sdk", "horovod", "pods", "datasets", "check", "prune")


@dataclass(frozen=True)
class ProvisionRequest:
    """The options of `trainjob provision`."""

    limit: str | None = None
    tags: tuple[str, ...] = ()
    check: bool = False
    become: bool = False
    extra: tuple[str, ...] = ()


# In the order of the playbooks; roles that they bring along come after these.
ROLES = ("validate", "sdk_venv", "horovod", "pod_hosts", "dataset", "proof")
_RANK = {status: rank for rank, status in enumerate(("skipped", "ok", "changed", "failed", "unreachable"))}
NOTHING = "–"


@dataclass
class ProvisionOutcome:
    """The result on every host, role by role. `verdict` is what check.yml wrote; None if it wrote nothing."""

    hosts: tuple[str, ...]
    code: int = 0
    verdict: Mapping[str, object] | None = None
    verdict_expected: bool = True
    failures: list[HostDone] = field(default_factory=list)
    changed: int = 0
    _worst: dict[tuple[str, str], str] = field(default_factory=lambda: defaultdict(lambda: "skipped"))

    def add(self, event: HostDone) -> None:
        """Take in what a task did on a host."""
        where = (event.host, event.role)
        self._worst[where] = max(self._worst[where], event.status, key=_RANK.__getitem__)
        self.changed += event.status == "changed"
        if event.is_bad:
            self.failures.append(event)

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that did something on any host, in order."""
        seen = {role for (_, role), status in self._worst.items() if role and status != "skipped"}
        return (*(role for role in ROLES if role in seen), *sorted(seen - set(ROLES)))

    def status(self, host: str, role: str) -> str:
        """Return the worst that `role` met on `host`; a dash where it did nothing."""
        worst = self._worst.get((host, role), "skipped")
        return NOTHING if worst == "skipped" else worst

    @property
    def ok(self) -> bool:
        """Whether all is well: the verdict says so where one was asked for, and nothing failed."""
        judged = bool(self.verdict and self.verdict["ok"]) if self.verdict_expected else True
        return judged and self.code == 0 and not self.failures

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Why hosts are not well: each reason once, with the hosts it holds for."""
        first = {event.host: event for event in reversed(self.failures)}
        found: dict[str, list[str]] = defaultdict(list)
        for host in (host for host in self.hosts if host in first):
            found[f"{first[host].role or first[host].task}: {first[host].why}"].append(host)
        return dict(found)

    def as_json(self) -> dict[str, object]:
        """Return everything for machines."""
        return {
            "ok": self.ok,
            "changed": self.changed,
            "hosts": {host: {role: self.status(host, role) for role in self.roles} for host in self.hosts},
            "failures": [
                {"host": event.host, "role": event.role, "task": event.task, "status": event.status, "why": event.why}
                for event in self.failures
            ],
            "verdict": self.verdict,
        }


def provision(inventory: Inventory, request: ProvisionRequest, say: Callable[[Event], None]) -> ProvisionOutcome:
    """Return what became of the hosts; `say` hears of every task. Raises UserError before anything has run."""
    ends_with_verdict = not request.check and (not request.tags or "check" in request.tags)
    outcome = ProvisionOutcome(hosts_of(inventory, request.limit), verdict_expected=ends_with_verdict)
    program = shutil.which("ansible-playbook", path=process.search_path())
    if program is None:
        raise UserError("ansible-playbook is not installed", package.install_command("provision"))
    with tempfile.TemporaryDirectory(prefix="trainjob-provision-") as name:
        hosts_file, verdict = Path(name) / "inventory.json", Path(name) / "verdict.json"
        write_atomically(hosts_file, json.dumps(inventory.as_file(), indent=1), 0o600)
        arguments = [
            program,
            *("--inventory", str(hosts_file)),
            *("--extra-vars", json.dumps({"proof_verdict": str(verdict)})),
            *(("--limit", ",".join(outcome.hosts)) if request.limit else ()),
            *(("--tags", ",".join(request.tags)) if request.tags else ()),
            *(("--check", "--diff") if request.check else ()),
            *(("--become",) if request.become else ()),
            *(word for value in request.extra for word in ("--extra-vars", value)),
            str(package.companion("playbooks") / "site.yml"),
        ]
        # A configuration of the user's own stays.
        environment = {
            "ANSIBLE_CONFIG": str(package.companion("playbooks") / "ansible.cfg"),
            # Of what Ansible's own collections still use; nobody who provisions can change it.
            "ANSIBLE_DEPRECATION_WARNINGS": "False",
            **os.environ,
            "ANSIBLE_STDOUT_CALLBACK": CALLBACK,
            "ANSIBLE_JSON_INDENT": "0",
            "ANSIBLE_NOCOLOR": "1",
        }

        def lines() -> Iterator[str]:
            outcome.code = yield from process.lines_of(arguments, folder=Path.cwd(), environment=environment)

        for line in lines():
            event = parse(line, diffs=request.check)
            if isinstance(event, HostDone):
                outcome.add(event)
            if event is not None:
                say(event)
        found = read_json(verdict)
        outcome.verdict = found if isinstance(found, dict) else None
    return outcome


def hosts_of(inventory: Inventory, limit: str | None) -> tuple[str, ...]:
    """Return the hosts that `limit` leaves, all without one. Raises UserError for a host the cluster lacks."""
    known = tuple(inventory.hosts)
    if limit is None:
        return known
    limited = slurm_text.expand(limit)
    for host in limited:
        if host not in known:
            cure = f"{did_you_mean(host, known)}It has {slurm_text.compress(known)}"
            raise UserError(f"--limit {limit}: the cluster has no host {host}", cure)
    return limited
