"""The plan as a page draws it says what `trainjob plan` prints: hosts, instances, samples, replicas, devices."""

from __future__ import annotations

import dataclasses

from tests.support.plan_cases import local, planned, pod, slurm
from trainjob.observe.report import page


def test_ipus_are_numbered_through_the_partition() -> None:
    plan = planned(pod(16, hosts=2), task="digits-cnn", instances=4, micro_batch=2, accumulation=3)
    first, second = page.hosts_of(plan)
    assert (first.name, second.name) == ("pod-host1", "pod-host2")
    last = second.instances[-1]
    assert (last.name, last.samples, last.first, last.size) == ("instance 3", "D[72:96]", 75.0, 25.0)
    assert last.replicas[0] == "replica 12 → IPU 12"
    assert last.replicas[-1] == "replica 15 → IPU 15"


def test_gpus_are_numbered_anew_on_every_host() -> None:
    plan = planned(slurm(), task="digits-cnn", instances=8)
    assert [host.instances[1].replicas for host in page.hosts_of(plan)] == [
        ["replica 1 → GPU 1"],
        ["replica 5 → GPU 1"],
    ]


def test_many_replicas_are_one_line_and_cpus_have_no_number() -> None:
    of_pod = planned(pod(16), task="digits-cnn", instances=1)
    assert page.hosts_of(of_pod)[0].instances[0].replicas == ["replicas 0-15 → IPUs 0-15, 1 each"]
    here = planned(local(), task="digits-cnn", instances=2)
    assert [one.replicas for one in page.hosts_of(here)[0].instances] == [["replica 0 → CPU"], ["replica 1 → CPU"]]


def test_a_big_plan_is_drawn_in_part() -> None:
    plan = planned(local(), task="digits-cnn", instances=40)
    host = page.hosts_of(plan)[0]
    assert (len(host.instances), host.further) == (16, 24)


def test_a_command_has_no_samples() -> None:
    plan = planned(local(), task="digits-cnn", instances=2)
    instance = page.hosts_of(dataclasses.replace(plan, batch=None))[0].instances[1]
    assert (instance.samples, instance.first, instance.replicas) == ("", None, ["replica 1 → CPU"])
