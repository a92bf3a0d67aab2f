"""Judges the nodes by the reports of all launchers on the node check's all-reduce."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from trainjob.launch.nodecheck.meeting import Party

# All pairs of many nodes would take minutes: each node gets at most this many partners.
MOST_ROUNDS = 8
# An import of torch over NFS on hundreds of nodes at once takes minutes.
LIMIT_S = 180.0

SKIPPED = "all-reduce skipped: %s"

Pair = Tuple[int, int]


class NodeReport(NamedTuple):
    """The report of one rank."""

    node: str
    rank: int
    failed: str = ""  # the last output of its process, if that failed by itself
    failed_after_s: float = 0.0
    lost: str = ""  # the connection to another rank that it lost
    is_ready: bool = True  # whether its GPU answered
    wrong: Optional[Sequence[int]] = ()  # ranks whose numbers arrived wrong; None: it has not verified the sum
    has_wrong_sum: bool = False
    mb_per_s: Sequence[Tuple[int, int, float]] = ()
    unreached: Sequence[Pair] = ()


class NodeVerdict(NamedTuple):
    """The first launcher's verdict on all reports. `node` is the faulty one, if any."""

    text: str
    is_refused: bool = False
    node: str = ""
    rank: int = 0


def judge(reports: Sequence[NodeReport]) -> NodeVerdict:
    """Return the fault and its node; without a fault, the slowest pair."""
    nodes = {report.rank: report.node for report in reports}
    broken = sorted((report for report in reports if report.failed), key=lambda report: report.failed_after_s)
    if broken:
        return _of_broken(broken, nodes)
    waiting = [report for report in reports if report.wrong is None]
    silent = [report for report in waiting if not report.is_ready]
    if len(silent) == len(reports):
        return NodeVerdict(SKIPPED % "no GPU answered through torch within %g s" % LIMIT_S)
    if silent:
        return _against(silent[0].rank, nodes, "its GPU did not answer through torch within %g s" % LIMIT_S)
    if waiting:
        why = next((report.lost for report in waiting if report.lost), "it did not end within %g s" % LIMIT_S)
        return _against_all(nodes, why)
    wrong = Counter(rank for report in reports for rank in report.wrong or ()).most_common(1)
    if wrong:
        rank = wrong[0][0]
        return _against(rank, nodes, "data that rank %d contributes to an all-reduce arrives corrupted" % rank)
    for report in reports:
        if report.has_wrong_sum:
            return _against(report.rank, nodes, "rank %d got a wrong sum of an all-reduce" % report.rank)
    unreached = [pair for report in reports for pair in report.unreached]
    if unreached:
        times = Counter(rank for pair in unreached for rank in pair)
        # If two nodes don't reach each other, not the first node, because the job script runs there.
        rank = max(times, key=lambda one: (times[one], nodes[one] != nodes[0]))
        partners = sorted({nodes[one] for pair in unreached if rank in pair for one in pair if one != rank})
        return _against(rank, nodes, "no connection between it and %s" % ", ".join(partners))
    hosts = len(set(nodes.values()))
    line = "the all-reduce of %d ranks on %d node%s gave the right sum" % (len(nodes), hosts, "" if hosts == 1 else "s")
    pairs = [pair for report in reports for pair in report.mb_per_s]
    if not pairs:
        return NodeVerdict(line)
    one, other, speed = min(pairs, key=lambda pair: pair[2])
    names = [nodes[rank] if nodes[one] != nodes[other] else "rank %d" % rank for rank in (one, other)]
    return NodeVerdict("%s; slowest pair: %s and %s with %.3g GB/s" % (line, names[0], names[1], speed / 1e3))


def _of_broken(broken: List[NodeReport], nodes: Mapping[int, str]) -> NodeVerdict:
    first, all_nodes = broken[0], set(nodes.values())
    if {report.node for report in broken} == all_nodes and not first.is_ready:
        # The same on all nodes, such as a torch without CUDA: the ranks' own errors explain it best.
        return NodeVerdict(SKIPPED % first.failed)
    if {report.node for report in broken} == all_nodes and len(all_nodes) > 1:
        return _against_all(nodes, first.failed)
    return _against(first.rank, nodes, "an all-reduce ended there with: %s" % first.failed)


def _against(rank: int, nodes: Mapping[int, str], text: str) -> NodeVerdict:
    return NodeVerdict(text, is_refused=True, node=nodes[rank], rank=rank)


def _against_all(nodes: Mapping[int, str], why: str) -> NodeVerdict:
    figures = (len(nodes), len(set(nodes.values())), why)
    return NodeVerdict(
        "the all-reduce of %d ranks on %d nodes failed, and no single node is to blame: %s" % figures, True
    )


def rounds(members: Sequence[int]) -> List[List[Pair]]:
    """Return rounds of pairs in which each of `members` has at most one partner; all pairs if they are few."""
    seats: List[Optional[int]] = [*members, *([None] if len(members) % 2 else [])]
    listed: List[List[Pair]] = []
    for _ in range(min(len(seats) - 1, MOST_ROUNDS)):
        pairs = [(seats[at], seats[-1 - at]) for at in range(len(seats) // 2)]
        listed.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return listed


def members(parties: Sequence[Party]) -> List[int]:
    """Return the ranks to measure in pairs: the lowest rank of each node; all ranks of a single node."""
    lowest: Dict[str, int] = {}
    for party in parties:
        lowest[party["node"]] = min(party["ranks"] + [lowest.get(party["node"], party["ranks"][0])])
    if len(lowest) > 1:
        return sorted(lowest.values())
    return sorted(rank for party in parties for rank in party["ranks"])
