"""What launch.py writes down of its ranks while they run: what they use, and where their processes are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gc_monitor_tables import BOARDS, PROCESSES
from tests.support.waiting import LIMIT_S, until
from trainjob.contract.paths import CONTRACT, RunPaths
from trainjob.launch.rank_environment import Watched
from trainjob.launch.witness.usage import Sampler
from trainjob.records import metrics, progress, usage

WAITS = """\
import subprocess, sys, threading, time
def waits_in_a_thread(): time.sleep(60)
def waits_here():
    print(sys.modules.get("of_the_site"), [entry for entry in sys.path if "launch/hooks" in entry], flush=True)
    subprocess.run(["sleep", "60"])
threading.Thread(target=waits_in_a_thread, daemon=True).start()
waits_here()
"""
COMPUTES = """\
import time
held = bytearray(64 << 20)
while True: sum(range(1000))
"""
NVIDIA_SMI = """\
#!/bin/sh
echo "$@" >>"$0.asked"
echo "1, GPU-b, 83, 1024, 40960, 310.5"
echo "3, GPU-d, [N/A], [N/A], 40960, [N/A]"
"""


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., RunPaths]]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(program: str, *flags: str, python: tuple[str, ...] = (), **environ: str) -> RunPaths:
        (tmp_path / "code").mkdir()
        words = [sys.executable, "-m", "trainjob.launch", "--launcher", "local", *flags, str(tmp_path), "--"]
        started.append(
            subprocess.Popen([*words, sys.executable, *python, "-c", program], env={**os.environ, **environ})
        )
        return RunPaths(tmp_path)

    yield begin
    for process in started:
        process.terminate()
        process.wait(LIMIT_S)


def stacks(paths: RunPaths, rank: int = 0) -> list[dict[str, Any]]:
    paths.stacks_request.write_text("please\n")
    until(paths.rank_stacks(rank).exists, "stacks")
    record = json.loads(paths.rank_stacks(rank).read_text())
    assert (record["word"], record["rank"], record["attempt"]) == ("please", rank, 1)
    listed: list[dict[str, Any]] = record["processes"]
    return listed


def first_line(paths: RunPaths, rank: int = 0) -> str:
    until(lambda: paths.rank_log(rank).exists() and paths.rank_log(rank).read_text().count("\n") == 2, "a line")
    return paths.rank_log(rank).read_text().splitlines()[1]


def test_stacks_of_all_threads_of_all_ranks_leave_no_trace_in_what_ranks_print(launch: Callable[..., RunPaths]) -> None:
    paths = launch(WAITS, "--instances", "2")
    for rank in (0, 1):
        assert first_line(paths, rank) == "None []"
    for rank in (0, 1):
        python, child = stacks(paths, rank)
        assert "in waits_here" in python["stack"], python
        assert "in waits_in_a_thread" in python["stack"], python
        assert (child["command"], child["stack"], child["state"]) == ("sleep 60", None, "S")
        assert paths.rank_log(rank).read_text().count("\n") == 2


def test_a_sitecustomize_of_the_site_has_its_turn(launch: Callable[..., RunPaths], tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sys\nsys.modules['of_the_site'] = __file__\n")
    paths = launch(WAITS, PYTHONPATH=os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH")))))
    assert first_line(paths) == f"{site}/sitecustomize.py []"
    assert "in waits_here" in stacks(paths)[0]["stack"]


def test_a_python_without_our_hook_is_not_disturbed(launch: Callable[..., RunPaths]) -> None:
    """Nobody handles the signal there: it would end the process."""
    paths = launch(WAITS, python=("-I",))
    first_line(paths)
    python, _ = stacks(paths)
    assert (python["stack"], python["state"]) == (None, "S")


def test_what_a_rank_uses_is_recorded(launch: Callable[..., RunPaths], tmp_path: Path) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(NVIDIA_SMI)
    smi.chmod(0o755)
    searched = f"{smi.parent}:{os.environ['PATH']}"
    paths = launch(COMPUTES, "--accelerator", "gpu", PATH=searched, CUDA_VISIBLE_DEVICES="1", SLURM_STEP_GPUS="1")
    until(lambda: len(list(usage.lines(paths, 0).new())) >= 2, "two samples")
    first, second, *_ = usage.lines(paths, 0).new()
    assert first.cpu_cores is None
    assert 0.01 < (second.cpu_cores or 0) <= 1.1
    assert second.memory_bytes > 64 << 20
    assert (second.rank, second.attempt, second.pid) == (0, 1, first.pid)
    assert second.devices == [usage.DeviceUse("GPU 1", 0.83, 1 << 30, 40 << 30, 310.5)]
    assert "--id=1" in (tmp_path / "bin" / "nvidia-smi.asked").read_text()


# A stand-in: it records how it is called, and prints the keys of rocm-smi, of which two releases have differed.
ROCM_SMI = """#!/bin/sh
echo "$@" >"$0.asked"
echo "WARNING: AMD GPU device(s) is/are in a low-power state"
echo '{"card0": {"GPU use (%)": "7", "VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "0",'
echo ' "Max Graphics Package Power (W)": "560.0", "Average Graphics Package Power (W)": "90.0"},'
echo ' "card3": {"GPU use (%)": "91", "VRAM Total Memory (B)": "68702699520",'
echo ' "VRAM Total Used Memory (B)": "1073741824",'
echo ' "Max Graphics Package Power (W)": "560.0", "Current Socket Graphics Package Power (W)": "402.5"}, "system": {}}'
"""


@pytest.mark.parametrize(
    ("visible", "device"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1,3"}, usage.DeviceUse("GPU 3", 0.91, 1 << 30, 68702699520, 402.5)),
        (
            {"ROCR_VISIBLE_DEVICES": "1,3", "HIP_VISIBLE_DEVICES": "1,0", "TRAINJOB_RANK_DEVICE": "cuda:0"},
            usage.DeviceUse("GPU 3", 0.91, 1 << 30, 68702699520, 402.5),
        ),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, usage.DeviceUse("GPU 0", 0.07, 0, 68702699520, 90.0)),
        ({"ROCR_VISIBLE_DEVICES": "GPU-a5b2,GPU-7c1d"}, None),
        ({}, None),
    ],
    ids=["ROCR", "HIP within ROCR", "CUDA's list", "by UUID", "a card that the tool does not show"],
)
def test_what_a_rank_uses_of_an_amd_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: dict[str, str], device: usage.DeviceUse | None
) -> None:
    smi = tmp_path / "rocm-smi"
    smi.write_text(ROCM_SMI)
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    [sample] = Sampler([Watched(1, 0, os.getpid(), {"TRAINJOB_RANK_DEVICE": "cuda:1", **visible})]).sample()
    assert sample.devices == ([] if device is None else [device])
    assert "--showuse --showmeminfo vram --showpower --json" in (tmp_path / "rocm-smi.asked").read_text()


def test_the_first_sample_says_how_many_threads_a_rank_has_and_how_they_wait() -> None:
    openmp = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
    sampler = Sampler([Watched(1, 0, os.getpid(), {"TRAINJOB_RANK_DEVICE": "cpu", "PATH": "/bin", **openmp})])
    assert [one.openmp for one in (*sampler.sample(), *sampler.sample())] == [openmp, {}]


def test_an_ipu_is_of_the_rank_whose_process_is_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = tmp_path / "gc-monitor"
    monitor.write_text(f"#!/bin/sh\ncat <<'END'\n{BOARDS}{PROCESSES.replace('4242', str(os.getpid()))}END\n")
    monitor.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    ranks = [Watched(1, rank, pid, {"TRAINJOB_RANK_DEVICE": "ipu"}) for rank, pid in ((0, os.getpid()), (1, 1))]
    devices = {sample.rank: sample.devices for sample in Sampler(ranks).sample()}
    assert devices == {0: [usage.DeviceUse("IPU 1", power_w=92.4)], 1: []}


def test_progress_of_a_command_is_complete_when_its_ranks_have_ended(
    launch: Callable[..., RunPaths], tmp_path: Path
) -> None:
    """The last lines are printed a moment before the end."""
    facts = {"job": {"progress": r"at (?P<update>\d+)"}, "cluster": {"file": {}}}
    job = {"contract": CONTRACT, "train": None, "command": ["unused"], "asked": facts}
    (tmp_path / "job.json").write_text(json.dumps(job))
    paths = launch("for at in range(1, 101): print('at', at, flush=True)", "--instances", "2")
    until(lambda: progress.read(paths).update == 100, "the last line")
    begin, *lines = metrics.read(paths)
    assert (begin.kind, lines[-1].update, lines[-1].attempt) == ("begin", 100, 1)


def test_no_samples_but_the_first_where_the_site_wants_none(launch: Callable[..., RunPaths]) -> None:
    paths = launch(WAITS, "--usage-every-s", "0")
    first_line(paths)
    stacks(paths)  # at least one second later
    assert [sample.cpu_cores for sample in usage.lines(paths, 0).new()] == [None]
