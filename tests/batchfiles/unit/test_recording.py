"""The record of a batch file, read from what its processes left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from batchfiles.rehearsal.recording import Recording, calls_in, processes_in

SLURM = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "node1"}


def left(folder: Path, *processes: dict[str, Any]) -> Recording:
    """Return the record of a job whose processes left these fields."""
    for number, fields in enumerate(processes):
        environment = {**SLURM, **fields.pop("environment", {})}
        whole = {
            "node": "node1",
            "pid": number,
            "parent": 1,
            "began_at": float(number),
            "folder": "/p",
            "cpus": 2,
            "words": ["python", "train.py"],
            "environment": environment,
            **fields,
        }
        (folder / f"process-{number}-{number}.json").write_text(json.dumps(whole))
    return Recording((), (), processes_in(folder), calls_in(folder), 0)


def member(rank: int, size: int, name: str = "a") -> dict[str, Any]:
    return {
        "torch": "2.13.0",
        "joining": {"rank": rank, "world_size": size, "address": "node1", "port": 29500},
        "world": {"id": name, "rank": rank, "size": size, "backend": "nccl"},
    }


def test_ranks_are_the_processes_that_met_others(tmp_path: Path) -> None:
    launcher = {"words": ["/v/bin/python", "/v/bin/torchrun", "train.py"], "torch": "2.13.0"}
    record = left(tmp_path, launcher, member(1, 2), member(0, 2))
    assert [(one.rank, one.world_size, one.world and one.world.id) for one in record.ranks("7")] == [
        (0, 2, "a"),
        (1, 2, "a"),
    ]


def test_without_a_group_they_are_those_that_were_told_a_rank(tmp_path: Path) -> None:
    reported = {
        "environment": {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "MASTER_ADDR": "n", "MASTER_PORT": "1"}
    }
    record = left(tmp_path, {"words": ["python", "-c", "print(29500)"]}, reported)
    (rank,) = record.ranks("7")
    assert (rank.rank, rank.world_size, rank.local_rank, rank.address) == (0, 8, 0, "n:1")


def test_a_rank_that_waits_in_vain_has_no_world(tmp_path: Path) -> None:
    waiting = {**member(3, 4), "world": None}
    (rank,) = left(tmp_path, waiting).ranks("7")
    assert (rank.rank, rank.world_size, rank.world) == (3, 4, None)


def test_helpers_and_launchers_are_no_ranks(tmp_path: Path) -> None:
    helpers = (
        ["python", "-c", "import socket"],
        ["python3", "-m", "torch.distributed.run", "x.py"],
        ["python", "-m", "pip", "list"],
        ["python", "-m", "trainjob.launch", "--launcher", "slurm"],
    )
    spawned = ["python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork"]
    program = ["python", "-c", "\nimport mine\nmine.train()\n"]
    record = left(tmp_path, *({"words": words} for words in [*helpers, spawned, program]))
    assert [list(one.words) for one in record.ranks("7")] == [spawned, program]


def test_each_attempt_has_its_own_ranks(tmp_path: Path) -> None:
    again = {**member(0, 1, "b"), "environment": {"SLURM_RESTART_COUNT": "1"}}
    record = left(tmp_path, member(0, 1), again)
    assert [record.ranks("7", attempt)[0].world.id for attempt in (1, 2)] == ["a", "b"]


def test_calls_keep_every_word_and_leave_out_the_rehearsal_s_own(tmp_path: Path) -> None:
    for number, words in enumerate((["", "", "/p", "sbatch", "x"], ["node1", "", "/p", "srun", "a b", "", "it's\n"])):
        (tmp_path / f"call-{number}-x").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (call,) = calls_in(tmp_path)
    assert (call.words, call.in_step) == (("srun", "a b", "", "it's\n"), False)
