"""Every refusal: the rule, what was found, and settings that cure it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import each
from tests.support.plan_cases import OWN, local, planned, pod, refused, slurm
from trainjob.cluster.base import Cluster
from trainjob.contract import tasks
from trainjob.contract.errors import UserError
from trainjob.kinds.table import cluster_of

SITE: dict[str, Any] = {"limits": {"max_nodes": 4, "max_time": "24:00:00"}}


def with_server(hosts: int) -> dict[str, Any]:
    server = {"command": ["serve"], "ready": "file:up", "hosts": hosts}
    return {"roles": {"server": server, "train": {"command": ["x"], "needs": ["server"]}}}


def packing(**more: Any) -> Cluster:
    return cluster_of({**slurm().as_values(stated_only=True), "kind": "pack", **more})


CASES = [
    # topology, IPUs
    (pod(16), {"replicas": 3, "instances": 2}, "replicas divide evenly over instances: 3 replicas on 2 instances"),
    (pod(64, 4), {"instances": 0}, "every count is at least 1: instances is 0"),
    (pod(64, 4), {"instances": 128}, "every instance has at least one replica: 64 replicas on 128 instances"),
    (pod(64, 4), {"instances": 8, "hosts": 3}, "instances divide evenly over hosts: 8 instances over 3 hosts"),
    (pod(64, 4), {"hosts": 9}, "a job uses hosts that the cluster has: 9 hosts asked for, the cluster has 4"),
    (pod(64, 4), {"replicas": 6}, "a job uses a power of two of IPUs: 6 replicas × 1 IPU = 6 IPUs"),
    (pod(16), {"task": OWN, "replicas": 3, "ipus_per_replica": 2}, "3 replicas × 2 IPUs = 6 IPUs"),
    (pod(16), {"replicas": 32}, "the cluster has IPUs for every replica: 32 replicas × 1 IPU = 32, the cluster has 16"),
    (pod(4), {"task": OWN, "ipus_per_replica": 8}, "one replica on 8 IPUs, the cluster has 4"),
    (pod(64), {"task": OWN, "ipus_per_replica": 6}, "ipus_per_replica is 1, 2, 4, 8 or 16: ipus_per_replica is 6"),
    (pod(64), {"ipus_per_replica": 2}, "the task's model is not split and ipus_per_replica is 2"),
    (pod(256, 16), {"instances": 2}, "at least one instance: 4 IPU-Link domains and 2 instances"),
    (pod(64, 4, ilds=4), {"instances": 2}, "at least one instance: 4 IPU-Link domains and 2 instances"),
    (slurm("ipu"), {"hosts": 1, "replicas": 8}, "8 replicas × 1 IPU = 8 IPUs on 1 node × 4 = 4"),
    # roles
    (
        slurm(count=4),
        {"hosts": 4, **with_server(1)},
        "at most 4 are there. Nearest that works: --hosts 3. Or give server gpus: 0",
    ),
    # elements packed into one job
    (
        packing(),
        {"pack": 2, "array": "0-3", "instances": 8},
        "pack is 2, and an element takes 8 instances on 2 hosts. Nearest that works: --instances 4. Or leave pack out",
    ),
    # topology, GPUs and CPUs
    (slurm(), {"hosts": 2, "least_hosts": 3}, "3 to 2. Nearest that works: --least-hosts 2, or --hosts 3"),
    (
        slurm(),
        {"hosts": 2, "instances": 2, "least_hosts": 1},
        "1 instance on 1 of 2 hosts. Nearest that works: --least-hosts 2",
    ),
    (
        slurm(),
        {"hosts": 4, "least_hosts": 2},
        "global batch 64, 4 × 4 × 3 hosts = 48. Nearest that works: --global-batch 192, or --least-hosts 4",
    ),
    (local(), {"instances": -1}, "every count is at least 1: instances is -1"),
    (local(), {"replicas": 3, "instances": 2}, "every instance is one replica: 3 replicas on 2 instances"),
    (local(), {"ipus_per_replica": 2}, "ipus_per_replica is 2 and this cluster has CPUs"),
    (local(), {"hosts": 2}, "a job uses hosts that the cluster has: 2 machines asked for, the cluster has 1"),
    (
        local(max_instances=4),
        {"instances": 8},
        "its own: a GPU, or a CPU: 8 instances on 1 machine × 4 instances = 4",
    ),
    (local(accelerator="gpu", accelerators=2), {"instances": 3}, "3 instances on 1 machine × 2 GPUs = 2"),
    (
        slurm(),
        {"instances": 40},
        "its own: a GPU, or a CPU: 40 instances on 8 nodes × 4 GPUs = 32",
    ),
    (slurm(), {"instances": 8, "hosts": 1}, "8 instances on 1 node × 4 GPUs = 4"),
    (slurm("cpu", accelerators=0, cpus=2), {"instances": 20}, "20 instances on 8 nodes × 2 CPUs = 16"),
    (
        local(),
        {"engine": "fsdp", "instances": 6, "shard_group": 4},
        "same number of instances: 6 instances in groups of 4",
    ),
    (slurm(), {"instances": 5}, "instances divide evenly over hosts: 5 instances over 2 nodes"),
    (
        slurm(count=4),
        {"instances": 5},
        "5 instances over 2 nodes. Nearest that works: --instances 4, or --instances 6.",  # 5 nodes are not there
    ),
    (slurm(), {"instances": 2, "hosts": 4}, "instances divide evenly over hosts: 2 instances over 4 nodes"),
    (slurm(), {"hosts": 9}, "a job uses hosts that the cluster has: 9 nodes asked for, the cluster has 8"),
    (slurm(**SITE), {"instances": 24}, "a job stays within the site's max_nodes: 6 nodes needed, max_nodes is 4"),
    (
        slurm(limits={"min_nodes": 3}),
        {"hosts": 2, "instances": 6},
        "at least the site's min_nodes: 2 nodes asked for, min_nodes is 3. Nearest that works: --hosts 3",
    ),
    (slurm(limits={"min_nodes": 2}), {"instances": 1}, "1 instance over 2 nodes. Nearest that works: --instances 2"),
    (slurm(**SITE), {"hosts": 5}, "a job stays within the site's max_nodes: 5 nodes needed, max_nodes is 4"),
    (
        slurm(accelerators=8, cpus=2),
        {"instances": 8, "hosts": 1},
        "8 instances on 1 node × 2 ranks of 1 CPU = 2. Nearest that works: --instances 2, or --hosts 4",
    ),
    (
        slurm("cpu", accelerators=0, cpus=16, directives={"cpus-per-task": 8}),
        {"instances": 3, "hosts": 1},
        "3 instances on 1 node × 2 ranks of 8 CPUs = 2. Nearest that works: --instances 2, or --hosts 3",
    ),
    (
        slurm("cpu", accelerators=0, cpus=16, directives={"hint": "nomultithread"}, threads_per_core=2),
        {"instances": 16, "hosts": 1},
        "16 instances on 1 node × 8 ranks of 2 CPUs = 8. Nearest that works: --instances 8, or --hosts 2",
    ),
    # batch
    (local(), {"instances": 2, "global_batch": 100}, "micro batch × replicas: global batch 100, 4 × 2 replicas = 8"),
    (pod(64), {"global_batch": 100}, "global batch 100, 4 × 64 replicas = 256"),
    (local(), {"micro_batch": 0}, "every count is at least 1: micro_batch is 0"),
    (local(), {"accumulation": 0}, "every count is at least 1: accumulation is 0"),
    (local(), {"global_batch": -8}, "every count is at least 1: global_batch is -8"),
    (local(), {"device_iterations": 4}, "two returns to the host: device_iterations is 4 on CPUs"),
    (
        pod(16),
        {"task": OWN, "ipus_per_replica": 2, "accumulation": 2},
        "at least 2n − 1 micro batches: 2 IPUs, accumulation 2, at least 3",
    ),
    (
        pod(16),
        {"task": OWN, "ipus_per_replica": 4, "global_batch": 256},
        "at least 2n − 1 micro batches: 4 IPUs, accumulation 2, at least 7",
    ),
    (
        local(),
        {"micro_batch": 1000, "accumulation": 2},
        "at least one update: a block takes 1000 micro × 2 accumulation × 1 replicas = 2,000 samples, "
        "the data set has 1,437",
    ),
    (pod(64), {"device_iterations": 8}, "64 replicas × 8 device iterations = 2,048 samples, the data set has 1,437"),
    (local(), {"global_batch": 2000}, "= 2,000 samples, the data set has 1,437"),
    (
        local(),
        {"task": OWN, "samples": 5, "remainder": "pad", "instances": 2, "workers": 3},
        "every loader process has at least one sample: 2 instances × 3 = 6 loader processes and 5 samples",
    ),
    (local(), {"engine": "single", "instances": 2}, "engine single is one instance: 2 instances"),
]

IN_WORDS = [  # what no number cures
    # elements packed into one job
    (
        packing(),
        {"pack": 2},
        "the elements of an array: pack is 2, and there is no array. Give --array or --sweep, or",
    ),
    (
        packing(),
        {"pack": 9, "array": "0-3", "instances": 1},
        "pack is 9, and a job may have 8 nodes. Give --pack 8 or",
    ),
    (
        packing(),
        {"pack": 2, "array": "0-3", "instances": 1, "time_limit": "01:00:00", "retry": {"mem": "+50%"}},
        "asks for the same each time: pack is 2, and retry is mem. Leave retry out, or pack.",
    ),
    (
        packing(),
        {"pack": 2, "array": "0-3", "instances": 2, "engine": "horovod"},
        "pack is 2, and mpirun starts the ranks of engine horovod. Give --engine ddp.",
    ),
    (slurm(count=4), {"hosts": 1, **with_server(4)}, "at most 4 are there. Give the servers fewer hosts"),
    (slurm(), {"array": "0-3", **with_server(1)}, "array is 0-3. Leave array out, or roles"),
    (
        packing(),
        {"array": "0-3", "pack": 2, **with_server(1)},
        "array is 0-3 and pack is 2. Leave array and pack out, or roles",
    ),
    (
        slurm(),
        {"hosts": 2, "least_hosts": 1, **with_server(1)},
        "on a fixed number of equal hosts: hosts is 1-2. Give hosts as one number",
    ),
    (
        slurm(container={"runtime": "apptainer", "image": "/x.sif"}),
        with_server(1),
        "roles run outside of containers",
    ),
    (
        pod(16),
        with_server(1),
        "each role of a job is started by a program of its own: poprun starts the ranks here",
    ),
    (local(), with_server(2), "server takes 2, and this is one machine. Take 1"),
    (local(), {"task": "digit-cnn"}, "task is digit-cnn. Did you mean digits-cnn? Built in: digits-cnn, ffnet-toy, "),
    (local(), {"samples": 5000}, "samples is 5,000 and digits has 1,437 to train on. Leave --samples out."),
    (local(), {"samples": 0}, "every count is at least 1: samples is 0. Give the number of training samples"),
    (local(), {"shard_group": 2}, "engine is single, shard_group is 2. Take --engine fsdp"),
    (local(), {"engine": "fsdp", "offload": True}, "the cluster trains on CPUs. Leave --offload out"),
    (pod(4), {"recompute": True}, "recompute is for engines on CPUs and GPUs: engine is ipu"),
    (pod(4), {"compile": True}, "torch.compile is for engines on CPUs and GPUs: engine is ipu. Leave --compile out"),
    (local(), {"engine": "naive", "memory_format": "channels-last"}, "format: engine is naive. Leave --memory-format"),
    (pod(4), {"optimizer": "sgd", "momentum": 0.9, "optimizer_options": {"nesterov": True}}, "Leave out nesterov."),
    (local(), {"optimizer": "lamb", "optimizer_implementation": "fused"}, "Leave out --optimizer-implementation, or"),
    (
        local(),
        {"optimizer": "sgd", "optimizer_implementation": "fused", "allow_unused_parameters": True},
        "Take --optimizer-implementation foreach, or --optimizer adamw.",
    ),
    (
        local(),
        {"engine": "fsdp", "optimizer_implementation": "fused"},
        "engine is fsdp. Take --optimizer-implementation",
    ),
    (pod(4), {"profile": "1:2"}, "engine is ipu. Leave --profile out, and use Graphcore's PopVision."),
    (local(), {"profile": "1:2", "profile_ranks": "0,2", "instances": 2}, "rank 2 of 2 instances, which are numbered"),
    (local(), {"engine": "dpp"}, "engine is dpp. Did you mean ddp?"),
    (pod(4), {"engine": "tpu-mesh"}, "engine is tpu-mesh. For IPUs there is ipu."),
    (local(), {"engine": "ipu"}, "engine ipu is for IPU, the cluster has CPUs. Leave --engine out"),
    (pod(4), {"engine": "ddp"}, "engine ddp is for CPU and GPU, the cluster has IPUs. Leave --engine out"),
    (pod(4), {"precision": "64.64"}, "precision is 64.64, ipu trains in 32.32, 16.32, 16.16. Take --precision 32.32."),
    (pod(4), {"precision": "bf16"}, "precision is bf16, ipu trains in 32.32, 16.32, 16.16"),
    (local(), {"optimizer": "addamw"}, "there is no optimizer addamw. Did you mean adamw? It is one of sgd, adamw, la"),
    (local(), {"optimizer_options": {"nestrov": True}}, "optimizer sgd has no option nestrov. Did you mean nesterov?"),
    (local(), {"optimizer_options": {"nesterov": 1}}, "option nesterov of optimizer sgd is 1. It is true or false."),
    (
        local(),
        {"optimizer_options": {"nesterov": True}, "momentum": 0},
        "needs a momentum above 0 and no dampening, an",
    ),
    (local(), {"optimizer": "lamb", "optimizer_options": {"beta2": 1}}, "is 1. It is a number of at least 0 and below"),
    (local(), {"schedule_options": {"every_epochs": 30}}, "schedule cosine has no option every_epochs. It has: end."),
    (
        local(),
        {"schedule": "constant", "schedule_options": {"end": 0}},
        "has no option end. Leave it out: it has none.",
    ),
    (local(), {"schedule": "one-cycle", "warmup_updates": 5}, "has a warm-up of its own, and warmup_updates is 5."),
    (
        pod(4),
        {"optimizer": "lars"},
        "engine ipu has sgd, adamw, lamb, and optimizer is lars. Take --optimizer sgd",
    ),
    (pod(4), {"optimizer": "torch.optim:RMSprop"}, "and optimizer is torch.optim:RMSprop. Take"),
    (pod(4), {"average_decay": 0.9}, "engine is ipu, average_decay is 0.9. Leave out --average-decay."),
    (local(), {"command": ["./run"], "micro_batch": 4}, "--micro-batch 4 beside the command ./run. Leave it out"),
    (local(), {"command": ["./run"], "engine": "ddp"}, "--engine ddp beside the command ./run. Leave it out"),
    (pod(48), {}, "a power of two of IPUs: the cluster file says ipus: 48. Write ipus: 32 or ipus: 64 there."),
    (slurm(**SITE), {"time_limit": "2-00"}, "time_limit is 2-00, max_time is 24:00:00. Take --time-limit 24:00:00."),
    (slurm(**SITE), {"time_limit": "UNLIMITED"}, "time_limit is UNLIMITED, max_time is 24:00:00"),
    (slurm(**SITE, time_limit="1441"), {}, "time_limit is 1441, max_time is 24:00:00"),
    (local(), {"hosts": 1, "least_hosts": 1}, "a range of hosts on a cluster of kind local"),
    (slurm("ipu"), {"hosts": 2, "least_hosts": 1}, "a range of hosts on a cluster of IPUs"),
    (slurm(), {"hosts": 2, "least_hosts": 1, "engine": "horovod"}, "engine horovod is started by mpirun"),
    (slurm(), {"time_min": "1:00:00"}, "time_min is 1:00:00, and the job has no time limit. Give --time-limit."),
    (
        slurm(time_limit="4:00:00"),
        {"time_min": "5:00:00"},
        "time_min is 5:00:00, time_limit is 4:00:00, and time_limit_signal.margin_s is 120. Take --time-min 02:00:00.",
    ),
    (
        slurm(time_limit="3"),
        {"time_min": "2"},
        "time_limit is 3, and time_limit_signal.margin_s is 120. Take --time-min 00:03:00",
    ),
    (
        slurm(),
        {"time_limit": "2"},
        "2 = 120 s, and time_limit_signal.margin_s is 120. Take --time-limit 00:04:00",
    ),
    (local(), {"task": OWN, "instances": 10**9}, "at most 131,072 replicas: 1,000,000,000 replicas on"),
    (
        local(),
        {"task": OWN, "workers": 2, "instances": 2, "samples": 1, "remainder": "pad"},
        "2 instances × 2 = 4 loader processes and 1 sample. Give 4 samples or more.",
    ),
]


@each(("cluster", "job", "message"), CASES)
def test_refused_with_settings_that_run(cluster: Any, job: Any, message: Any) -> None:
    refusal = refused(cluster, **job)
    assert message in str(refusal)
    assert refusal.nearest
    for change in refusal.nearest:
        (setting, value) = change.popitem()
        assert f"--{setting.replace('_', '-')} {value}" in refusal.cure
        planned(cluster, **{**job, setting: value})


@each(("cluster", "job", "message"), IN_WORDS)
def test_refused_with_a_cure_in_words(cluster: Any, job: Any, message: Any) -> None:
    refusal = refused(cluster, **job)
    assert message in str(refusal)
    assert refusal.nearest == ()


@each(
    ("cluster", "job", "nearest"),
    [
        (pod(16), {"replicas": 3, "instances": 2}, [("replicas", 2), ("replicas", 4)]),
        (pod(64, 4), {"instances": 5}, [("instances", 4), ("instances", 8)]),
        (pod(64, 4), {"instances": 8, "hosts": 3}, [("hosts", 2), ("hosts", 4)]),
        (pod(64), {"task": OWN, "ipus_per_replica": 6}, [("ipus_per_replica", 4), ("ipus_per_replica", 8)]),
        (pod(256, 16), {"instances": 2}, [("instances", 4)]),
        (slurm(), {"instances": 5}, [("instances", 4), ("instances", 6), ("hosts", 5)]),
        (slurm(**SITE), {"instances": 40}, [("instances", 16)]),
        (pod(64), {"task": OWN, "global_batch": 5000}, [("global_batch", 4096), ("global_batch", 6144)]),
        (
            local(),
            {"instances": 2, "global_batch": 100},
            [("global_batch", 96), ("global_batch", 104), ("micro_batch", 2), ("micro_batch", 5)],
        ),
        (local(), {"micro_batch": 1000, "accumulation": 2}, [("micro_batch", 718), ("accumulation", 1)]),
        (pod(64), {"device_iterations": 8}, [("device_iterations", 5), ("micro_batch", 2), ("replicas", 32)]),
    ],
)
def test_nearest_settings(cluster: Any, job: dict[str, Any], nearest: list[tuple[Any, ...]]) -> None:
    assert [change.popitem() for change in refused(cluster, **job).nearest] == nearest


def test_where_two_rules_are_broken_the_cure_begins_with_the_first() -> None:
    refusal = refused(pod(64, 4), replicas=3, instances=2, micro_batch=5000)
    assert refusal.cure == "To begin with: --instances 1, or --instances 3, or --replicas 2, or --replicas 4."
    refusal = refused(local(), instances=0, engine="dpp")
    assert refusal.cure == "To begin with: --instances 1. Or leave --instances out."


def test_a_split_task_wants_its_ipus(monkeypatch: pytest.MonkeyPatch) -> None:
    split = tasks.BUILT_IN["digits-cnn"]._replace(stages=(2,))
    monkeypatch.setitem(tasks.BUILT_IN, "split-cnn", split)
    refusal = refused(pod(4), task="split-cnn", ipus_per_replica=1)
    assert "the task's model is split over 2 IPUs and ipus_per_replica is 1" in str(refusal)
    assert refusal.nearest == ({"ipus_per_replica": 2},)
    plan = planned(pod(4), task="split-cnn")
    assert (plan.topology.devices_per_replica, plan.batch.accumulation) == (2, 3)


@pytest.mark.parametrize(("task", "usual"), [("cifar10-resnet50", 1), ("cifar10-resnet101", 2)])
def test_a_task_that_can_be_split_need_not_be(task: str, usual: int) -> None:
    assert planned(pod(4), task=task).topology.devices_per_replica == usual
    for asked in (1, 2):
        plan = planned(pod(4), task=task, ipus_per_replica=asked)
        assert (plan.topology.devices_per_replica, plan.batch.accumulation) == (asked, 2 * asked - 1)
    refusal = refused(pod(16), task=task, ipus_per_replica=4)
    assert "the task's model is split over 1 or 2 IPUs and ipus_per_replica is 4" in str(refusal)
    assert refusal.nearest == ({"ipus_per_replica": 2},)


def test_hosts_there_are_none_named_yet_is_no_reason_to_refuse() -> None:
    assert planned(cluster_of({"kind": "ipu-pod", "ipus": 64, "host_count": 4}))


def test_a_refusal_is_the_users_to_cure() -> None:
    refusal = refused(local(), instances=0)
    assert isinstance(refusal, UserError)
    assert str(refusal) == f"{refusal.rule}: {refusal.values}. {refusal.cure}"


def test_a_rank_that_wants_more_cpus_than_a_node_has_is_refused() -> None:
    with pytest.raises(UserError, match=r"a rank takes 99 CPUs, and a node has fewer\. Take a smaller directives"):
        planned(slurm(directives={"cpus-per-task": 99}), instances=4)


def test_what_is_offered_to_begin_with_stays_within_the_cluster() -> None:
    """No single setting cures both faults."""
    with pytest.raises(UserError) as error:
        planned(slurm(count=4), hosts=4, instances=17, global_batch=7)
    assert error.value.cure == "To begin with: --instances 16."
