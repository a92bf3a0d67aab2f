"""Filters of the role `proof`."""

from __future__ import annotations


def proof_verdict(hosts, hostvars, standing):
    """Return what is known of every host at the end; `standing` are those that no task has failed on."""
    found = {host: _of_host(host, hostvars, standing) for host in hosts}
    return {"ok": bool(found) and all(one["ok"] for one in found.values()), "hosts": found}


def _of_host(host, hostvars, standing):
    if host not in standing:
        return {"ok": False, "why": "a task failed on it, or it could not be reached"}
    result = hostvars[host].get("proof_result") or {}
    value = result.get("value")
    return {"ok": True, "job": value} if value else {"ok": True, "job": None}


class FilterModule:
    """What Ansible looks for."""

    def filters(self):
        """Return the filters by name."""
        return {"proof_verdict": proof_verdict}
