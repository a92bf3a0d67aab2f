"""The tree of sums has one shape, whoever holds which micro batches."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainjob.train.engines.fixed_order import SumNode, add, shape, total


@given(st.integers(1, 12), st.integers(1, 12))
def test_instances_complete_the_tree_of_one(instances: int, each: int) -> None:
    joined: list[SumNode] = []
    for instance in range(instances):
        for node in shape(instance * each, each):
            add(joined, node)
    assert joined == shape(0, instances * each)


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [(0, 1, [(0, 1)]), (0, 8, [(0, 8)]), (0, 6, [(0, 4), (4, 2)]), (3, 3, [(3, 1), (4, 2)]), (5, 2, [(5, 1), (6, 1)])],
)
def test_siblings_are_joined(start: int, count: int, expected: list[tuple[int, int]]) -> None:
    assert [(node.start, node.size) for node in shape(start, count)] == expected


def test_the_sum_is_that_of_the_tree_to_the_last_bit() -> None:
    rows = torch.randn(6, 1000, generator=torch.Generator().manual_seed(0))
    nodes: list[SumNode] = []
    for position, row in enumerate(rows):
        add(nodes, SumNode(position, 1, [row.clone()]))
    expected = ((rows[0] + rows[1]) + (rows[2] + rows[3])) + (rows[4] + rows[5])
    assert torch.equal(total(nodes)[0], expected)
    assert not torch.equal(expected, rows[0] + rows[1] + rows[2] + rows[3] + rows[4] + rows[5])
