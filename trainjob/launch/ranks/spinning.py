"""Lets the threads of ranks spin while they wait for each other, if each of them has a CPU for itself.

A thread that sleeps is woken late, and a small network's threads wait thousands of times a second. A thread that spins
keeps its CPU from whatever else needs it, which may be the very thread that it waits for. How threads wait changes no
bit of a result, so every start chooses anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, FrozenSet, Mapping, Optional, Sequence, Tuple

from trainjob.contract import clock
from trainjob.launch.host import text
from trainjob.launch.rank_environment import Rank, affinity

# Some 20 µs. Ten times as many are a few per cent faster, until something else runs: then a quarter as fast.
SPINNING = {"GOMP_SPINCOUNT": "1000"}
_STATED = ("OMP_WAIT_POLICY", *SPINNING)
# The kernel counts in ticks of 10 ms: after fewer an idle CPU may look like a busy one.
_TICKS = 5
_IDLE = slice(3, 5)  # idle and iowait, of a CPU's times in /proc/stat
_ALL = slice(0, 8)  # the rest, a guest's, is part of these
_STAT = Path("/proc/stat")


def let_spin(
    ranks: Sequence[Rank], environ: Mapping[str, str], at_start: Optional[Tuple[str, float]] = None, stat: Path = _STAT
) -> None:
    """Have the threads of `ranks`, all that this process starts, spin before they sleep if enough CPUs are idle.

    `at_start` is what the kernel had counted when this process began, and the seconds of CPU time that it had used: it
    looks at its CPUs while it loads. A way of waiting that `environ` states, by the user or the site, stays.
    """
    counts = [rank.environment["OMP_NUM_THREADS"].partition(",")[0].strip() for rank in ranks]
    if any(name in environ for name in _STATED) or not all(map(str.isdigit, counts)):
        return
    threads = sum(int(count) * max(1, rank.ranks_per_node) for count, rank in zip(counts, ranks))
    cpus: FrozenSet[int] = frozenset().union(*(rank.cpus for rank in ranks)) or frozenset(os.sched_getaffinity(0))
    is_alone = len(ranks) > 1 or affinity().is_bound
    launchers = 1 if is_alone else ranks[0].ranking.local_world_size
    if launchers * threads > len(cpus):
        return
    counted, used_s = at_start or (text(stat), _used_s())
    per_s = os.sysconf("SC_CLK_TCK")  # ticks
    then, now = _times(counted), _times(text(stat))
    ticks = max((now[cpu][1] - then[cpu][1] for cpu in cpus.intersection(then, now)), default=_TICKS)
    if ticks < _TICKS:
        clock.sleep((_TICKS - ticks) / per_s)
        now = _times(text(stat))
    idle = passed = 0  # CPUs, for more than half of the time; ticks
    for cpu in cpus.intersection(then, now):
        idle_ticks, all_ticks = (late - early for early, late in zip(then[cpu], now[cpu]))
        idle, passed = idle + (2 * idle_ticks > all_ticks), max(passed, all_ticks)
    # What kept CPUs busy itself, as the launchers beside it did, sleeps from now on.
    if 2 * (_used_s() - used_s) * per_s > passed:
        idle += launchers
    if idle >= launchers * threads:
        for rank in ranks:
            rank.environment.update(SPINNING)


def _used_s() -> float:
    return sum(os.times()[:2])


def _times(counted: str) -> Dict[int, Tuple[int, int]]:
    """Return for how long each CPU has been idle since the machine started, and for how long it has been watched."""
    rows = [line.split() for line in counted.splitlines() if line.startswith("cpu")]
    times = {int(name[3:]): list(map(int, counts)) for name, *counts in rows if name != "cpu"}
    return {cpu: (sum(counts[_IDLE]), sum(counts[_ALL])) for cpu, counts in times.items()}
