"""The node check's all-reduce: all ranks sum numbers that are known beforehand, and each verifies the sum.

On GPUs a process for each rank does so (gpu_sums.py), with the job's own torch and NCCL. Elsewhere the launchers do it
themselves (tcp_sums.py), over TCP as gloo does. Pairs of nodes, or of the ranks of a single node, then measure the
bandwidth between them.
"""

from __future__ import annotations

import importlib.util
from typing import Callable, Optional

from trainjob.contract import environment, ports
from trainjob.launch.host import node_name
from trainjob.launch.nodecheck import gpu_sums, meeting, tcp_sums
from trainjob.launch.nodecheck.meeting import Meeting, NobodyMetError, Work
from trainjob.launch.nodecheck.verdict import Report, Verdict, judge

_MEET_S = 60.0


def verdict(work: Work, record: Callable[[Verdict], None]) -> Optional[Verdict]:
    """Return the verdict on all nodes, the same on each; None if nothing is to be reduced.

    The first launcher calls `record` before any other learns of a refusal and ends. Raises NoWayError.
    """
    first = work.rankings[0]
    others = first.world_size - len(work.rankings)
    if first.world_size == 1 or not (others or work.children):
        return None
    address, port = (work.environment.get(name) for name in (environment.MASTER_ADDR, environment.MASTER_PORT))
    if first.local_world_size == first.world_size:
        address = ports.LOOPBACK
    if not address or not (port or "").isdigit():
        return Verdict("no all-reduce before the ranks start: where they meet is not known")
    try:
        met = _meet(work, address, int(port or 0), others)
        try:
            report = gpu_sums.reduce(met, work) if work.children else tcp_sums.reduce(met, work)
            if isinstance(report, Verdict):
                return report
            reports = [Report(**one) for one in met.gather(report._asdict())]
            found = judge(reports) if met.is_first else Verdict("")
            if found.is_refused:
                record(found)
            return Verdict(**met.share(found._asdict()))
        finally:
            met.close()
    except NobodyMetError as error:
        return Verdict("no all-reduce before the ranks start: %s" % error)


def _meet(work: Work, address: str, port: int, others: int) -> Meeting:
    numbers = [ranking.rank for ranking in work.rankings]
    mine = {
        "ranks": numbers,
        "node": node_name(),
        "address": address,
        "has_torch": importlib.util.find_spec("torch") is not None,
    }
    token = work.environment.get(environment.TOKEN, "")
    if numbers[0] == 0:
        return meeting.host(address, port, token, mine, others, 2 * _MEET_S)
    return meeting.join(address, port, token, mine, _MEET_S)
