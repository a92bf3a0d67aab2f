"""The judgement of each step, on what ranks print: the defect is named, and a healthy cluster has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainjob.accept import acceptance
from trainjob.accept.steps import STEPS, Result, StepOutcome, own_addresses, problems, transports
from trainjob.cluster.base import Cluster
from trainjob.contract import states
from trainjob.contract.errors import Problem, UserError
from trainjob.kinds.table import cluster_of
from trainjob.observe.status import Snapshot
from trainjob.records.failure import Failure

GPU = {"gpus": 1, "device": "NVIDIA A100-SXM4-80GB", "tflop_per_s": 260.0, "is_stand_in": False}


def snapshot(state: str, failure: Failure | None = None) -> Snapshot:
    fields = ("exit_code", "epoch", "update", "total_updates", "heartbeat", "note", "submitted_at")
    empty: dict[str, Any] = dict.fromkeys(fields)
    return Snapshot(
        id="ab12-accept", folder="/runs/ab12-accept", state=state, name="accept", cluster="hpc", attempt=1,
        failure=failure, script_tail=[], **empty,
    )  # fmt: skip


def cluster(**changes: Any) -> Cluster:
    nodes = {"count": 4, "accelerator": "gpu", "accelerators": 4, "cpus": 64, "memory_gb": 500}
    return cluster_of({"kind": "slurm", "nodes": {**nodes, **changes.pop("nodes", {})}, **changes})


def rank(number: int, **changes: Any) -> dict[str, Any]:
    node = f"n{number // 4 + 1}"
    cpus = list(range(16 * (number % 4), 16 * (number % 4) + 16))
    facts = {"rank": number, "local_rank": number % 4, "node": node, "cpus": cpus, "node_cpus": 64, "threads": 16}
    facts.update(memory_gb=503.0, python="3.11.7", torch="2.13.0", in_container=False, sum_is_right=True, gb_per_s=20.0)
    facts.update(GPU, device_id=f"GPU-{number}", links_gb_per_s={"mlx5_0:1": 25.0, "eth0": 1.25})
    return {**facts, **changes}


def judged(
    name: str, *ranks: dict[str, Any], log: str = "", where: Cluster | None = None, now: Snapshot | None = None
) -> str:
    step = next(step for step in STEPS if step.name == name)
    status = snapshot(step.expects) if now is None else now
    found = problems(step, Result(where or cluster(), len(ranks), status, ranks, log))
    return "\n".join(f"{one.text}. {one.cure}" for one in found)


EIGHT = [rank(number) for number in range(8)]


def test_a_healthy_cluster_passes() -> None:
    assert judged("rank", rank(0)) == judged("device", rank(0)) == ""
    assert judged("host", *EIGHT[:4]) == judged("two-hosts", *EIGHT, log="via NET/IB/0") == ""


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("rank", {"memory_gb": 251.0}, "n1 has 251 GB of memory, and the cluster file says 500 GB"),
        ("rank", {"node_cpus": 32}, "Set nodes.cpus to 32"),
        ("rank", {"torch_missing": "No module named 'torch'"}, "No module named 'torch' in Python 3.11.7"),
        ("device", {"gpus": 0}, "finds no GPU on n1"),
        ("device", {"gpus": 4}, "sees 4 GPUs on n1"),
        ("device", {"tflop_per_s": 40.0}, "computes 40 TFLOP/s, and the maker states 312"),
    ],
)
def test_one_rank_shows(name: str, changes: dict[str, Any], named: str) -> None:
    assert named in judged(name, rank(0, **changes))


def test_a_container_that_was_not_used() -> None:
    container = cluster(container={"runtime": "apptainer", "image": "/images/torch.sif"})
    assert "the rank ran outside of any container" in judged("rank", rank(0), where=container)
    assert judged("rank", rank(0, in_container=True), where=container) == ""


def test_a_stand_in_is_not_judged_by_its_speed() -> None:
    assert judged("device", rank(0, is_stand_in=True, tflop_per_s=0.1)) == ""


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"device_id": "GPU-0"}, "4 ranks of n1 use 3 GPUs"),
        ({"sum_is_right": False}, "rank 3, on NVIDIA A100-SXM4-80GB 3 of n1, got a wrong sum"),
        ({"product_is_right": False}, "3 of n1, computes a wrong matrix product"),
        ({"tflop_per_s": 90.0}, "GPU 3 of n1 computes 90 TFLOP/s, and the median GPU 260"),
        ({"cpus": [0]}, "have 64 threads, and are bound to 48 of its 64 CPUs"),
    ],
)
def test_one_bad_rank_of_a_host(changes: dict[str, Any], named: str) -> None:
    assert named in judged("host", *EIGHT[:3], rank(3, **changes))


def test_ranks_bound_to_the_same_cpus() -> None:
    same = [rank(number, cpus=list(range(16)), threads=2) for number in range(3)]
    assert "bound to 32 of its 64 CPUs, some to the same" in judged("host", *same, rank(3, threads=2))
    assert judged("host", *same) == ""  # not bound


def test_nodes_whose_own_address_is_of_no_use() -> None:
    ranks = [rank(0, address="127.0.1.1"), rank(4, address="127.0.1.1")]
    assert own_addresses(ranks).startswith("the own address of n1, n2 is 127.0.1.1, which no other node reaches")
    assert own_addresses(ranks[:1]) == own_addresses([rank(0, address="10.0.0.1"), rank(4, address="10.0.0.2")]) == ""


def test_a_fabric_that_nccl_does_not_use() -> None:
    slow = [rank(number, gb_per_s=1.1) for number in range(8)]
    output = judged("two-hosts", *slow, log="n1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 4[0] [send] via NET/Socket/0\n")
    assert "NCCL sends over TCP, though mlx5_0:1 is active" in output
    assert "moves 1.10 GB/s, and the link carries 25.0 GB/s" in output


def test_the_link_is_that_of_the_cluster_files_interface() -> None:
    ethernet = cluster(network={"interface": "eth0"})
    ranks = [rank(number, gb_per_s=1.0) for number in range(8)]
    assert "link carries" not in judged("two-hosts", *ranks, log="via NET/IB/0", where=ethernet)


def test_transports() -> None:
    assert transports("0[0] -> 1[0] via P2P/IPC\n4[0] -> 0[0] [receive] via NET/IB/0(3)/GDRDMA\n") == [
        "NET/IB/0(3)/GDRDMA",
        "P2P/IPC",
    ]


def test_a_job_that_did_not_come_back() -> None:
    assert "did not start again" in judged("time-limit", {"rank": 0, "saved": True})
    assert judged("time-limit", {"rank": 0, "saved": True}, {"rank": 0, "resumed": True}) == ""
    stopped = judged("time-limit", now=snapshot(states.STOPPED))
    assert "the run is STOPPED" in stopped
    assert "JobRequeue=1" in stopped
    assert "otherwise set preemption: cancel" in judged("preemption", now=snapshot(states.FAILED))


def test_the_rank_that_was_killed_is_the_one_to_blame() -> None:
    def failure(number: int) -> Failure:
        return Failure(1, number, "n1", 137, ["python"], [], signal=9)

    ranks = [{"rank": 0}, {"rank": 1}]
    assert judged("killed-rank", *ranks, now=snapshot(states.FAILED, failure(1))) == ""
    assert "rank 1 was killed, and the run blames rank 0" in judged(
        "killed-rank", *ranks, now=snapshot(states.FAILED, failure(0))
    )
    assert "the run is COMPLETED" in judged("killed-rank", *ranks, now=snapshot(states.COMPLETED))


def evidence(**figures: float | str) -> acceptance.AcceptanceRecord:
    outcomes = [StepOutcome("two-hosts", "", acceptance.PASSED, figures=dict(figures))]
    return acceptance.AcceptanceRecord("hpc", "2026-11-01T00:00:00+00:00", "0.1.0", outcomes)


def test_what_changed_since_an_earlier_ladder() -> None:
    before, now = evidence(gb_per_s=20.0, cuda="12.4"), evidence(gb_per_s=4.0, cuda="13.0")
    assert acceptance.against(before, now) == [
        "two-hosts: gb_per_s is 4, and was 20: 0.20 x",
        "two-hosts: cuda is 13.0, and was 12.4",
    ]
    assert acceptance.against(before, evidence(gb_per_s=19.0, cuda="12.4")) == []


def test_evidence_is_read_again(tmp_path: Path) -> None:
    made = evidence(gb_per_s=20.0)
    made.outcomes.append(StepOutcome("device", "", acceptance.FAILED, problems=[Problem("device", "slow", "look")]))
    acceptance.write(tmp_path, made, ["two-hosts: slower"])
    assert acceptance.read(tmp_path / "acceptance.json") == made
    page = (tmp_path / "acceptance.html").read_text()
    assert "hpc · not accepted: device" in page
    assert "two-hosts: slower" in page
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(UserError, match="not the evidence of an acceptance"):
        acceptance.read(tmp_path / "other.json")
