"""A command that is started once on its node: it starts the node's ranks by itself, and finds where they meet.

What it prints is in the log of its first rank; launch/hooks/ gives each other rank its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Tuple

from trainjob.contract import environment
from trainjob.contract.paths import RunPaths
from trainjob.contract.programs import launchers
from trainjob.contract.programs.launchers import LaunchNode
from trainjob.launch.processes import Ended
from trainjob.launch.rank_environment import Rank
from trainjob.records.failure import tail_of_attempt
from trainjob.records.files import write_atomically

# A launcher gives these to its ranks. What this process got of them is about the launcher itself.
_OF_A_RANK = (environment.RANK, environment.LOCAL_RANK)
_TRACEBACK = "Traceback (most recent call last):"
# Behind its report, composer prints all that the rank has printed.
_REPORT_BYTES = 1 << 20


def of_node(rank: Rank, paths: RunPaths) -> Rank:
    """Return what starts instead of `rank`: the command with its launcher's options, in its launcher's environment."""
    node = LaunchNode(
        nodes=rank.ranking.world_size,
        node_rank=rank.ranking.rank,
        ranks=rank.ranks_per_node,
        address=rank.environment[environment.MASTER_ADDR],
        port=int(rank.environment[environment.MASTER_PORT]),
        run_id="%s-%s" % (paths.id, rank.environment[environment.ATTEMPT]),
        host_file=str(paths.folder / (".%s" % launchers.HOST_FILE)),
        logs=str(paths.logs),
    )
    found = launchers.find(rank.command)
    if found is not None and found.launcher.name == "deepspeed":
        # By every node: another one's may arrive later. All write the same.
        write_atomically(Path(node.host_file), launchers.host_file(node.nodes, node.ranks))
    inherited = {name: value for name, value in rank.environment.items() if name not in _OF_A_RANK}
    # torchrun would give each rank one thread unless the user states another number.
    threads = {}
    if "OMP_NUM_THREADS" not in os.environ:
        threads["OMP_NUM_THREADS"] = str(max(1, int(inherited["OMP_NUM_THREADS"]) // node.ranks))
    log = paths.rank_log(rank.number)
    return rank._replace(
        command=launchers.on_node(rank.command, node),
        environment={
            **inherited,
            **threads,
            **launchers.environment(node),
            environment.LAUNCHER_LOG: str(log),
        },
        log=log,
    )


def _printed(rank: Rank) -> str:
    """Return the end of what a launcher has printed in this attempt, with the heads of logs that it has printed."""
    with open(str(rank.log), "rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - _REPORT_BYTES))
        text = log.read().decode("utf-8", "replace")
    before, _, after = text.partition("--- attempt %s " % rank.environment[environment.ATTEMPT])
    return after or before


def failed_rank(rank: Rank, ended: Ended, paths: RunPaths) -> Tuple[Rank, Ended]:
    """Return the rank that failed first, and how, as its launcher reports it.

    Where it reports none, it is the one whose traceback is the oldest, with the launcher's own code.
    """
    reported = launchers.failed_rank(rank.command, _printed(rank))
    if reported is None:
        logs = {number: paths.rank_log(number) for number in rank.numbers}
        # torch puts [rank3]: in front of it.
        raised = [
            number for number, log in logs.items() if any(line.endswith(_TRACEBACK) for line in tail_of_attempt(log))
        ]
        number = min(raised, key=lambda one: os.stat(str(logs[one])).st_mtime, default=rank.number)
        reported = (number, ended.returncode)
    number, code = reported
    if number not in rank.numbers:
        return rank, ended
    place = rank.ranking._replace(rank=number)
    failed = rank._replace(ranking=place, log=paths.rank_log(number), ranks_per_node=0)
    return failed, ended._replace(returncode=code)
