"""Interrupted equals uninterrupted, bit for bit; and what a resumed run refuses."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.pausing import go_on, make_pausing, wait_until_paused
from tests.support.runs_at_work import (
    Rank,
    final_bytes,
    finish,
    lines,
    log,
    make_run,
    start,
    tensors,
    train,
    train_here,
    updates,
    wait_for,
    write_job,
)
from trainjob.contract import exits
from trainjob.contract.paths import RunPaths

FAILED = exits.USER_OR_CLUSTER_CAN_FIX

# Several buckets of 1 MB, and three ranks: where the order of a sum shows.
WIDE: dict[str, Any] = {
    "task": "Toy",
    "task_options": {"width": 512, "layers": 4, "samples": 3 * 4 * 40},
    "samples": 3 * 4 * 40,
    "bucket_mb": 1,
}


@pytest.mark.parametrize(("instances", "job"), [(1, {}), (2, {"accumulation": 2}), (3, WIDE)])
def test_a_run_stopped_by_the_file_and_resumed_ends_with_the_same_bits(
    tmp_path: Path, instances: int, job: Any
) -> None:
    whole = make_pausing(tmp_path / "whole", instances=instances, updates=60, **job)
    assert train(whole, instances) == [0] * instances
    cut = make_pausing(tmp_path / "cut", instances=instances, updates=60, **job)
    ranks = start(cut, instances, PAUSE_AT=30)
    wait_until_paused(cut, ranks)
    cut.stop.touch()
    go_on(cut)
    assert finish(ranks) == [exits.CHECKPOINTED] * instances
    stopped_at = int(cut.requeue.read_text())
    assert updates(cut) == [stopped_at]
    cut.stop.unlink()
    assert train(cut, instances, attempt=2) == [0] * instances
    assert f"from the checkpoint of update {stopped_at}" in log(cut)
    assert final_bytes(cut) == final_bytes(whole)
    assert cut.checkpoint(updates(whole)[0]).is_dir()


def test_an_evaluation_before_which_a_run_was_stopped_is_made_when_it_is_resumed(tmp_path: Path) -> None:
    epochs: dict[str, Any] = {"micro_batch": 1437, "updates": 6}
    whole = make_run(tmp_path / "whole", **epochs)
    assert train_here(whole) == 0
    cut = make_run(tmp_path / "cut", **epochs)
    cut.stop.touch()  # in force after every other epoch, each of which is one update
    codes = [train_here(cut, attempt=attempt) for attempt in (1, 2, 3)]
    assert codes == [exits.CHECKPOINTED, exits.CHECKPOINTED, 0]
    evaluated, expected = (
        [(line["update"], line["loss"]) for line in lines(run, "evaluation")] for run in (cut, whole)
    )
    assert len(expected) > 2
    assert evaluated == expected


@pytest.mark.parametrize(
    "job",
    [
        {"optimizer": "adamw", "learning_rate": 0.001, "weight_decay": 0.1},
        {"optimizer": "torch.optim:NAdam", "learning_rate": 0.001, "updates": 20},
        {"precision": "16.16", "clip_norm": 0.5},
        {"precision": "bf16", "reduction": "sum", "average_decay": 0.9},
        {"remainder": "pad", "micro_batch": 1000, "warmup_updates": 3, "updates": 6, "checkpoint_every": 1},
        {"task": "ffnet-toy", "task_options": {"samples": 100}, "momentum": 0.0, "updates": 40},
    ],
)
def test_whatever_is_trained_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, job: dict[str, Any]) -> None:
    job = {"updates": 60, "accumulation": 2, "checkpoint_every": 7, "keep_checkpoints": 2, **job}
    whole, cut = make_run(tmp_path / "whole", **job), make_run(tmp_path / "cut", **job)
    assert train_here(whole) == 0
    cut.stop.touch()
    assert train_here(cut) == exits.CHECKPOINTED
    # The stop file is still there: each attempt makes two updates.
    assert train_here(cut, attempt=2) == exits.CHECKPOINTED
    assert int(cut.requeue.read_text()) == 4
    cut.stop.unlink()
    assert train_here(cut, attempt=3) == 0
    assert final_bytes(cut) == final_bytes(whole)


# tests/training/verify/test_resume.py kills a run by the command line.
@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.full)])
@pytest.mark.timeout(600)
def test_kills_at_random_moments_lose_nothing_but_time(tmp_path: Path, kills: int) -> None:
    job: dict[str, Any] = {
        "instances": 2,
        "updates": 700,
        "checkpoint_every": 15,
        "keep_checkpoints": 2,
        "log_every": 5,
    }
    whole, cut = make_run(tmp_path / "whole", **job), make_run(tmp_path / "cut", **job)
    assert train(whole, 2) == [0, 0]
    chance = random.Random(kills)
    for attempt in range(1, kills + 1):
        before, ranks = updates(cut)[:1], start(cut, 2, attempt)
        if attempt % 2:  # after one more checkpoint: while training, or writing
            _wait_for_a_checkpoint(cut, before, ranks)
        time.sleep(chance.uniform(0.0, 0.5))  # or at any moment: while starting, too
        for rank in chance.choice([ranks, ranks[:1], ranks[1:]]):
            rank.kill()
        assert all(code in (0, FAILED, -signal.SIGKILL) for code in _ended(ranks)), log(cut)
    assert train(cut, 2, kills + 1) == [0, 0], log(cut)
    assert final_bytes(cut) == final_bytes(whole)
    # The last attempt of each update is what counts, and every update is there.
    losses = {line["update"]: line["loss"] for line in lines(cut, "train")}
    assert losses == {line["update"]: line["loss"] for line in lines(whole, "train")}


def _wait_for_a_checkpoint(run: RunPaths, before: list[int], ranks: Sequence[Rank]) -> None:
    wait_for(lambda: updates(run)[:1] > before or any(rank.poll() is not None for rank in ranks))


def _ended(ranks: Sequence[Rank]) -> list[int]:
    """Return the exit codes, after ending those that wait for a rank which is gone: as launch.py does."""
    for rank in ranks:
        try:
            rank.wait(5)
        except subprocess.TimeoutExpired:
            rank.kill()
    return finish(ranks)


def test_another_number_of_instances_goes_on_with_the_same_training(tmp_path: Path) -> None:
    job: dict[str, Any] = {"precision": "64.64", "updates": 24, "log_every": 1}
    whole, cut = make_run(tmp_path / "whole", accumulation=4, **job), make_run(tmp_path / "cut", accumulation=4, **job)
    assert train_here(whole) == 0
    assert train_here(cut, TRAINJOB_MAX_UPDATES=8) == 0
    for attempt, instances in ((2, 2), (3, 4)):
        write_job(cut, instances=instances, accumulation=4 // instances, **job)
        most = {"TRAINJOB_MAX_UPDATES": 16} if attempt == 2 else {}
        assert train(cut, instances, attempt, **most) == [0] * instances, log(cut)
    expected = tensors(whole)
    for name, value in tensors(cut).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-12)
    losses = [line["loss"] for line in lines(cut, "train")]
    assert losses == pytest.approx([line["loss"] for line in lines(whole, "train")], rel=1e-9)


@pytest.mark.parametrize("instances", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_run_killed_and_resumed_ends_with_the_same_bits(tmp_path: Path, instances: int) -> None:
    job: dict[str, Any] = {
        "instances": instances,
        "updates": 120,
        "checkpoint_every": 20,
        "optimizer": "adamw",
        "micro_batch": 8,
    }
    whole = make_pausing(tmp_path / "whole", **job)
    assert train(whole, instances) == [0] * instances
    cut = make_pausing(tmp_path / "cut", **job)
    ranks = start(cut, instances, PAUSE_AT=55)
    wait_until_paused(cut, ranks)
    wait_for(lambda: updates(cut)[:1] == [40], ranks)
    ranks[-1].kill()
    assert ranks[-1].wait() == -signal.SIGKILL
    go_on(cut)
    assert finish(ranks)[:-1] == [FAILED] * (instances - 1)
    assert not cut.requeue.exists()
    assert train(cut, instances, attempt=2) == [0] * instances
    assert "from the checkpoint of update 40" in log(cut)
    assert final_bytes(cut) == final_bytes(whole)


def test_a_finished_run_that_starts_again_says_where_it_is(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=20)
    assert train_here(run) == 0
    assert train_here(run, attempt=2) == 0
    reported = json.loads(run.progress.read_text())
    assert (reported["attempt"], reported["epoch"], reported["update"], reported["total_updates"]) == (2, 1, 20, 20)
