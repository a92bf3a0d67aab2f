"""The cost of `status`, `logs` and `cancel` of a running job with 2,048 ranks, beside one with 8.

    python -m benchmarks.many_ranks

Every rank has a log and samples of what it uses. Slurm is a stand-in that answers at once. Prints the CPU time and the
seconds of each command, the best of three.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import trainjob
from tests.support.standin_slurm import StandinSlurm, files_say
from trainjob.contract.paths import RunPaths
from trainjob.records import typed
from trainjob.records.usage import UsageRecord

_SIZES = (8, 2048)
_PER_NODE = 8
_SAMPLES = 20
_ROUNDS = 3
_COMMANDS = ("status", "logs", "cancel")
_TRAINJOB = "from trainjob.cli.main import main; main()"


def main() -> None:
    taken = {ranks: _of(ranks) for ranks in _SIZES}
    print(
        f"{'':<10}" + "".join(f"{f'{ranks:,} ranks: CPU':>20}{'wall':>9}" for ranks in _SIZES) + f"{'ratio of CPU':>15}"
    )
    for command in _COMMANDS:
        cells = "".join(f"{taken[ranks][command][0]:>18.2f} s{taken[ranks][command][1]:>7.2f} s" for ranks in _SIZES)
        few, many = (taken[ranks][command][0] for ranks in _SIZES)
        print(f"{command:<10}{cells}{many / few:>15.2f}")


def _of(ranks: int) -> dict[str, tuple[float, float]]:
    """Return the CPU and wall seconds of each command on a run of so many ranks."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        slurm = StandinSlurm(Path(folder) / "slurm", patch)
        nodes = {"count": ranks // _PER_NODE, "cpus": 64}
        cluster = {"kind": "slurm", "nodes": nodes, "runs_dir": str(slurm.folder / "runs"), "python": sys.executable}
        (slurm.here / "clusters" / "hpc.yaml").write_text(json.dumps(cluster))
        run = trainjob.plan("hpc", command=["true"], instances=ranks).submit(check=False)
        files_say(run.folder, attempt=1, state="RUNNING", events="1000\t1\tbegan\tn1")
        _write_records(RunPaths(run.folder), ranks)
        return {command: min(_measured([command, run.id]) for _ in range(_ROUNDS)) for command in _COMMANDS}


def _write_records(paths: RunPaths, ranks: int) -> None:
    paths.logs.mkdir(exist_ok=True)
    for rank in range(ranks):
        paths.rank_log(rank).write_text("step 1\nstep 2\n" * 20)
        node = f"n{rank // _PER_NODE + 1}"
        sample = UsageRecord(1, rank, node, 4000 + rank, 1000.0, 8, 1 << 30, 7.5, 1 << 36)
        paths.rank_usage(rank).write_text((json.dumps(typed.to_json(sample)) + "\n") * _SAMPLES)


def _measured(words: list[str]) -> tuple[float, float]:
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", _TRAINJOB, *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status != 0:
        raise SystemExit(f"{words} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, time.monotonic() - began


if __name__ == "__main__":
    main()
