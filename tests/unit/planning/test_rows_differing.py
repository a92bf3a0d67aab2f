"""Two plans beside each other: only what differs."""

from __future__ import annotations

from tests.support.plan_cases import local, planned, slurm
from trainjob.planning.rows import differing


def test_only_what_differs_between_two_plans_is_a_row() -> None:
    here, there = (planned(cluster, instances=4) for cluster in (local(), slurm()))
    assert differing(here, here) == []
    rows = {name: (was, is_now) for name, was, is_now in differing(here, there)}
    assert rows["hosts"] == ("1: localhost", "1: host-1")
    assert rows["GPUs"][0] == ""
    assert "global batch" not in rows
