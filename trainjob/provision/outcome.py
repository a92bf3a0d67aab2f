"""What became of every host, role by role, and whether that is success."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from trainjob.provision.events import HostDone

# As the playbooks go; roles that they bring along stand behind.
ROLES = ("validate", "sdk_venv", "horovod", "pod_hosts", "dataset", "proof")
_RANK = {status: rank for rank, status in enumerate(("skipped", "ok", "changed", "failed", "unreachable"))}
NOTHING = "–"


@dataclass
class Outcome:
    """Filled by events. `verdict` is what check.yml wrote; None if it was not asked for or came to nothing."""

    hosts: tuple[str, ...]
    code: int = 0
    verdict: dict[str, Any] | None = None
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

    def as_json(self) -> dict[str, Any]:
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
