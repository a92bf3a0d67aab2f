"""What people and machines read of a plan: picture, table, record."""

from __future__ import annotations

import json

from tests.support.plan_cases import OWN, local, planned, pod, slurm
from trainjob.cluster.base import Cluster
from trainjob.planning.picture import picture
from trainjob.planning.rows import arithmetic
from trainjob.records.typed import to_json


def test_picture_of_pod64() -> None:
    assert list(picture(planned(pod(64, 4), instances=8))) == [
        "D: the 256 samples of a global batch, new samples for every update",
        "pod-host1",
        "  instance 0  D[0:32]     replicas 0-7 → IPUs 0-7, 1 each",
        "  instance 1  D[32:64]    replicas 8-15 → IPUs 8-15, 1 each",
        "pod-host2",
        "  instance 2  D[64:96]    replicas 16-23 → IPUs 16-23, 1 each",
        "  instance 3  D[96:128]   replicas 24-31 → IPUs 24-31, 1 each",
        "pod-host3",
        "  instance 4  D[128:160]  replicas 32-39 → IPUs 32-39, 1 each",
        "  instance 5  D[160:192]  replicas 40-47 → IPUs 40-47, 1 each",
        "pod-host4",
        "  instance 6  D[192:224]  replicas 48-55 → IPUs 48-55, 1 each",
        "  instance 7  D[224:256]  replicas 56-63 → IPUs 56-63, 1 each",
    ]


def test_picture_of_two_replicas_on_two_ipus_each() -> None:
    assert list(picture(planned(pod(8), task=OWN, ipus_per_replica=2, instances=2, micro_batch=1)))[1:] == [
        "pod-host1",
        "  instance 0  D[0:6]    replica 0 → IPUs 0-1, replica 1 → IPUs 2-3",
        "  instance 1  D[6:12]   replica 2 → IPUs 4-5, replica 3 → IPUs 6-7",
    ]


def test_picture_of_a_laptop_and_of_a_command() -> None:
    assert list(picture(planned(local(), instances=2)))[1:] == [
        "localhost",
        "  instance 0  D[0:4]  replica 0 → CPU",
        "  instance 1  D[4:8]  replica 1 → CPU",
    ]
    assert list(picture(planned(local(), command=["./train"]))) == [
        "the command runs in every instance",
        "localhost",
        "  instance 0  replica 0 → CPU",
    ]


def test_big_plans_are_folded() -> None:
    lines = list(picture(planned(slurm(count=4096, accelerators=16), task=OWN, hosts=4096)))
    assert len(lines) < 40
    assert "… 4,092 more hosts like these" in lines
    assert lines.count("  … 11 more instances like these") == 4
    assert lines[-1].split() == ["instance", "65535", "D[2097120:2097152]", "replica", "65535", "→", "GPU", "15"]


def test_arithmetic_of_pod64() -> None:
    assert arithmetic(planned(pod(64, 4), instances=8)) == [
        ("engine", "ipu"),
        ("hosts", "4: pod-host[1-4]"),
        ("instances", "8 = 4 hosts × 2"),
        ("replicas", "64 = 8 instances × 8"),
        ("IPUs", "64 = 64 replicas × 1"),
        ("global batch", "4 micro × 1 accumulation × 64 replicas = 256 samples"),
        ("samples", "1,437"),
        ("updates per epoch", "5 = floor(1,437 ÷ 256)"),
        ("dropped", "157 samples of every epoch"),
        ("updates", "70 = 14 epochs × 5"),
        ("learning rate", "× 1: mean over samples, micro batches and replicas"),
        ("optimizer", "sgd with momentum 0.9, learning rate 0.01, cosine schedule"),
        ("partition", "64 of 64 IPUs, 1 IPU-Link domain"),
        ("samples per instance", "32 of every global batch of 256"),
        ("loader processes", "8 instances × 1, each at most 180 samples per epoch"),
        ("threads", "CPUs of a host ÷ 2 instances, known when it runs"),
        ("device-hours", "64 IPU-hours for each hour of training"),
    ]


def test_each_instance_has_the_threads_of_its_own_cpus_unless_the_user_chooses() -> None:
    def threads(cluster: Cluster, **job: object) -> str:
        return dict(arithmetic(planned(cluster, **job)))["threads"]

    one = "1 in each instance: its micro batches keep no more busy"
    assert [threads(local(), micro_batch=size) for size in (16, 4, None)] == [one] * 3
    assert threads(local(), micro_batch=17) == "CPUs of a host ÷ 1 instance, known when it runs"
    assert threads(local(), task="tiny-gpt") == "CPUs of a host ÷ 1 instance, known when it runs"
    assert threads(slurm(), instances=2) == "32 in each instance, one for each CPU of its own"
    chosen = "3 in each instance: OMP_NUM_THREADS of the job's environment"
    assert threads(slurm(), env={"OMP_NUM_THREADS": "3"}) == chosen


def test_arithmetic_with_device_iterations_padding_and_updates() -> None:
    rows = dict(arithmetic(planned(pod(4), device_iterations=4, remainder="pad", updates=50)))
    assert rows["block"] == "4 device iterations × 16 = 64 samples between two returns to the host"
    assert rows["updates per epoch"] == "92 = 4 × ceil(1,437 ÷ 64)"
    assert rows["padded"] == "35 samples of every epoch seen twice"
    assert rows["updates"] == "50, as requested"


def test_arithmetic_where_samples_are_known_when_it_runs() -> None:
    rows = dict(arithmetic(planned(local(), task=OWN, epochs=3)))
    assert rows["samples"] == rows["updates per epoch"] == "known when it runs"
    assert rows["updates"] == "3 epochs, known when it runs"


def test_record_is_small_json_whatever_the_number_of_hosts() -> None:
    text = json.dumps(to_json(planned(slurm(count=4096, accelerators=8), task=OWN, hosts=4096)))
    assert len(text) < 3000
    topology = json.loads(text)["topology"]
    assert (topology["hosts"], topology["host_count"]) == ("host-[1-4096]", 4096)
    assert (topology["instances"], topology["instances_per_host"]) == (32768, 8)


def test_record_has_batch_effect_and_warnings() -> None:
    record = planned(pod(64, 4), reduction="sum")
    assert (record.batch.global_batch, record.batch.updates_per_epoch) == (256, 5)
    assert record.learning_rate_effect.factor == 64
    assert [warning.code for warning in record.warnings] == [
        "large-global-batch",
        "dropped-samples",
        "learning-rate-factor",
    ]
    assert planned(local(), command=["x"]).batch is None
