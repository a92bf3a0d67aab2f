"""The node check: a node that is not sound is named before a rank starts on it."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import ran
from tests.support.render_cases import golden_requests, rendered
from trainjob.contract import clock
from trainjob.contract.environment import Ranking
from trainjob.contract.paths import RunPaths
from trainjob.launch.nodecheck import node_check
from trainjob.launch.nodecheck.node_check import Requirements, first_finding
from trainjob.launch.witness.evidence import BROKEN_GPU
from trainjob.records import causes

SOUND = "0, GPU-a, 0\n1, GPU-b, [N/A]\n"


def nvidia_smi(folder: Path, printed: str, code: int = 0) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{printed}END\nexit {code}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("printed", "code", "visible", "finding"),
    [
        (SOUND, 0, "0,1", None),
        ("0, GPU-a, 0\n", 0, "0,1", "nvidia-smi shows 1 GPUs, and the ranks of this node need 2"),
        ("0, GPU-a, 0\n1, GPU-b, 3\n", 0, "0,1", "GPU 1 has had 3 memory errors that ECC can't correct"),
        ("0, GPU-a, 0\n1, GPU-b, 0\n2, GPU-c, 3\n", 0, "GPU-a,GPU-b", None),
        ("Unable to determine the device handle\n", 255, "0,1", "nvidia-smi exited with 255 and printed: Unable to"),
    ],
    ids=["sound", "one is missing", "ECC", "ECC of another job's", "no driver"],
)
def test_gpus(tmp_path: Path, printed: str, code: int, visible: str, finding: str | None) -> None:
    environ = {**nvidia_smi(tmp_path / "bin", printed, code), "CUDA_VISIBLE_DEVICES": visible}
    found = first_finding(RunPaths(tmp_path), Requirements(2, None, environ))
    assert (found is None) if finding is None else (found is not None and found.text.startswith(finding)), found


def test_data_that_can_not_be_read_and_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, data = RunPaths(tmp_path), str(tmp_path / "data")
    found = first_finding(paths, Requirements(0, data, {}))
    assert found == (f"the data folder {data} can't be read: No such file or directory", True)
    (tmp_path / "data").mkdir()
    assert first_finding(paths, Requirements(0, data, {})) is None
    monkeypatch.setattr(node_check, "LEAST_FREE_BYTES", 1 << 60)
    full = first_finding(paths, Requirements(0, data, {}))
    assert full is not None
    assert not full.is_node_fault
    assert "GB are free in" in full.text


def test_a_clock_that_differs_from_the_storages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.time()
    monkeypatch.setattr(clock, "time", lambda: now - 500)
    found = first_finding(RunPaths(tmp_path), Requirements(0, None, {}))
    assert found is not None
    assert found.text.startswith("its clock is ")
    assert "behind that of the storage" in found.text


def test_what_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_check, "LIMIT_S", 0.2)
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nsleep 1\n")
    smi.chmod(0o755)
    found = first_finding(RunPaths(tmp_path), Requirements(1, None, {"PATH": f"{tmp_path}:{os.environ['PATH']}"}))
    assert found == ("its GPUs did not answer within 0.2 s", True)


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_node_without_nvidia_smi_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], gpus: int) -> None:
    need = Requirements(gpus, None, {"PATH": str(tmp_path)})
    assert not node_check.is_refused(RunPaths(tmp_path), need, Ranking(0, 0, 1, 1), 1, restarts=False)
    assert ("has no nvidia-smi, so its GPUs are not checked" in capsys.readouterr().err) == bool(gpus)


def test_tight_limits_are_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_MEMLOCK: 64 << 10, resource.RLIMIT_NOFILE: 256}
    monkeypatch.setattr("trainjob.launch.nodecheck.node_check.resource.getrlimit", lambda which: (limits[which], 4096))
    memory, files = node_check.tight_limits(tmp_path)
    assert memory.startswith("a process may lock 64 kB of memory")
    assert files.startswith("a process may open 256 files")
    assert list(node_check.tight_limits(tmp_path / "none")) == [files]
    limits |= {resource.RLIMIT_MEMLOCK: resource.RLIM_INFINITY, resource.RLIMIT_NOFILE: 1024}
    assert not list(node_check.tight_limits(tmp_path))


@pytest.mark.parametrize(("xid", "broken"), [(79, True), (48, True), (13, False), (31, False)])
def test_a_programs_own_mistakes_do_not_condemn_a_gpu(xid: int, broken: bool) -> None:
    message = f"NVRM: Xid (PCI:0000:3b:00): {xid}, pid=1234, name=python, text"
    assert bool(re.search(BROKEN_GPU, message)) is broken


def launched(folder: Path, printed: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Return what a launcher has left that mpirun in a Slurm job has started."""
    (folder / "code").mkdir(exist_ok=True)
    job = rendered(golden_requests()["slurm-command"]).files["job.json"]
    (folder / "job.json").write_bytes(job.content)
    ranking = {f"OMPI_COMM_WORLD_{name}": value for name, value in (("RANK", "0"), ("SIZE", "2"))}
    local = {f"OMPI_COMM_WORLD_LOCAL_{name}": value for name, value in (("RANK", "0"), ("SIZE", "2"))}
    flags = ("--launcher", "openmpi", "--accelerator", "gpu", "--node-check", "on")
    return ran(
        [sys.executable, "-m", "trainjob.launch", *flags, str(folder), "--", "touch", str(folder / "began")],
        environ={
            **{name: value for name, value in os.environ.items() if not name.startswith("SLURM")},
            **nvidia_smi(folder / "bin", printed),
            **ranking,
            **local,
            "CUDA_VISIBLE_DEVICES": "0,1",
            "SLURM_JOB_ID": "7",
            "SLURMD_NODENAME": "n7",
            **environ,
        },
        timeout_s=60,
    )


