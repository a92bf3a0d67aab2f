"""Interrupted equals uninterrupted, bit for bit; and what a resumed run refuses."""

import signal

import pytest
from runs_at_work import (
    final_bytes,
    finish,
    lines,
    log,
    make_run,
    start,
    train,
    updates,
    wait_for,
)

from trainjob.contract import exits

# Several buckets of 1 MB, and three ranks: where the order of a sum shows.
WIDE = {
    "task": "ffnet-toy",
    "task_options": {"width": 512, "layers": 4, "samples": 3 * 4 * 40},
    "bucket_mb": 1,
    "epochs": 3,
    "log_every": 1,
}


@pytest.mark.parametrize(("instances", "job"), [(1, {"epochs": 1}), (2, {"epochs": 1, "accumulation": 2}), (3, WIDE)])
def test_a_run_stopped_by_the_file_and_resumed_ends_with_the_same_bits(tmp_path, instances, job):
    whole = make_run(tmp_path / "whole", instances=instances, **job)
    assert train(whole, instances) == [0] * instances
    cut = make_run(tmp_path / "cut", instances=instances, **job)
    ranks = start(cut, instances)
    wait_for(lambda: lines(cut, "train"), ranks)
    cut.stop.touch()
    assert finish(ranks) == [exits.CHECKPOINTED] * instances
    stopped_at = int(cut.requeue.read_text())
    assert updates(cut) == [stopped_at]
    cut.stop.unlink()
    assert train(cut, instances, attempt=2) == [0] * instances
    assert f"from the checkpoint of update {stopped_at}" in log(cut)
    assert final_bytes(cut) == final_bytes(whole)
    assert cut.checkpoint(updates(whole)[0]).is_dir()


@pytest.mark.parametrize("instances", [1, 2])
def test_a_run_killed_and_resumed_ends_with_the_same_bits(tmp_path, instances):
    job = {"instances": instances, "updates": 500, "checkpoint_every": 20, "optimizer": "adamw", "micro_batch": 8}
    whole = make_run(tmp_path / "whole", **job)
    assert train(whole, instances) == [0] * instances
    cut = make_run(tmp_path / "cut", **job)
    ranks = start(cut, instances)
    wait_for(lambda: updates(cut)[:1] > [40], ranks)
    ranks[-1].send_signal(signal.SIGKILL)
    codes = finish(ranks)
    assert codes[-1] == -signal.SIGKILL
    assert codes[:-1] == [exits.USER_OR_CLUSTER_CAN_FIX] * (instances - 1)
    assert not cut.requeue.exists()
    assert train(cut, instances, attempt=2) == [0] * instances
    assert final_bytes(cut) == final_bytes(whole)
