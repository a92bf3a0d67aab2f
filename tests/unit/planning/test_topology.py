"""Defaults and placement of all kinds of cluster, as tables of numbers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import each
from tests.support.plan_cases import OWN, devices_of_hosts, hosts, label, local, planned, pod, slurm
from trainjob.cluster.slurm_text import expand
from trainjob.kinds.table import cluster_of
from trainjob.planning.picture import replicas_of


@each(
    ("cluster", "job", "hosts", "instances", "replicas"),
    [
        (pod(4), {}, 1, 1, 4),
        (pod(16), {}, 1, 1, 16),
        (pod(64, 4), {}, 4, 4, 64),
        (pod(128, 8), {}, 8, 8, 128),
        (pod(256, 16), {}, 16, 16, 256),
        (pod(64, 4), {"instances": 8}, 4, 8, 64),
        (pod(64, 4), {"hosts": 2}, 2, 2, 64),
        (pod(64, 4), {"instances": 2}, 2, 2, 64),  # as many hosts as the instances divide over
        (pod(64, 4), {"replicas": 2}, 2, 2, 2),
        (pod(64, 3), {}, 2, 2, 64),
        (pod(256, 16), {"hosts": 1}, 1, 4, 256),  # an instance for every IPU-Link domain
        (pod(64, 4), {"task": OWN, "ipus_per_replica": 4}, 4, 4, 16),
        (slurm(), {}, 1, 4, 4),
        (slurm(), {"instances": 1}, 1, 1, 1),
        (slurm(), {"instances": 6}, 2, 6, 6),
        (slurm(), {"instances": 16}, 4, 16, 16),
        (slurm(), {"hosts": 2}, 2, 8, 8),
        (slurm(), {"hosts": 4, "instances": 4}, 4, 4, 4),
        (slurm("cpu", accelerators=0), {}, 1, 1, 1),
        (slurm("cpu", accelerators=0), {"hosts": 3}, 3, 3, 3),
        (slurm("cpu", accelerators=0, cpus=4), {"instances": 8}, 2, 8, 8),
        (slurm("ipu"), {}, 1, 1, 4),
        (slurm("ipu"), {"hosts": 4}, 4, 4, 16),
        (slurm("ipu"), {"instances": 8}, 2, 8, 8),
        (slurm("ipu"), {"instances": 8, "task": OWN, "ipus_per_replica": 2}, 4, 8, 8),
        (slurm("ipu"), {"replicas": 16}, 4, 4, 16),
        (hosts(), {}, 3, 12, 12),
        (hosts(), {"instances": 4}, 1, 4, 4),  # GPUs: a host is filled before the next
        (hosts(), {"instances": 6, "hosts": 3}, 3, 6, 6),
        (hosts(gpus=0), {}, 3, 3, 3),
        (hosts(gpus=0), {"instances": 2}, 2, 2, 2),  # CPUs: an instance takes a whole host
        (hosts(gpus=0), {"instances": 4}, 2, 4, 4),
        (hosts(gpus=0), {"hosts": 1}, 1, 1, 1),
        (local(), {}, 1, 1, 1),
        (local(), {"instances": 2}, 1, 2, 2),
        (local(accelerator="gpu", accelerators=2), {"instances": 2}, 1, 2, 2),
    ],
)
def test_counts(cluster: Any, job: dict[str, Any], hosts: int, instances: int, replicas: int) -> None:
    topology = planned(cluster, **job).topology
    assert (topology.host_count, topology.instances, topology.replicas) == (hosts, instances, replicas)


def test_two_hosts_of_four_instances_of_two_ipus_take_sixteen_ipus_in_order() -> None:
    topology = planned(pod(16, 2), task=OWN, instances=8, ipus_per_replica=2).topology
    assert devices_of_hosts(topology) == {
        "pod-host1": [[(0, 1)], [(2, 3)], [(4, 5)], [(6, 7)]],
        "pod-host2": [[(8, 9)], [(10, 11)], [(12, 13)], [(14, 15)]],
    }


def test_the_lessons_eight_replicas_on_four_instances_start_at_replicas_0_2_4_6() -> None:
    # POPDIST_REPLICA_INDEX_OFFSET of the lessons' poprun line: 8 replicas, 4 instances, 2 IPUs each.
    topology = planned(pod(16), task=OWN, replicas=8, instances=4, ipus_per_replica=2).topology
    assert replicas_of(topology, 3, 3) == ["replica 6 → IPUs 12-13", "replica 7 → IPUs 14-15"]


def test_gpus_are_numbered_anew_on_every_node_and_nodes_are_filled_in_order() -> None:
    topology = planned(slurm(), instances=6).topology
    assert list(devices_of_hosts(topology).values()) == [[[(0,)], [(1,)], [(2,)]]] * 2


def test_cpu_replicas_have_no_devices() -> None:
    topology = planned(local(), instances=2).topology
    assert topology.devices == 0
    assert devices_of_hosts(topology) == {"localhost": [[()], [()]]}


@pytest.mark.parametrize(
    ("cluster", "names"),
    [
        (cluster_of({"kind": "ipu-pod", "ipus": 64, "host_count": 2}), ["host-1", "host-2"]),
        (cluster_of({"kind": "ipu-pod", "ipus": 64, "hosts": ["b", "a"]}), ["b", "a"]),
        (slurm(accelerators=2), ["host-1", "host-2"]),
        (local(), ["localhost"]),
    ],
    ids=label,
)
def test_host_names(cluster: Any, names: list[str]) -> None:
    job = {} if cluster.kind == "local" else {"hosts": len(names)}
    assert list(expand(planned(cluster, **job).topology.hosts)) == names


@pytest.mark.parametrize(
    ("cluster", "job", "ilds"),
    [
        (pod(64, 4), {}, 1),
        (pod(128, 8), {}, 2),
        (pod(256, 16), {}, 4),
        (pod(256, 16), {"replicas": 64}, 1),  # one for 64 IPUs that are used, not for 64 there are
        (pod(128, 8, ilds=1), {}, 1),
        (pod(128, 2, ilds=2), {"task": OWN, "ipus_per_replica": 8, "replicas": 8, "instances": 2}, 2),
        (slurm(), {}, None),
    ],
    ids=label,
)
def test_ipu_link_domains(cluster: Any, job: dict[str, Any], ilds: int | None) -> None:
    assert planned(cluster, **job).topology.ilds == ilds


@each(
    ("ipus", "hosts", "instances", "replicas", "each"),
    [  # launches in Graphcore's own public examples (reference/ipu.md 1.7)
        (64, 4, 16, 64, 1),
        (64, 4, 32, 64, 1),
        (64, 1, 8, 64, 1),
        (16, 1, 8, 16, 1),
        (64, 4, 8, 16, 4),
        (128, 2, 2, 32, 4),
        (128, 8, 64, 128, 1),
        (256, 16, 128, 256, 1),
        (256, 4, 4, 32, 8),
    ],
)
def test_what_others_launch_is_accepted(ipus: int, hosts: int, instances: int, replicas: int, each: int) -> None:
    job = {"task": OWN, "hosts": hosts, "instances": instances, "replicas": replicas, "ipus_per_replica": each}
    assert planned(pod(ipus, hosts), **job).topology.devices == ipus


@each(
    ("cluster", "job", "engine"),
    [
        (local(), {}, "single"),
        (local(), {"instances": 2}, "ddp"),
        (local(), {"engine": "ddp"}, "ddp"),
        (slurm(), {}, "ddp"),
        (pod(4), {}, "ipu"),
        (slurm("ipu"), {}, "ipu"),
        (pod(4), {"command": ["./train.sh"]}, "command"),
        (local(), {"command": ["python", "x.py"], "instances": 2}, "command"),
    ],
)
def test_engine(cluster: Any, job: dict[str, Any], engine: str) -> None:
    assert planned(cluster, **job).engine == engine


@pytest.mark.parametrize(
    ("job", "name"),
    [
        ({}, "digits-cnn"),
        ({"name": "mine"}, "mine"),
        ({"task": "package.module:MyTask"}, "MyTask"),
        ({"command": ["python", "-u", "dir/my_script.py", "--lr", "0.1"]}, "my_script"),
        ({"command": ["/usr/bin/env"]}, "env"),
        ({"command": ["$(reboot);'x'.py"]}, "reboot-x"),
        ({"command": ["--"]}, "job"),
    ],
)
def test_name(job: dict[str, Any], name: str) -> None:
    assert planned(local(), **job).name == name


def test_four_thousand_hosts() -> None:
    topology = planned(slurm(count=4096, accelerators=8), task=OWN, hosts=4096).topology
    assert (topology.host_count, topology.devices) == (4096, 32768)
    assert replicas_of(topology, 32767, 7) == ["replica 32767 → GPU 7"]


def test_a_range_of_hosts_keeps_the_global_batch() -> None:
    rows = dict(planned(slurm(), hosts=4, least_hosts=2, global_batch=192).facts)
    assert rows["range of hosts"] == (
        "2 to 4, as many as Slurm gives: the numbers are those of 4; on 2 accumulation is 6, the global batch stays 192"
    )
    command = planned(slurm(), hosts=4, least_hosts=1, command=["true"])
    assert dict(command.facts)["range of hosts"] == "1 to 4, as many as Slurm gives: the numbers are those of 4"
    assert "range of hosts" not in dict(planned(slurm(), hosts=2, least_hosts=2).facts)