def test_a_node_that_fails_is_named_and_the_next_attempt_avoids_it(tmp_path: Path) -> None:
    ended = launched(tmp_path, "0, GPU-a, 0\n")
    assert ended.returncode == 1, ended.stderr
    paths = RunPaths(tmp_path)
    assert not (tmp_path / "began").exists()
    why = "node n7 did not pass the node check: nvidia-smi shows 1 GPUs, and the ranks of this node need 2"
    assert why in ended.stderr
    assert paths.bad_node.read_text() == f"n7 {why}\n"
    assert paths.requeue.read_text() == "0\n"
    failure: dict[str, Any] = json.loads(paths.failure.read_text())
    assert (failure["rank"], failure["host"], failure["exit_code"]) == (0, "n7", 1)
    cause = causes.of_run(paths)
    assert cause is not None
    assert (cause.code, cause.text) == ("node-check", why)


def test_ranks_begin_on_a_sound_node(tmp_path: Path) -> None:
    assert launched(tmp_path, SOUND).returncode == 0
    assert (tmp_path / "began").exists()
    assert not RunPaths(tmp_path).failure.exists()


def test_what_all_nodes_lack_is_no_nodes_fault(tmp_path: Path) -> None:
    """Both find the same within seconds, as nodes do: without that, the next attempt would avoid the first of them."""
    nodes = [
        {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": rank, "SLURMD_NODENAME": node}
        for rank, node in (("0", "n7"), ("2", "n8"))
    ]
    with ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda environ: launched(tmp_path, "0, GPU-a, 0\n", **environ), nodes))
    assert [one.returncode for one in ended] == [1, 1]
    paths = RunPaths(tmp_path)
    assert not paths.bad_node.exists()
    assert not paths.requeue.exists()
    assert "all nodes of the job did not pass the node check: nvidia-smi shows 1 GPUs" in ended[0].stderr


def test_of_two_nodes_the_one_with_another_fault_is_to_blame(tmp_path: Path) -> None:
    other = RunPaths(tmp_path).node_faults / "1.n8"
    other.parent.mkdir()
    other.write_text("nvidia-smi shows an error")
    ended = launched(tmp_path, "0, GPU-a, 0\n", OMPI_COMM_WORLD_SIZE="4")
    assert ended.returncode == 1
    assert RunPaths(tmp_path).bad_node.read_text().startswith("n7 ")
