"""What the reports of all launchers say: which node an all-reduce that fails is blamed on, and when none is."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.support.cases import each
from trainjob.launch.nodecheck.verdict import MOST_ROUNDS, NodeReport, judge, members, rounds

A, B, C = NodeReport("a", 0), NodeReport("b", 1), NodeReport("c", 2)


@each(
    ("reports", "node", "text"),
    [
        ([A, B._replace(failed="CUDA error", failed_after_s=2), C], "b", "an all-reduce ended there with: CUDA error"),
        (
            [A._replace(wrong=None), B._replace(wrong=None, is_ready=False)],
            "b",
            "its GPU did not answer through torch within 180 s",
        ),
        (
            [A._replace(wrong=[1]), B, C._replace(wrong=[1, 2])],
            "b",
            "data that rank 1 contributes to an all-reduce arrives corrupted",
        ),
        ([A, B, C._replace(has_wrong_sum=True)], "c", "rank 2 got a wrong sum of an all-reduce"),
        ([A._replace(unreached=[(0, 1)]), B, C], "b", "no connection between it and a"),
        ([A._replace(unreached=[(0, 1), (0, 2)]), B, C], "a", "no connection between it and b, c"),
        ([A._replace(failed="CUDA error")], "a", "an all-reduce ended there with: CUDA error"),
        (
            [A._replace(wrong=None), B._replace(wrong=None, lost="rank 1 could not join")],
            "",
            "the all-reduce of 2 ranks on 2 nodes failed, and no single node is to blame: rank 1 could not join",
        ),
        (
            [A._replace(failed="no interface"), B._replace(failed="no interface")],
            "",
            "the all-reduce of 2 ranks on 2 nodes failed, and no single node is to blame: no interface",
        ),
    ],
)
def test_what_is_refused(reports: list[NodeReport], node: str, text: str) -> None:
    found = judge(reports)
    assert (found.is_refused, found.node, found.text) == (True, node, text)


def test_what_all_nodes_lack_is_no_nodes_fault() -> None:
    everywhere = [one._replace(failed="this torch sees no GPU", is_ready=False) for one in (A, B)]
    assert judge(everywhere) == ("all-reduce skipped: this torch sees no GPU", False, "", 0)


def test_the_slowest_pair_is_reported() -> None:
    found = judge([A._replace(mb_per_s=[(0, 1, 1200.0), (0, 2, 90.0)]), B._replace(mb_per_s=[(1, 2, 1100.0)]), C])
    assert not found.is_refused
    assert found.text == "the all-reduce of 3 ranks on 3 nodes gave the right sum; slowest pair: a and c with 0.09 GB/s"
    inside = judge([NodeReport("a", 0, mb_per_s=[(0, 1, 2e5)]), NodeReport("a", 1)])
    assert inside.text.endswith("slowest pair: rank 0 and rank 1 with 200 GB/s")


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_every_pair_meets_once_and_nobody_has_two_partners_at_a_time(count: int) -> None:
    listed = rounds(range(count))
    assert sorted(pair for pairs in listed for pair in pairs) == sorted(combinations(range(count), 2))
    for pairs in listed:
        busy = [rank for pair in pairs for rank in pair]
        assert len(busy) == len(set(busy))


def test_many_nodes_have_a_few_partners_each() -> None:
    listed = rounds(range(64))
    assert len(listed) == MOST_ROUNDS
    assert all(len(pairs) == 32 for pairs in listed)


def test_one_rank_of_each_node_is_measured_and_all_of_a_single_one() -> None:
    parties = [{"node": node, "ranks": [rank]} for rank, node in enumerate("aabbb")]
    assert members(parties) == [0, 2]
    assert members(parties[2:]) == [2, 3, 4]
