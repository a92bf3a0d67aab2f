"""The processes of ranks that the node check's all-reduce starts on GPUs: here on CPUs, with gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MODULE = "trainjob.train.measure.all_reduce"
# As a GPU does whose memory or link is broken: what arrives differs from what it was to send.
WRONG = f"""
import sys, {MODULE} as module
reduce, gather = module.dist.all_reduce, module.dist.all_gather
module.dist.all_reduce = lambda total: reduce(total.add_(1))
module.dist.all_gather = lambda parts, part: gather(parts, part + 1)
sys.exit(module.main(sys.argv[1:]))
"""


def seen(folder: Path, *programs: list[str]) -> list[dict[str, Any]]:
    """Return what each rank's process printed at last."""
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TRAINJOB")},
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",  # nobody listens: ranks of one host meet in a file
        "WORLD_SIZE": str(len(programs)),
        "LOCAL_WORLD_SIZE": str(len(programs)),
        "TRAINJOB_TOKEN": "a word",
        "TRAINJOB_RANK_DEVICE": "cpu",
        "TRAINJOB_RUN_DIR": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, *words, "[[[0, 1]]]"],
            env={**environ, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, words in enumerate(programs)
    ]
    printed = []
    for rank in ranks:
        assert rank.stdin
        rank.stdin.write("\n")
        rank.stdin.flush()
    for rank in ranks:
        lines = rank.communicate(timeout=240)[0].splitlines()
        assert (rank.returncode, json.loads(lines[0])) == (0, {"is_ready": True})
        printed.append(json.loads(lines[-1]))
    return printed


def test_a_right_sum_and_the_bandwidth_of_a_pair(tmp_path: Path) -> None:
    first, second = seen(tmp_path, ["-m", MODULE], ["-m", MODULE])
    assert first == {"wrong": [], "has_wrong_sum": False, "mb_per_s": []}
    [(one, other, mb_per_s)] = second["mb_per_s"]
    assert (one, other) == (0, 1)
    assert mb_per_s > 0


def test_the_rank_whose_numbers_arrive_wrong_is_distinguished_from_the_others(tmp_path: Path) -> None:
    for report in seen(tmp_path, ["-m", MODULE], ["-c", WRONG]):
        assert (report["wrong"], report["has_wrong_sum"]) == ([1], True)
