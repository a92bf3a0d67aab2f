"""Lets the threads of ranks spin while they wait for each other, if each of them has a CPU for itself.

A thread that sleeps is woken late, and a small network's threads wait thousands of times a second. A thread that spins
keeps its CPU from whatever else needs it, which may be the very thread that it waits for. How threads wait changes no
bit of a result, so every start chooses anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, FrozenSet, Mapping, Sequence, Tuple

from trainjob.contract import clock
from trainjob.launch.host import text
from trainjob.launch.rank_environment import Rank, affinity

# Some 20 µs. Ten times as many are a few per cent faster, until something else runs: then a quarter as fast.
SPINNING = {"GOMP_SPINCOUNT": "1000"}
_STATED = ("OMP_WAIT_POLICY", *SPINNING)
# The kernel counts in steps of 10 ms: after less time an idle CPU may look like a busy one.
_LOOK_S = 0.05
# What has just been started, or ends just now, is busy in one of them.
_LOOKS = 3
_IDLE = slice(3, 5)  # idle and iowait, of a CPU's times in /proc/stat
_ALL = slice(0, 8)  # the rest, a guest's, is part of these
_STAT = Path("/proc/stat")


def let_spin(ranks: Sequence[Rank], environ: Mapping[str, str], stat: Path = _STAT) -> None:
    """Have the threads of `ranks`, all that this process starts, spin before they sleep if enough CPUs are idle.

    A way of waiting that `environ` states, by the user or the site, stays.
    """
    counts = [rank.environment["OMP_NUM_THREADS"].partition(",")[0].strip() for rank in ranks]
    if any(name in environ for name in _STATED) or not all(map(str.isdigit, counts)):
        return
    threads = sum(int(count) * max(1, rank.ranks_per_node) for count, rank in zip(counts, ranks))
    cpus: FrozenSet[int] = frozenset().union(*(rank.cpus for rank in ranks)) or frozenset(os.sched_getaffinity(0))
    if len(ranks) == 1 and not affinity().is_bound:
        threads *= ranks[0].ranking.local_world_size  # other launchers start the others
    for _ in range(_LOOKS if threads <= len(cpus) else 0):
        before = _times(stat)
        clock.sleep(_LOOK_S)
        after = _times(stat)
        idle = 0  # for more than half of the time
        for cpu in cpus.intersection(before, after):
            idle_ticks, all_ticks = (now - then for then, now in zip(before[cpu], after[cpu]))
            idle += 2 * idle_ticks > all_ticks
        if idle >= threads:
            for rank in ranks:
                rank.environment.update(SPINNING)
            return


def _times(stat: Path) -> Dict[int, Tuple[int, int]]:
    """Return for how long each CPU has been idle since the machine started, and for how long it has been watched."""
    rows = [line.split() for line in text(stat).splitlines() if line.startswith("cpu")]
    times = {int(name[3:]): list(map(int, counts)) for name, *counts in rows if name != "cpu"}
    return {cpu: (sum(counts[_IDLE]), sum(counts[_ALL])) for cpu, counts in times.items()}
