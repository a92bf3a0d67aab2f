"""Makes reservations: jobs that hold nodes for runs, and end by themselves when nobody uses them."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from trainjob.cluster.slurm_text import duration
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, home
from trainjob.kinds.table import as_reservation
from trainjob.machines import process
from trainjob.observe import reservations
from trainjob.records.files import only_owner_writes
from trainjob.requests.guardian import LET_GO
from trainjob.requests.options import JobOptions
from trainjob.requests.prepared import Prepared, prepare

_LONGEST_WARNING_S, _LONGEST_LOOK_S = 300, 10
_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]+)?)([mhd])")
_UNITS_S = {"m": 60, "h": 3600, "d": 86_400}
_GUARDIAN_S = 150.0  # for which a command waits until the guardian has ended its reservation


def planned(cluster: str | None, length: str, idle_minutes: float, **settings: Any) -> Prepared:
    """Return the request for a job that holds nodes for `length` ("2h", or as Slurm writes it).

    It ends by itself when no step has run in it for `idle_minutes`. Raises UserError for what can't be reserved.
    """
    idle_s = max(1, round(60 * idle_minutes))
    times = (idle_s, min(_LONGEST_WARNING_S, idle_s // 2), max(1, min(_LONGEST_LOOK_S, idle_s // 6)))
    values = {
        "name": reservations.NAME,
        "command": ["hold_nodes", *map(str, times)],
        "time_limit": time_limit(length),
        "max_attempts": 1,
        **{name: value for name, value in settings.items() if value},
    }
    prepared = prepare(JobOptions(cluster, None, values))
    named = prepared.named_cluster
    held = as_reservation(named.name, named.cluster)
    return replace(
        prepared, named_cluster=named._replace(cluster=held), request=replace(prepared.request, cluster=held)
    )


def time_limit(length: str) -> str:
    """Return 90m, 2h, 1.5h or 1d as Slurm writes it, and a time of Slurm's as it is. Raises UserError for a number."""
    if (matched := _LENGTH.fullmatch(length)) is not None:
        return duration(round(float(matched[1]) * _UNITS_S[matched[2]]))
    if length.isdecimal():
        raise UserError(f"--for {length} has no unit", f"give {length}h or {length}m")
    return length


@contextlib.contextmanager
def guarded(warn: Callable[[str], None]) -> Iterator[Callable[[RunPaths | None], None]]:
    """Yield what is told the reservation that is about to be made, and None once it may outlive this command.

    Until then a guardian process ends it however this command ends, even by kill -9. `warn` is told where it has not
    yet: where the cluster is out of reach, it goes on trying after this command.
    """
    log = home() / "reservations.log"
    with only_owner_writes():
        log.parent.mkdir(parents=True, exist_ok=True)
        guardian = process.keep([sys.executable, "-m", "trainjob.requests.guardian"], log=log)
    try:
        yield lambda paths: guardian.tell(LET_GO if paths is None else str(paths.folder))
    finally:
        if not guardian.close(_GUARDIAN_S):
            warn("the reservation has not been ended yet; a process on this machine goes on trying (trainjob list)")
