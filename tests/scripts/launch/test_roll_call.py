"""Launchers that start no ranks: those of all hosts meet, and rank 0's writes down who came."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainjob.contract import ports
from trainjob.contract.paths import RunPaths
from trainjob.launch.rank_environment import free_port
from trainjob.records import typed
from trainjob.records.roll_call import RollCall


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    (tmp_path / "code").mkdir()
    (tmp_path / "attempt").write_text("1\n")
    return RunPaths(tmp_path)


def launcher(paths: RunPaths, rank: int, port: int, **more: str) -> subprocess.Popen[str]:
    """Return the launcher of a rank among four on two hosts, as srun would start it."""
    environ = {
        **os.environ,
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank % 2),
        "SLURM_NODEID": str(rank // 2),
        "SLURM_NTASKS": "4",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        "SLURMD_NODENAME": f"n{rank // 2}",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "MASTER_ADDR": ports.LOOPBACK,
        "MASTER_PORT": str(port),
        "TRAINJOB_ATTEMPT": "1",
        "TRAINJOB_TOKEN": "this start",
        "TRAINJOB_LAUNCH_ONLY": "1",
        **more,
    }
    words = [sys.executable, "-m", "trainjob.launch", "--launcher", "slurm", "--accelerator", "gpu", str(paths.folder)]
    return subprocess.Popen(
        [*words, "--", "touch", str(paths.folder / "a-rank-started")], env=environ, stderr=subprocess.PIPE, text=True
    )


def ended(started: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = started.communicate(timeout=100)
    return started.returncode, errors


def test_hosts_meet_once_each_and_no_rank_starts(paths: RunPaths) -> None:
    port = free_port(os.getpid())
    started = [launcher(paths, rank, port) for rank in (3, 2, 1, 0)]
    assert [ended(one) for one in started] == [(0, "")] * 4
    call = typed.read(RollCall, paths.roll_call)
    assert call is not None
    assert call.connections == 1
    assert [(one.host, one.first_rank, one.ranks, one.device) for one in call.hosts] == [
        ("n0", 0, 2, "cuda:0"),
        ("n1", 2, 2, "cuda:0"),
    ]
    assert all(one.cpu_s > 0 for one in call.hosts)
    assert not (paths.folder / "a-rank-started").exists()
    assert "no rank is started: device cuda:1" in paths.rank_log(3).read_text()


def test_a_rank_without_a_gpu_of_its_own_is_named(paths: RunPaths) -> None:
    code, errors = ended(launcher(paths, 3, 1, CUDA_VISIBLE_DEVICES="0"))
    assert (code, "local rank 1 of 2 needs a GPU of its own and 1 are visible" in errors) == (1, True), errors


def test_a_host_of_another_start_does_not_count(paths: RunPaths) -> None:
    port = free_port(os.getpid() + 1)
    first = launcher(paths, 0, port)
    code, errors = ended(launcher(paths, 2, port, TRAINJOB_TOKEN="another start"))
    assert (code, "the launchers of this job's hosts have not met" in errors) == (1, True), errors
    assert not paths.roll_call.exists()
    assert [ended(one) for one in (launcher(paths, 2, port), first)] == [(0, "")] * 2


def test_a_start_loads_nothing_that_it_has_no_use_for(paths: RunPaths) -> None:
    port = free_port(os.getpid() + 3)
    started = [launcher(paths, 0, port), launcher(paths, 2, port, PYTHONPROFILEIMPORTTIME="1")]
    (code, _), (_, listed) = map(ended, started)
    assert code == 0
    loaded = {line.rpartition("|")[2].strip() for line in listed.splitlines()}
    assert "trainjob.launch.nodecheck.meeting" in loaded
    assert not loaded & {"argparse", "dataclasses", "hashlib", "importlib.metadata", "subprocess", "tempfile"}


def test_the_record_is_json_for_everybody(paths: RunPaths) -> None:
    port = free_port(os.getpid() + 2)
    alone = {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_TASKS_PER_NODE": "1"}
    assert ended(launcher(paths, 0, port, **alone)) == (0, "")
    assert sorted(json.loads(paths.roll_call.read_text())) == ["attempt", "complete_at", "connections", "hosts"]
