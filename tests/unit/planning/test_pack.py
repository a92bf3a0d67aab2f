"""How the elements of an array share the nodes of one job, and what that job is charged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import each
from tests.support.plan_cases import local, planned, slurm
from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.contract.errors import UserError
from trainjob.kinds.table import as_packed
from trainjob.planning.pack import devices_held, refuse_in_allocation, shares_of

CASES: list[tuple[Cluster, dict[str, Any], tuple[int, int, int]]] = [
    (slurm(), {"pack": 2, "array": "0-63", "instances": 1}, (2, 4, 8)),
    (slurm(), {"pack": 2, "array": "0-63%5", "instances": 1}, (2, 4, 5)),
    (slurm(), {"pack": 3, "array": "0-3", "instances": 1}, (3, 4, 4)),
    (slurm(), {"pack": 2, "array": "0-63", "instances": 2}, (2, 2, 4)),
    (slurm(accelerators=8), {"pack": 1, "array": "0-63", "instances": 3}, (1, 2, 2)),
    (slurm(directives={"cpus-per-task": 32}), {"pack": 1, "array": "0-63", "instances": 1}, (1, 2, 2)),
    (slurm("cpu", accelerators=0), {"pack": 1, "array": "0-99", "instances": 1}, (1, 64, 64)),
    (
        slurm("cpu", accelerators=0, directives={"cpus-per-task": 8}),
        {"pack": 2, "array": "0-99", "instances": 2},
        (2, 4, 8),
    ),
]


@each(("cluster", "job", "expected"), CASES)
def test_shares_follow_from_the_devices_and_cpus_of_an_element(
    cluster: Cluster, job: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    packed, asked = as_packed("here", cluster, job["pack"]), Job(command=["x"], **job)
    plan = planned(packed, command=["x"], **job)
    assert shares_of(packed, asked, plan.topology) == expected
    assert f"{expected[2]} elements at once: {expected[1]} share a node of " in str(plan.facts["pack"])


@pytest.mark.parametrize(("instances", "threads"), [(1, 16), (2, 16), (3, 21)])
def test_the_plan_says_how_many_cpus_an_instance_has_beside_other_elements(instances: int, threads: int) -> None:
    plan = planned(as_packed("here", slurm(), 2), command=["x"], pack=2, array="0-63", instances=instances)
    assert str(plan.facts["threads"]).startswith(f"{threads} in each instance")


def test_a_packed_job_is_charged_all_devices_of_its_nodes() -> None:
    job: dict[str, Any] = {"pack": 2, "array": "0-63", "instances": 3, "command": ["x"], "time_limit": "02:00:00"}
    packed = as_packed("here", slurm(accelerators=8), 2)
    plan = planned(packed, **job)
    assert devices_held(packed, Job(**job), plan.topology, {}) == 16
    assert "16 GPU-hours for each hour of training, at most 32.0" in str(plan.facts["device-hours"])


def test_who_can_not_pack_says_why() -> None:
    with pytest.raises(UserError, match="pack is 2, and cluster local is of kind local: only Slurm gives one job"):
        as_packed("local", local(), 2)
    with pytest.raises(
        UserError, match=r"pack is 2, and cluster hpc: request: is none, so no element can tell its share"
    ):
        as_packed("hpc", slurm(request="none"), 2)
    with pytest.raises(UserError, match=r"pack is 2, and the run is to be inside job 7: a packed array has a job of"):
        refuse_in_allocation(Job(pack=2), "job 7")
