"""Groups of unlike nodes in one job: how many instances each node takes, where they are, and what can't be."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import each
from tests.support.plan_cases import planned, refused
from trainjob.cluster.base import Cluster
from trainjob.kinds.table import cluster_of
from trainjob.observe.report import page
from trainjob.planning.picture import picture
from trainjob.planning.rows import arithmetic
from trainjob.records import typed
from trainjob.records.job import Topology


def groups(big: dict[str, Any] | None = None, small: dict[str, Any] | None = None, **more: Any) -> Cluster:
    gpus = {"accelerator": "gpu", "cpus": 64}
    nodes = [
        {"name": "big", "count": 1, "accelerators": 8, **gpus, **(big or {})},
        {"name": "small", "count": 2, "accelerators": 4, **gpus, **(small or {})},
    ]
    return cluster_of({"kind": "slurm", "nodes": nodes, **more})


CPUS = groups(
    {"accelerator": "cpu", "accelerators": 0, "cpus": 48}, {"accelerator": "cpu", "accelerators": 0, "cpus": 32}
)


@pytest.mark.parametrize(
    ("cluster", "job", "instances_of_hosts", "threads"),
    [
        (groups(), {}, [8, 4, 4], "8 or 16"),
        (groups(), {"instances": 4}, [2, 1, 1], "32 or 64"),
        (groups(), {"instances": 8, "hosts": 3}, [4, 2, 2], "16 or 32"),
        (CPUS, {"micro_batch": 64}, [3, 2, 2], "16"),  # on CPUs, as few as have the nodes' proportions
        (CPUS, {"instances": 14, "micro_batch": 64}, [6, 4, 4], "8"),
    ],
    ids=["all GPUs", "fewest", "between", "CPUs", "more on CPUs"],
)
def test_each_node_takes_instances_in_proportion(
    cluster: Cluster, job: dict[str, Any], instances_of_hosts: list[int], threads: str
) -> None:
    found = planned(cluster, **job)
    assert found.topology.instances_of_hosts == instances_of_hosts
    assert found.topology.instances == sum(instances_of_hosts)
    rows = dict(arithmetic(found))
    assert rows["threads"].startswith(threads.split(" or ", maxsplit=1)[0])


def test_the_picture_and_the_rows_show_what_differs() -> None:
    found = planned(groups(), instances=4, micro_batch=4)
    assert dict(arithmetic(found))["instances"] == "4 = 1 host × 2 (big) + 2 hosts × 1 (small)"
    assert list(picture(found))[1:] == [
        "host-1",
        "  instance 0  D[0:4]    replica 0 → GPU 0",
        "  instance 1  D[4:8]    replica 1 → GPU 1",
        "host-2",
        "  instance 2  D[8:12]   replica 2 → GPU 0",
        "host-3",
        "  instance 3  D[12:16]  replica 3 → GPU 0",
    ]


def test_job_json_says_which_ranks_are_in_which_group() -> None:
    record = planned(groups(), instances=4)
    read = typed.from_json(Topology, typed.to_json(record.topology))
    assert read == record.topology
    assert (read.instances_of_hosts, read.instances_per_host) == ([2, 1, 1], 2)
    assert [read.group_of_rank(rank) for rank in range(4)] == [0, 0, 1, 1]
    drawn = page.hosts_of(record)
    assert [[one.name for one in host.instances] for host in drawn] == [
        ["instance 0", "instance 1"],
        ["instance 2"],
        ["instance 3"],
    ]


@each(
    ("cluster", "job", "words"),
    [
        (
            groups(),
            {"instances": 6},
            "in proportion to what it has: 6 instances, and 1 node × 2 (big) and 2 nodes × 1 (small) make 4 or a "
            "multiple. Nearest that works: --instances 4, or --instances 8",
        ),
        (groups(), {"instances": 20}, "20 instances, and all nodes together have 16 slots"),
        (groups(), {"hosts": 2}, "every node of every group: 2 nodes requested, groups big and small have 3"),
        (groups(limits={"max_nodes": 2}), {}, "groups big and small have 3 nodes, max_nodes is 2"),
        (groups(), {"hosts": 3, "least_hosts": 2}, "a range of hosts, and nodes has groups big and small"),
        (groups(), {"array": "1-4"}, "array is given, and nodes has groups big and small: Slurm makes no array"),
        (groups(), {"engine": "horovod"}, "engine horovod is started by mpirun"),
        (
            groups({"type": "h100"}, {"type": "a100"}),
            {},
            "all train on the same kind of GPU: big has type h100 and small has type a100. Take groups of the same",
        ),
    ],
)
def test_what_groups_can_not_run_is_refused_by_name(cluster: Cluster, job: dict[str, Any], words: str) -> None:
    assert words in str(refused(cluster, **job))


def test_a_command_of_ones_own_may_run_on_different_gpus() -> None:
    assert planned(groups({"type": "h100"}, {"type": "a100"}), command=["true"]).topology.instances == 16
