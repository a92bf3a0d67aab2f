"""What holds of every plan and of every refusal."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.plan_cases import OWN, devices_of_hosts, local, pod, slurm
from trainjob.cluster.job import Job
from trainjob.contract.batch import share
from trainjob.planning.build import plan
from trainjob.planning.picture import picture
from trainjob.planning.rows import arithmetic
from trainjob.planning.rules import Refusal
from trainjob.records import typed
from trainjob.records.job import Plan

few = st.none() | st.integers(-1, 20)
some = st.none() | st.sampled_from([1, 2, 3, 4, 6, 8, 16, 31, 32, 64, 100, 256, 1000])

clusters = st.one_of(
    st.builds(pod, st.sampled_from([4, 12, 16, 64, 256]), st.integers(1, 5)),
    st.builds(slurm, st.sampled_from(["gpu", "ipu"]), st.integers(1, 6), st.integers(1, 8)),
    st.builds(lambda count: slurm("cpu", count, 0, 8, limits={"max_nodes": 3}), st.integers(1, 6)),
    st.builds(lambda most: local(max_instances=most), st.none() | st.integers(1, 8)),
)
jobs = st.fixed_dictionaries(
    {},
    optional={
        "task": st.sampled_from(["digits-cnn", OWN]),
        "instances": few,
        "replicas": some,
        "hosts": few,
        "ipus_per_replica": st.sampled_from([1, 1, 2, 4, 6]),
        "micro_batch": some,
        "accumulation": few,
        "device_iterations": st.sampled_from([1, 1, 4]),
        "remainder": st.sampled_from(["drop", "pad"]),
        "samples": st.none() | st.integers(1, 5000),
        "workers": st.integers(0, 3),
        "engine": st.sampled_from([None, None, "single", "ddp", "ipu"]),
    },
).flatmap(
    lambda job: (
        st.just(job)
        | some.map(lambda batch: {**{k: v for k, v in job.items() if k != "accumulation"}, "global_batch": batch})
    )
)


def outcome(cluster: Any, job: Any) -> Any:
    try:
        return plan("here", cluster, Job(**job))
    except Refusal as refusal:
        return refusal


@given(clusters, jobs)
def test_every_replica_has_a_place_and_no_device_two(cluster: Any, job: Any) -> None:
    found = outcome(cluster, job)
    assume(not isinstance(found, Refusal))
    topology = found.topology
    hosts = devices_of_hosts(topology)
    assert len(hosts) == topology.host_count
    assert sum(len(instances) for instances in hosts.values()) == topology.instances
    assert sum(len(replicas) for instances in hosts.values() for replicas in instances) == topology.replicas
    # Within the partition on IPUs, within the host on GPUs.
    used = [
        (device if topology.device == "IPU" else (name, device))
        for name, instances in hosts.items()
        for replicas in instances
        for devices in replicas
        for device in devices
    ]
    assert len(used) == len(set(used)) == topology.devices


@given(clusters, jobs)
def test_shares_cover_the_batch_and_epochs_account_for_every_sample(cluster: Any, job: Any) -> None:
    found = outcome(cluster, job)
    assume(not isinstance(found, Refusal))
    batch = found.batch
    shares = [share(batch.global_batch, found.topology.instances, index) for index in range(found.topology.instances)]
    assert [first for first, _ in shares] == [0, *(end for _, end in shares[:-1])]
    assert shares[-1][1] == batch.global_batch
    if batch.samples is not None:
        assert batch.updates_per_epoch >= 1
        assert batch.updates_per_epoch * batch.global_batch == batch.samples - batch.dropped + batch.padded
        assert 0 <= batch.dropped < batch.block
        assert 0 <= batch.padded < batch.block


@given(clusters, jobs)
def test_what_a_refusal_offers_is_no_longer_refused_for_that_reason(cluster: Any, job: Any) -> None:
    refusal = outcome(cluster, job)
    assume(isinstance(refusal, Refusal))
    assert refusal.cure
    for change in refusal.nearest:
        followed = outcome(cluster, {**job, **change})
        if refusal.cure.startswith("Nearest that works"):
            assert not isinstance(followed, Refusal)
        else:
            assert getattr(followed, "rule", None) != refusal.rule


@given(clusters, jobs)
def test_every_plan_can_be_shown(cluster: Any, job: Any) -> None:
    found = outcome(cluster, job)
    assume(not isinstance(found, Refusal))
    assert list(picture(found))
    assert arithmetic(found)
    assert typed.from_json(Plan, typed.to_json(found)) == found
