"""roll_call.json: which hosts' launchers met, where a rehearsal starts launchers and no ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List


@dataclass(frozen=True)
class HostPresent:
    """One host, as its launcher describes it on behalf of its ranks."""

    host: str
    first_rank: int
    ranks: int
    device: str  # of its first rank: cpu, cuda:0, ipu
    cpus: int  # that its first rank may use
    cpu_s: float  # CPU time that its launcher had used when it arrived


@dataclass(frozen=True)
class RollCall:
    """The hosts whose launchers have met, as the launcher of rank 0 writes it down."""

    attempt: int
    connections: int  # that the first host accepted
    complete_at: float  # seconds since 1970
    hosts: List[HostPresent] = field(default_factory=list)
