"""What `cluster check --ask-controller` finds changed, from recorded answers of sinfo and scontrol."""

from __future__ import annotations

from typing import Any

import pytest

from trainjob.check.slurm import changes
from trainjob.kinds.table import cluster_of
from trainjob.machines.access import ThisMachine
from trainjob.machines.process import Completed

SINFO = "gpu*|up|2:00:00|8|64|512000|gpu:a100:4|1-4|1\ncpu|up|infinite|90|128|256000|(null)|1-infinite|2\n"
CONFIG = "AccountingStorageEnforce = none\nSLURM_VERSION = 24.11.5\n"
FILE: dict[str, Any] = {
    "kind": "slurm",
    "nodes": {"count": 8, "accelerator": "gpu", "accelerators": 4, "type": "a100", "cpus": 64, "memory_gb": 480},
    "limits": {"max_nodes": 4, "max_time": "02:00:00"},
    "directives": {"partition": "gpu"},
    "slurm": {"version": "24.11"},
}


class Recorded(ThisMachine):
    """Answers as a login node did."""

    def __init__(self, config: str = CONFIG, **more: str) -> None:
        self._answers = {"sinfo": SINFO, "config": config, "partition": "", "node": "", **more}

    def run(self, arguments: Any, **_: Any) -> Completed:
        answer = next((text for word, text in self._answers.items() if word in arguments), None)
        return Completed(tuple(arguments), 0 if answer is not None else 1, (answer or "").encode(), "")


def found(machine: Recorded | None = None, **changed: Any) -> list[tuple[str, str, str]]:
    nodes = {**FILE["nodes"], **changed.pop("nodes", {})}
    cluster = cluster_of({**FILE, "nodes": nodes, **changed})
    return [(one.key, one.stated, one.live) for one in changes(cluster, machine or Recorded())]


def test_a_file_that_fits_shows_no_change() -> None:
    assert found() == []
    assert found(directives={}) == []  # the default partition


@pytest.mark.parametrize(
    ("nodes", "change"),
    [
        ({"count": 10}, ("nodes.count", "10", "8")),
        ({"accelerators": 8}, ("nodes.accelerators", "8", "4")),
        ({"type": "h100"}, ("nodes.type", "h100", "a100")),
        ({"cpus": 128}, ("nodes.cpus", "128", "64")),
        ({"threads_per_core": 2}, ("nodes.threads_per_core", "2", "1")),
        ({"memory_gb": 512}, ("nodes.memory_gb", "512", "at most 500")),
    ],
)
def test_a_node_that_changed_is_named(nodes: dict[str, Any], change: tuple[str, str, str]) -> None:
    assert found(nodes=nodes) == [change]


def test_limits_release_and_accounts_that_changed_are_named() -> None:
    limits = found(limits={"max_nodes": 8, "max_time": "24:00:00"}, slurm={"version": "23.11"})
    assert limits == [
        ("limits.max_time", "24:00:00", "2:00:00"),
        ("limits.max_nodes", "8", "4"),
        ("slurm.version", "23.11", "24.11.5"),
    ]
    enforcing = Recorded(CONFIG.replace("none", "associations"))
    assert [key for key, _, _ in found(enforcing)] == ["required_directives"]
    assert found(enforcing, required_directives=["account"]) == []
    assert found(Recorded(CONFIG.replace("none", "associations"), sacctmgr="physics\n")) == []
    assert found(limits={"min_nodes": 2}) == [("limits.min_nodes", "2", "1")]


def test_binding_and_preemption_that_changed_are_named() -> None:
    changed = Recorded(CONFIG + "TaskPlugin = task/cgroup,task/affinity\n", partition="PreemptMode=CANCEL")
    assert found(changed) == [("preemption", "requeue", "cancel")]
    assert found(changed, preemption="cancel", slurm={"task_plugin": "none"}) == [
        ("slurm.task_plugin", "none", "cgroup")
    ]


def test_what_slurm_keeps_back_of_a_node_is_none_of_its_cpus() -> None:
    node = "NodeName=n1 CPUTot=64 RealMemory=512000 Partitions=gpu CoreSpecCount=4 MemSpecLimit=0\n"
    assert found(Recorded(node=node), nodes={"cpus": 60}) == []
    assert found(Recorded(partition="MaxCPUsPerNode=32")) == [("nodes.cpus", "64", "32")]


def test_a_partition_that_is_gone_is_named_with_those_that_are_there() -> None:
    assert found(directives={"partition": "a100"}) == [
        ("directives.partition", "a100", "there is none; it has gpu, cpu")
    ]
