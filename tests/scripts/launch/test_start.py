"""How a launcher starts a rank under Slurm: with few modules, because all nodes of a job load them at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
    ended = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=100, check=True)
    loaded = [line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()]
    until_the_rank_starts = set(loaded[: loaded.index("trainjob.launch.ranks.supervise")])
    assert "trainjob.launch.host" in until_the_rank_starts
    unused = {"argparse", "dataclasses", "hashlib", "importlib.metadata", "tempfile", "typing_extensions"}
    assert not until_the_rank_starts & unused
