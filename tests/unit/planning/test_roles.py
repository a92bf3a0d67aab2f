"""What a plan says of a job with roles: where each runs, what it waits for, and what all of them cost."""

from __future__ import annotations

from tests.support.plan_cases import slurm
from trainjob.cluster.job import Job
from trainjob.planning.build import plan
from trainjob.planning.picture import picture


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
