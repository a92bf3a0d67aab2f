"""Starts a command once on its node: it starts the node's ranks by itself, and finds where they meet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List

from trainjob.contract import environment, node_launchers
from trainjob.contract.node_launchers import Node
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.rank_environment import Rank
from trainjob.records.files import write_atomically

# A launcher gives these to its ranks. What this process got of them is about the launcher itself.
_OF_A_RANK = (environment.RANK, environment.LOCAL_RANK)


def of_node(rank: Rank, paths: RunPaths) -> Rank:
    """Return what starts instead of `rank`: the command with its launcher's options, in its launcher's environment."""
    node = Node(
        nodes=rank.ranking.world_size,
        node_rank=rank.ranking.rank,
        ranks=rank.ranks_per_node,
        address=rank.environment[environment.MASTER_ADDR],
        port=int(rank.environment[environment.MASTER_PORT]),
        run_id="%s-%s" % (paths.id, rank.environment[environment.ATTEMPT]),
        host_file=str(paths.folder / (".%s" % node_launchers.HOST_FILE)),
    )
    found = node_launchers.find(rank.command)
    if found is not None and found.launcher.name == "deepspeed":
        # By every node: another one's may arrive later. All write the same.
        write_atomically(Path(node.host_file), node_launchers.host_file(node.nodes, node.ranks))
    inherited = {name: value for name, value in rank.environment.items() if name not in _OF_A_RANK}
    # torchrun would give each rank one thread unless the user states another number.
    threads = {}
    if "OMP_NUM_THREADS" not in os.environ:
        threads["OMP_NUM_THREADS"] = str(max(1, int(inherited["OMP_NUM_THREADS"]) // node.ranks))
    return rank._replace(
        command=node_launchers.on_node(rank.command, node),
        environment={**inherited, **threads, **node_launchers.environment(node)},
    )


def ranks_below(pid: int) -> List[int]:
    """Return the processes of the ranks that a launcher has started: those that were given RANK by one that has none.

    A command that starts no ranks is itself the one that signals are for.
    """
    tree = processes.trees([pid]).get(pid, [])
    with_rank = {process.pid for process in tree if _has_rank(process.pid)}
    return [process.pid for process in tree if process.pid in with_rank and process.parent not in with_rank] or [pid]


def _has_rank(pid: int) -> bool:
    try:
        return ("\0%s=" % environment.RANK).encode() in b"\0" + Path("/proc/%d/environ" % pid).read_bytes()
    except OSError:  # it has just ended
        return False
