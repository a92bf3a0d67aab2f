"""Launchers that start no ranks: those of all hosts meet where their ranks would, and rank 0's records who came.

This is what `trainjob rehearse --launch-only` runs. The environment, device and binding of each rank have been checked
by then, each by the rank's own launcher. One launcher a host meets the others, on behalf of all its ranks.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Dict

from trainjob.contract import environment, exits
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.launch.host import node_name
from trainjob.launch.nodecheck import meeting
from trainjob.launch.nodecheck.meeting import Meeting, NobodyMetError
from trainjob.launch.rank_environment import Rank
from trainjob.records.files import DamagedError, write_json

LIMIT_S = 300.0


def answer(paths: RunPaths, rank: Rank, limit_s: float = LIMIT_S) -> int:
    """Return 0 once this rank is checked and, for the first rank of a host, the launchers of all hosts have met.

    Raises UserError if the rank can't be bound to its CPUs, or if a host is missing after `limit_s`.
    """
    _bind(rank)
    mine = _host_of(rank)
    rank.log.parent.mkdir(parents=True, exist_ok=True)
    with open(str(rank.log), "a", encoding="utf-8") as log:
        log.write("%sno rank is started: device %s, %d CPUs\n" % (rank.header, mine["device"], mine["cpus"]))
    if rank.ranking.local_rank != 0:
        return exits.DONE
    try:
        met = _meet(rank, mine, limit_s)
        with contextlib.closing(met):
            if met.is_first:
                _write(paths, int(rank.environment[environment.ATTEMPT]), met)
            met.share("all are here")
    except (NobodyMetError, DamagedError) as error:
        raise UserError(
            "the launchers of this job's hosts have not met: %s" % error,
            "see whether network.interface in the cluster file reaches every host",
        ) from None
    return exits.DONE


def _bind(rank: Rank) -> None:
    if not rank.cpus:
        return
    try:
        os.sched_setaffinity(0, rank.cpus)
    except OSError as error:
        raise UserError(
            "rank %d can't be bound to its CPUs: %s" % (rank.ranking.rank, error.strerror),
            "set binding: none in the cluster file",
        ) from None


def _host_of(rank: Rank) -> Dict[str, Any]:
    """Return this host's entry, which the first host reads as a HostPresent."""
    return {
        "host": node_name(),
        "first_rank": rank.ranking.rank,
        "ranks": rank.ranking.local_world_size,
        "device": rank.environment[environment.RANK_DEVICE],
        "cpus": len(os.sched_getaffinity(0)),
        "cpu_s": round(time.process_time(), 3),
    }


def _meet(rank: Rank, mine: Dict[str, Any], limit_s: float) -> Meeting:
    environ = rank.environment
    address, port = environ[environment.MASTER_ADDR], int(environ[environment.MASTER_PORT])
    token = environ.get(environment.TOKEN, "")
    if rank.ranking.rank != 0:
        return meeting.join(address, port, token, mine, limit_s)
    others = int(environ.get("SLURM_STEP_NUM_NODES") or 1) - 1
    return meeting.host(address, port, token, mine, others, limit_s)


def _write(paths: RunPaths, attempt: int, met: Meeting) -> None:
    from trainjob.records import typed
    from trainjob.records.roll_call import HostPresent, RollCall

    hosts = sorted((typed.from_json(HostPresent, party) for party in met.parties), key=lambda host: host.first_rank)
    call = RollCall(attempt, connections=len(hosts) - 1, complete_at=time.time())
    write_json(paths.roll_call, {**vars(call), "hosts": [vars(host) for host in hosts]})
