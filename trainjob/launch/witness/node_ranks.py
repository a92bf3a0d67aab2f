"""The ranks that a launcher has started on its node: torchrun's and other's, which start once per node."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Sequence

from trainjob.contract import environment
from trainjob.launch import processes
from trainjob.launch.rank_environment import Watched

# What differs between the ranks of a node.
_OWN = (
    *(environment.RANK, environment.LOCAL_RANK),
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
)


def ranks_of(launchers: Sequence[Watched]) -> List[Watched]:
    """Return the ranks that each launcher has started on its node, or the launcher in the place of its first.

    A process that is no launcher is a rank already.
    """
    found = []
    for one in launchers:
        environments = {pid: _environment_of(pid) for pid in pids_below(one.pid)} if one.ranks_per_node else {}
        by_name = {environ.get(environment.RANK): pid for pid, environ in environments.items()}
        ranks = {rank: by_name[str(rank)] for rank in one.numbers if str(rank) in by_name}
        # Those of another world, and of a launcher that numbers its nodes itself, stand in their local order.
        if len(ranks) < len(environments):
            ranks = dict(zip(one.numbers, environments))
        for rank, pid in sorted(ranks.items()):
            local = {name: value for name, value in environments[pid].items() if name in _OWN}
            device = one.environment[environment.RANK_DEVICE].partition(":")[0]
            if device == "cuda":
                local[environment.RANK_DEVICE] = "cuda:%s" % local.get(environment.LOCAL_RANK, 0)
            found.append(one._replace(rank=rank, pid=pid, environment={**one.environment, **local}, ranks_per_node=0))
        if not ranks:
            found.append(one)
    return found


def pids_below(pid: int) -> List[int]:
    """Return the processes of the ranks that a launcher has started: those that were given RANK by one that has none.

    A command that starts no ranks is itself the one that signals are for.
    """
    tree = processes.trees([pid]).get(pid, [])
    with_rank = {process.pid for process in tree if environment.RANK in _environment_of(process.pid)}
    return [process.pid for process in tree if process.pid in with_rank and process.parent not in with_rank] or [pid]


def _environment_of(pid: int) -> Dict[str, str]:
    try:
        words = Path("/proc/%d/environ" % pid).read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:  # it has just ended
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)
