"""How a launcher starts a rank: with few modules, because all nodes of a job load them at once, and its threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.programs import ran
from trainjob.contract import ports


def test_a_start_loads_nothing_that_it_has_no_use_for(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "attempt").write_text("1\n")
    environ = {
        **os.environ,
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "1",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_TASKS_PER_NODE": "1",
        "MASTER_ADDR": ports.LOOPBACK,
        "MASTER_PORT": "1",
        "TRAINJOB_ATTEMPT": "1",
        "TRAINJOB_DEVICE": "cpu",
        "PYTHONPROFILEIMPORTTIME": "1",
    }
    options = ["--launcher", "slurm", "--accelerator", "gpu", str(tmp_path)]
    words = [sys.executable, "-m", "trainjob.launch", *options, "--", "true"]
    ended = ran(words, environ=environ, timeout_s=100, code=0)
    loaded = [line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()]
    until_the_rank_starts = set(loaded[: loaded.index("trainjob.launch.ranks.supervise")])
    assert "trainjob.launch.host" in until_the_rank_starts
    unused = {"argparse", "dataclasses", "hashlib", "importlib.metadata", "tempfile", "typing_extensions"}
    assert not until_the_rank_starts & unused


def test_the_attempts_of_a_command_continue_one_run_of_a_tracker(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    names = ("WANDB_RUN_ID", "WANDB_RESUME", "TENSORBOARD_LOGGING_DIR", "SUBMITIT_PREEMPT_SIGNAL")
    tell = f"import os; print([os.environ[name] for name in {names}])"
    options = ["--launcher", "local", "--instances", "2", str(tmp_path), "--", sys.executable, "-c", tell]
    plain = {name: value for name, value in os.environ.items() if name not in names}
    for attempt in ("1", "2"):
        (tmp_path / "attempt").write_text(f"{attempt}\n")
        environ = {**plain, "WANDB_RESUME": "must", "TRAINJOB_DEVICE": "cpu"}
        subprocess.run([sys.executable, "-m", "trainjob.launch", *options], env=environ, timeout=100, check=True)
    for rank, name in enumerate((tmp_path.name, f"{tmp_path.name}-rank1")):
        reported = str([name, "must", str(tmp_path / "code" / "runs" / name), "USR1"])
        assert (tmp_path / "logs" / f"rank-{rank:04d}.log").read_text().splitlines().count(reported) == 2


# Every CPU is idle from one look at the kernel's counts to the next.
QUIET = """
import itertools, os, sys
from trainjob.launch import main
from trainjob.launch.ranks import spinning
looks = itertools.count()
def idle(_stat):
    ticks = 5 * next(looks)
    return "".join("cpu%d 0 0 0 %d 0 0 0 0 0 0\\n" % (cpu, ticks) for cpu in os.sched_getaffinity(0))
spinning.text = idle
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="threads that wait for each other need two CPUs")
@pytest.mark.parametrize(
    ("stated", "reported"),
    [
        ({}, "1000 PASSIVE"),
        ({"OMP_NUM_THREADS": "1"}, "None PASSIVE"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "None ACTIVE"),
        ({"GOMP_SPINCOUNT": "7"}, "7 PASSIVE"),
    ],
)
def test_threads_spin_on_a_quiet_machine_unless_the_user_says_how_they_wait(
    tmp_path: Path, stated: dict[str, str], reported: str
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "attempt").write_text("1\n")
    tell = "import os; print(*map(os.environ.get, ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')))"
    options = ["--launcher", "local", "--instances", "1", str(tmp_path), "--", sys.executable, "-c", tell]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    ran([sys.executable, "-c", QUIET, *options], environ={**plain, **stated}, timeout_s=100, code=0)
    assert (tmp_path / "logs/rank-0000.log").read_text().splitlines()[-1] == reported


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("launch/main.py", ["-m", "trainjob.launch", "--launcher", "local"]),
        ("launch/ranks/supervise.py", ["-m", "trainjob.launch", "--launcher", "local"]),
        ("watch/show.py", ["-m", "trainjob"]),
        ("contract/paths.py", ["-m", "trainjob"]),
    ],
)
def test_modules_that_a_disk_does_not_give_are_one_line(tmp_path: Path, module: str, words: list[str]) -> None:
    shutil.copytree(ROOT / "trainjob", tmp_path / "trainjob", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "trainjob" / module).write_text("raise OSError(5, 'Input/output error', __file__)\n")
    (tmp_path / "run" / "code").mkdir(parents=True)
    ended = ran([sys.executable, *words, str(tmp_path / "run"), "--", "true"], folder=tmp_path, timeout_s=100, code=1)
    assert (ended.stderr.startswith("trainjob: "), ended.stderr.count("\n")) == (True, 1), ended.stderr
    assert f"Input/output error: '{tmp_path}" in ended.stderr
