"""Whether this is a login node of a public machine of the catalog: a proposal, which never chooses a cluster."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Iterable
from typing import NamedTuple

from trainjob.contract.errors import UserError
from trainjob.kinds.lookup import sites
from trainjob.machines.access import HERE
from trainjob.machines.slurm.partitions import configuration

# Words in the names of site files that other machines have in theirs.
_COMMON = frozenset(("booster",))
_SHORTEST_WORD = 4


class LoginNode(NamedTuple):
    """A site of the catalog, and why this machine seems to belong to it."""

    site: str
    because: str

    def __str__(self) -> str:
        """Return the proposal."""
        return (
            f"this seems to be a login node of {self.site} ({self.because}). Its cluster file comes with trainjob: "
            f"trainjob cluster init --site {self.site}, then trainjob cluster use {self.site}"
        )


def login_node() -> LoginNode | None:
    """Return the public machine whose login node this seems to be; None where there is no Slurm, or no such machine."""
    if shutil.which("scontrol") is None:
        return None
    try:
        name = configuration(HERE).get("ClusterName", "")
    except UserError:
        name = ""
    return by_names(name, socket.getfqdn())


def by_names(cluster: str, host: str) -> LoginNode | None:
    """Return the site that the name of a Slurm cluster, or the full name of a host, has a word of."""
    names = [one.name for one in sites()]
    site = _named(names, [cluster])
    if site is not None:
        return LoginNode(site, f"its Slurm's cluster is called {cluster}")
    site = _named(names, host.split("."))
    return None if site is None else LoginNode(site, f"its host is called {host}")


def _named(names: Iterable[str], labels: Iterable[str]) -> str | None:
    listed = [label.lower() for label in labels]
    for name in names:
        words = {name, *(word for word in name.split("-") if len(word) >= _SHORTEST_WORD)} - _COMMON
        # A whole word of a label, with a number: della8, dt-login01 is none.
        if any(re.match(rf"{re.escape(word)}[0-9]*(?![a-z0-9])", label) for word in words for label in listed):
            return name
    return None
