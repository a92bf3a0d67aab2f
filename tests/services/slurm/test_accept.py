"""`trainjob cluster accept` on private Slurms, and with defects that it must name."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.slurm_network import INTERFACE, networked_site, slow_down
from tests.support.slurm_site import DESCRIPTION, Site, site
from tests.support.waiting import until
from trainjob.rehearse import gpus
from trainjob.rehearse.slurm.description import SlurmPartition

pytestmark = pytest.mark.timeout(900)

SLOW = ("time-limit", "preemption")
RELEASES = ("20.11", "22.05", "24.11", "26.05")
# Of one GPU: python finds it after the stand-ins' own sitecustomize, which passes on to it.
BAD_GPU = """import os
if (os.environ.get("SLURMD_NODENAME"), os.environ.get("LOCAL_RANK")) == ({node!r}, "1"):
    import torch
    right = torch.Tensor.__matmul__
    def product(one, other):
        {does}
    torch.Tensor.__matmul__ = product
"""


def on_every_release(test: Callable[..., None]) -> Callable[..., None]:
    each: Callable[..., None] = pytest.mark.full(pytest.mark.parametrize("release", RELEASES)(test))
    return each


def accept(cluster: Site, *words: str, skip: tuple[str, ...] = SLOW, **changes: Any) -> dict[str, dict[str, Any]]:
    """Return the outcomes by step."""
    # Its nodes are this machine: the file says what that has, and Slurm may believe in more.
    nodes = {"count": 2, "cpus": os.cpu_count(), "memory_gb": 2, **changes.pop("nodes", {})}
    cluster.write_cluster("twin", nodes=nodes, **changes)
    left_out = [word for name in skip for word in ("--skip", name)]
    ended = cluster.trainjob("cluster", "accept", "twin", "--json", *left_out, *words, timeout_s=800)
    assert '"outcomes"' in ended.out, ended.out + ended.err
    reported = json.loads(ended.out)
    assert ended.code == (0 if reported["accepted"] else 1)
    return {one["step"]: one for one in reported["outcomes"]}


def failures(steps: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return what was found by each step that failed."""
    return {
        name: "\n".join(f"{found['text']}. {found['cure']}" for found in one["problems"])
        for name, one in steps.items()
        if one["state"] == "failed"
    }


def named(steps: dict[str, dict[str, Any]], step: str) -> str:
    """Return what was found by `step`, which alone has failed and is the last that was run."""
    found = failures(steps)
    assert list(found) == [step], found
    after = list(steps.values())[list(steps).index(step) + 1 :]
    assert {one["state"] for one in after} <= {"not run", "skipped"}
    return found[step]


def test_the_quick_rungs_pass_over_ssh(cluster: Site) -> None:
    steps = accept(cluster, skip=(*SLOW, "host", "killed-rank", "staging", "same-training"), ssh=True)
    assert failures(steps) == {}
    assert [name for name, one in steps.items() if one["state"] == "passed"] == ["site", "rank", "two-hosts", "cancel"]
    assert steps["two-hosts"]["figures"]["gb_per_s"] > 0
    assert 0 < steps["cancel"]["figures"]["ended_after_s"] < steps["cancel"]["seconds"]
    assert (cluster.here / "accept-twin" / "acceptance.html").is_file()
    assert not cluster.run("squeue", "--noheader").out


@pytest.mark.full
def test_a_gpu_that_no_rank_finds(cluster: Site) -> None:
    steps = accept(cluster, nodes={"accelerator": "gpu", "accelerators": 1}, request="none")
    assert "needs a GPU of its own and 0 are visible" in named(steps, "rank")


def test_missing_memory(cluster: Site) -> None:
    stated = DESCRIPTION.memory_mb // 1024
    steps = accept(cluster, nodes={"memory_gb": 4096}, directives={"partition": "gpu", "mem": f"{stated}G"})
    assert "GB of memory, and the cluster file says 4096 GB. Set nodes.memory_gb to" in named(steps, "rank")


@on_every_release
def test_missing_memory_on_every_release(release: str, tmp_path: Path, needs: Callable[[str], Path]) -> None:
    needs("slurm")
    with site(tmp_path, needs("sshd"), replace(DESCRIPTION, release=release)) as made:
        test_missing_memory(made)


@pytest.mark.full
def test_as_many_hosts_as_are_asked_for(tmp_path: Path, needs: Callable[[str], Path]) -> None:
    needs("slurm")
    three = replace(DESCRIPTION, nodes=3, partitions=(SlurmPartition("gpu"),))
    others = ("rank", "host", "two-hosts", "cancel", "killed-rank", "staging", "same-training")
    with site(tmp_path, needs("sshd"), three) as made:
        steps = accept(made, "--hosts", "3", skip=(*SLOW, *others), nodes={"count": 3}, limits={"max_nodes": 3})
        assert failures(steps) == {}
        assert steps["3-hosts"]["figures"]["gb_per_s"] > 0


