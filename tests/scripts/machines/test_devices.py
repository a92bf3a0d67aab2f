"""A machine is asked for its devices by the vendor's program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gc_monitor_tables import BOARDS, PROCESSES
from trainjob.contract.errors import UserError
from trainjob.kinds.lookup import find
from trainjob.kinds.table import cluster_of
from trainjob.machines import devices as asking

GPUS = cluster_of({"kind": "local", "accelerator": "gpu", "accelerators": 2})


def tool(folder: Path, name: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_pod_is_asked_by_gc_monitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table").write_text(BOARDS + PROCESSES)
    tool(tmp_path, "gc-monitor", f"cat {tmp_path}/table; exit 0", monkeypatch)
    assert len(asking.devices("pod16", find("pod16").cluster)) == 3


def test_what_can_not_be_asked_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(UserError, match="has no gc-monitor, which lists the IPUs of cluster pod16"):
        asking.devices("pod16", find("pod16").cluster)
    tool(tmp_path, "gc-monitor", "echo terminate called >&2; exit 134", monkeypatch)
    with pytest.raises(UserError, match=r"exited with 134: terminate called: check that a partition is active"):
        asking.devices("pod16", find("pod16").cluster)
    tool(tmp_path, "nvidia-smi", "echo no devices were found; exit 6", monkeypatch)
    with pytest.raises(UserError, match="failed: no devices were found: check that the host has a GPU"):
        asking.devices("here", GPUS)


def test_a_cluster_of_cpus_has_no_devices_to_ask_for() -> None:
    with pytest.raises(UserError, match="cluster local has no devices: accelerator is cpu, so its ranks train on CPUs"):
        asking.devices("local", find("local").cluster)
    slurm = cluster_of({"kind": "slurm", "nodes": {"count": 2, "cpus": 4}})
    with pytest.raises(UserError, match=r"cluster hpc has no devices: nodes\.accelerator is cpu"):
        asking.devices("hpc", slurm)


def test_output_that_can_not_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, "nvidia-smi", "echo something else", monkeypatch)
    with pytest.raises(UserError, match="nvidia-smi on this machine printed no list of GPUs"):
        asking.devices("here", GPUS)
    tool(tmp_path, "gc-monitor", "echo something else", monkeypatch)
    with pytest.raises(UserError, match="gc-monitor on this machine printed no table of IPUs"):
        asking.devices("pod16", find("pod16").cluster)


def test_a_machine_without_nvidia_smi_is_asked_by_rocm_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(
        tmp_path, "rocm-smi", """echo '{"card0": {"Card series": "Instinct MI210", "GPU use (%)": "0"}}'""", monkeypatch
    )
    assert [device.where for device in asking.devices("here", GPUS)] == ["Instinct MI210"]


# As `scontrol show job -d -o` of 22.05 prints them, shortened.
JOBS = [
    "JobId=12 JobName=a b UserId=ml(1001) JobState=RUNNING "
    "  Nodes=n[1-2] CPU_IDs=0-7 Mem=1 GRES=gpu:a100:2(IDX:0,3) MinCPUsNode=1",
    "JobId=14 ArrayJobId=13 JobName=b UserId=anna(7) JobState=RUNNING "
    "  Nodes=n1 CPU_IDs=8 Mem=1 GRES=gpu:1(IDX:1)   Nodes=n3 CPU_IDs=0 Mem=1 GRES= Z=1",
    "JobId=15 JobName=c UserId=anna(7) JobState=PENDING NodeList= GRES=gpu:4",
]


def test_under_slurm_the_controller_knows_which_job_holds_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").write_text("\n".join(JOBS))
    sinfo = "printf 'n1|gpu:a100:4(S:0-1)|mixed|\\nn2|gpu:a100:4|mixed|\\nn3|(null)|idle|\\nn1|gpu:a100:4|mixed|\\n'"
    tool(tmp_path, "sinfo", f'echo "$*" >{tmp_path}/asked; {sinfo}', monkeypatch)
    tool(tmp_path, "scontrol", f"cat {tmp_path}/jobs", monkeypatch)
    directives = {"partition": "gpu"}
    nodes = {"count": 2, "accelerator": "gpu", "accelerators": 4, "cpus": 8}
    cluster = cluster_of({"kind": "slurm", "nodes": nodes, "directives": directives})
    listed = asking.devices("hpc", cluster)
    assert "--partition=gpu" in (tmp_path / "asked").read_text()
    assert {one.where for one in listed} == {"n1 · a100", "n2 · a100"}
    used = [(one.where[:2], one.device, one.user, one.process) for one in listed if one.process]
    assert used == [
        ("n1", "GPU 0", "ml", "job 12"),
        ("n1", "GPU 1", "anna", "job 14"),
        ("n1", "GPU 3", "ml", "job 12"),
        ("n2", "GPU 0", "ml", "job 12"),
        ("n2", "GPU 3", "ml", "job 12"),
    ]
    assert len(listed) == 8
    tool(tmp_path, "sinfo", "echo 'n3|(null)|idle|'", monkeypatch)
    with pytest.raises(UserError, match="lists no GPUs on the nodes of partition gpu"):
        asking.devices("hpc", cluster)
