"""What a plan says of a job with roles: where each runs, what it waits for, and what all of them cost."""

from __future__ import annotations

import pytest

from tests.support.plan_cases import slurm
from trainjob.cluster.job import Job
from trainjob.planning.build import plan
from trainjob.planning.picture import picture
from trainjob.planning.rules import Refusal

TRAIN = {"command": ["x"], "needs": ["server"]}


def test_servers_have_the_last_hosts_and_count_in_the_cost() -> None:
    server = {"command": ["serve"], "ready": "file:up", "hosts": 2, "restarts": 3, "needs": ["store"]}
    store = {"command": ["store"], "ready": "{host}:{port}"}
    roles = {"server": server, "store": store, "train": {"command": ["x"], "needs": ["server"]}}
    found = plan("here", slurm(count=4), Job.of({"hosts": 1, "roles": roles}))
    assert {name: on.hosts for name, on in found.servers.items()} == {"store": "host-2", "server": "host-[3-4]"}
    assert found.facts["role store"] == "server on host-2, ready within 10 min 0 s ({host}:{port})"
    assert found.facts["role server"] == (
        "server on host-[3-4], after store, ready within 10 min 0 s (file:up), restarted at most 3 times"
    )
    assert found.facts["role train"] == "the job itself on host-1, after server"
    assert found.facts["device-hours"].startswith("16 GPU-hours for each hour")
    assert list(picture(found))[-6:] == [
        "host-2",
        "  role store → GPUs 0-3",
        "host-3",
        "  role server → GPUs 0-3",
        "host-4",
        "  role server → GPUs 0-3",
    ]


def test_a_server_that_shares_the_hosts_leaves_the_ranks_the_other_gpus() -> None:
    server = {"command": ["serve"], "ready": "file:up", "gpus": 1}
    found = plan("here", slurm(count=4), Job.of({"hosts": 1, "roles": {"server": server, "train": TRAIN}}))
    assert (found.topology.instances, found.host_count, found.devices) == (3, 1, 4)
    assert found.facts["role server"].startswith("server on host-1, with 1 GPU, ready within")
    assert found.facts["threads"].startswith("16 in each instance")  # of 64 CPUs for 4 GPUs
    assert list(picture(found))[-2:] == ["host-1", "  role server → GPU 3"]


def test_a_server_that_takes_no_gpu_shares_a_host_and_leaves_the_ranks_all_gpus() -> None:
    store = {"command": ["redis-server"], "ready": "{host}:{port}", "gpus": 0}
    server = {"command": ["serve"], "ready": "file:up", "gpus": 1}
    roles = {"store": store, "server": server, "train": {"command": ["x"], "needs": ["server", "store"]}}
    found = plan("here", slurm(count=1), Job.of({"roles": roles}))
    assert (found.topology.instances, found.host_count, found.devices) == (3, 1, 4)
    assert found.facts["role store"].startswith("server on host-1, without a GPU, ready within")
    assert list(picture(found))[-4:] == ["host-1", "  role store → CPU", "host-1", "  role server → GPU 3"]


def test_where_hosts_are_missing_the_refusal_names_the_servers_that_can_share_them() -> None:
    store = {"command": ["redis-server"], "ready": "{host}:{port}"}
    with pytest.raises(Refusal, match="Give server gpus: 0, to share the job's hosts without a GPU"):
        plan("here", slurm(count=1), Job.of({"roles": {"server": store, "train": TRAIN}}))


@pytest.mark.parametrize(
    ("hosts", "server", "told"),
    [
        (1, {"gpus": 4}, "they take 4 GPUs, and a host has 4 GPUs"),
        (2, {"gpus": 1}, "server.hosts is 1, and the job takes 2 hosts"),
        (1, {"gpus": 0, "hosts": 2}, "server.hosts is 2, and the job takes 1 host"),
    ],
)
def test_a_share_that_leaves_the_ranks_nothing_or_is_not_of_every_host_is_refused(
    hosts: int, server: dict[str, int], told: str
) -> None:
    roles = {"server": {"command": ["serve"], "ready": "file:up", **server}, "train": TRAIN}
    with pytest.raises(Refusal, match=told):
        plan("here", slurm(count=4), Job.of({"hosts": hosts, "roles": roles}))


def test_a_role_that_drives_ray_is_one_program_on_each_of_its_hosts() -> None:
    job = {"roles": {"train": {"command": ["python", "x.py"], "hosts": 2, "ray": True}}}
    found = plan("here", slurm(count=4), Job.of(job))
    assert (found.topology.instances, found.topology.instances_per_host, found.devices) == (2, 1, 8)
    assert found.facts["role train"] == (
        "the job itself on host-[1-2], as the driver of a Ray cluster on its hosts, "
        "whose nodes are in within 10 min 0 s"
    )
    assert "launcher" not in found.facts
    with pytest.raises(Refusal, match="command_per is rank"):
        plan("here", slurm(count=4), Job.of({**job, "command_per": "rank"}))