@on_every_release
def test_the_whole_ladder_on_every_release(release: str, tmp_path: Path, needs: Callable[[str], Path]) -> None:
    needs("slurm")
    with site(tmp_path, needs("sshd"), replace(DESCRIPTION, release=release)) as made:
        steps = accept(made, skip=())
        assert failures(steps) == {}
        assert {name for name, one in steps.items() if one["state"] == "skipped"} == {"device"}
        assert steps["same-training"]["figures"]["updates"] == 20


@on_every_release
def test_wrong_binding(release: str, tmp_path: Path, needs: Callable[[str], Path]) -> None:
    needs("slurm")
    binds = replace(DESCRIPTION, release=release, task_plugin="affinity", cpus=os.cpu_count() or 1)
    with site(tmp_path, needs("sshd"), binds) as made:
        steps = accept(made, srun={"cpu-bind": "map_cpu:0,0"})
        assert f"2 threads, and are bound to 1 of its {os.cpu_count()} CPUs. Look at cpu-bind" in named(steps, "host")


@on_every_release
def test_no_requeue(release: str, tmp_path: Path, needs: Callable[[str], Path]) -> None:
    needs("slurm")
    never = {"partition": "gpu", "no-requeue": True}
    with site(tmp_path, needs("sshd"), replace(DESCRIPTION, release=release)) as made:
        assert "Slurm must allow requeueing" in named(
            accept(made, skip=("time-limit",), directives=never), "preemption"
        )
        with ThreadPoolExecutor(1) as pool:
            accepting = pool.submit(accept, made, skip=("rank", "host", "two-hosts"), directives=never)
            names = ["squeue", "--noheader", "--states=RUNNING", "--format=%j"]
            until(lambda: "accept-time-limit" in made.run(*names).out, "the step to begin")
            # No job can be submitted any more that would follow.
            made.slurm.run_as_root(["scontrol", "update", "PartitionName=gpu", "State=DRAIN"])
        assert "Slurm must allow requeueing" in named(accepting.result(), "time-limit")


@on_every_release
def test_a_slow_link_and_an_address_of_no_use(release: str, tmp_path: Path, needs: Callable[[str], Path]) -> None:
    needs("slurm")
    with networked_site(tmp_path, needs("sshd"), release) as made:
        steps = accept(made, network=None)
        assert failures(steps) == {}
        assert steps["two-hosts"]["note"].startswith("the own address of node1, node2 is 127.0.1.1, which no other")
        slow_down(made, "node2", 100)
        before = made.here / "accept-twin" / "acceptance.json"
        slow = accept(made, "--against", str(before), "--output", "slow", network={"interface": INTERFACE})
        assert "an all-reduce over 2 nodes moves 0.0" in named(slow, "two-hosts")
        page = (made.here / "slow" / "acceptance.html").read_text()
        assert "two-hosts: failed, and passed on" in page
        assert "two-hosts: gb_per_s is 0.0" in page
        lost = accept(made, skip=(*SLOW, "rank", "host"), network={"interface": "lo"})
        assert "Set network.interface in the cluster file to one whose address" in named(lost, "two-hosts")
        assert lost["two-hosts"]["figures"]["meeting_at"] == "127.0.0.1"


@on_every_release
@pytest.mark.parametrize(
    ("node", "does", "step", "named_as"),
    [
        (
            "node1",
            "return right(one, other) * 1.01",
            "host",
            "A100-SXM4-80GB 1 of node1, computes a wrong matrix product",
        ),
        (
            "node2",
            "raise RuntimeError('CUDA error: uncorrectable ECC error encountered')",
            "two-hosts",
            "rank 3 on host node2 lost its GPU",
        ),
    ],
)
def test_one_bad_gpu(
    node: str, does: str, step: str, named_as: str, release: str, tmp_path: Path, needs: Callable[[str], Path]
) -> None:
    needs("slurm")
    gpus.make_ready(sys.executable)
    (tmp_path / "sitecustomize.py").write_text(BAD_GPU.format(node=node, does=does))
    environment = gpus.environment(tmp_path / "gpus", 2, "a100")
    environment["PYTHONPATH"] += f":{tmp_path}"
    with site(tmp_path, needs("sshd"), replace(DESCRIPTION, release=release)) as made:
        made.slurm.set_job_environment(environment)
        nodes = {"accelerator": "gpu", "accelerators": 2}
        assert named_as in named(accept(made, nodes=nodes), step)
