"""One run from job.json to its files: what is written when, and what ends it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.runs_at_work import (
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
from trainjob.launch.rank_environment import WAITING
from trainjob.launch.ranks.spinning import SPINNING
from trainjob.observe.report.report import report
from trainjob.records import checkpoints
from trainjob.records import submission as submissions
from trainjob.records.measures import rank_times
from trainjob.train.recording import safetensors

SLOW = """
import time
from trainjob.train.tasks.ffnet_toy import FfnetToy
class Slow(FfnetToy):
    def loss(self, outputs, targets):
        time.sleep(0.01)
        return super().loss(outputs, targets)
"""


def slow_run(folder: Path, **changes: Any) -> Any:
    return make_run(folder, {"slow.py": SLOW}, **{**slow_job(), **changes})


def slow_job() -> dict[str, Any]:
    return {
        "task": "slow:Slow",
        "entry": "slow:Slow",
        "task_options": {"samples": 512},
        "samples": 512,
        "data": None,
        "updates": 2000,
    }


def test_checkpoints_follow_what_they_cost(tmp_path: Path) -> None:
    # The margin is one that no checkpoint keeps.
    job: dict[str, Any] = {"checkpoint_every": "auto", "failure_every_s": 1e-9, "limit_margin_s": 1e-6, "updates": 300}
    run = make_run(tmp_path / "run", instances=2, keep_checkpoints=1000, **job)
    assert train(run, 2) == [0, 0], log(run)
    written = [line["update"] for line in lines(run, "checkpoint")]
    assert written[0] == 10
    assert len(written) > 2
    assert written[-1] == 300
    assert "training stands still" in log(run)
    assert log(run).count("its last checkpoint may come too late. Set time_limit_signal.margin_s to") == 1
    assert "too late" in json.loads(run.progress.read_text())["trouble"]


def test_metrics_and_progress_say_what_happened(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=725, log_every=100)
    assert train_here(run) == 0
    trained = lines(run, "train")
    assert [line["update"] for line in trained] == [100, 200, 300, 400, 500, 600, 700, 725]
    assert [line["epoch"] for line in trained] == [1, 1, 1, 2, 2, 2, 2, 3]
    for line in trained:
        assert set(line["seconds"]) == {"data", "compute", "communication", "checkpoint"}
        assert line["samples_per_s"] > 0
        assert line["loss"] > 0
        assert 0 <= line["accuracy"] <= 1
        assert line["seconds"]["communication"] == 0
    assert trained[0]["loss"] > trained[-1]["loss"]
    assert trained[0]["learning_rate"] > trained[-1]["learning_rate"] > 0
    evaluated = lines(run, "evaluation")
    assert [line["update"] for line in evaluated] == [359, 718, 725]
    assert all(line["samples"] == 360 for line in evaluated)
    assert evaluated[-1]["accuracy"] > 0.5
    (end,) = lines(run, "end")
    assert end["update"] == 725
    in_lines = sum(sum(line["seconds"].values()) for line in trained)
    assert in_lines <= end["training_seconds"] * 1.001
    progress = json.loads(run.progress.read_text())
    assert {name: progress[name] for name in ("attempt", "epoch", "update", "total_updates")} == {
        "attempt": 1,
        "epoch": 3,
        "update": 725,
        "total_updates": 725,
    }


def test_data_is_read_from_a_copy_that_is_removed_on_request(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "disk").mkdir()
    for remove in (False, True):
        run = make_run(tmp_path / f"run-{remove}", updates=5, stage=str(tmp_path / "disk"), remove_staged=remove)
        assert train_here(run) == 0
        assert ("staged digits to" in capfd.readouterr().out) is not remove  # the second run finds the copy
        assert len(list((tmp_path / "disk").glob("*/digits/manifest.json"))) == (not remove)
    run = make_run(tmp_path / "run", updates=5, stage=str(tmp_path / "nowhere"))
    assert train_here(run) == 1
    assert "data set digits can't be staged: there is no folder" in capfd.readouterr().err


def test_a_rehearsal_may_end_sooner_on_the_same_curve(tmp_path: Path) -> None:
    whole = make_run(tmp_path / "whole", updates=60, log_every=1)
    short = make_run(tmp_path / "short", updates=60, log_every=1)
    assert train_here(whole) == 0
    assert train_here(short, TRAINJOB_MAX_UPDATES="20") == 0
    curve = [(line["loss"], line["learning_rate"]) for line in lines(whole, "train")]
    assert [(line["loss"], line["learning_rate"]) for line in lines(short, "train")] == curve[:20]


@pytest.mark.parametrize("most", ["0", "-3", "many"])
def test_a_rehearsal_of_no_updates_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str], most: str) -> None:
    assert train_here(make_run(tmp_path / "run"), TRAINJOB_MAX_UPDATES=most) == exits.USER_OR_CLUSTER_CAN_FIX
    assert "TRAINJOB_MAX_UPDATES must be a whole number above 0" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("engine", "reduction"),
    [("ddp", "mean"), ("ddp", "sum"), pytest.param("naive", "mean", marks=pytest.mark.full), ("naive", "sum")],
)
def test_several_instances_train_as_one(tmp_path: Path, engine: str, reduction: str) -> None:
    job: dict[str, Any] = {
        "precision": "64.64",
        "reduction": reduction,
        "learning_rate": 0.02 if reduction == "mean" else 0.005,
        "updates": 30,
        "log_every": 1,
        "micro_batch": 3,
        "momentum": 0.5,
    }
    one = make_run(tmp_path / "one", accumulation=4, **job)
    two = make_run(tmp_path / "two", instances=2, accumulation=2, engine=engine, **job)
    assert train(two, 2) == [0, 0], log(two)
    assert train_here(one) == 0
    expected = tensors(one)
    for name, value in tensors(two).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(lines(two, "train"), lines(one, "train"), strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-9)
        assert mine["accuracy"] == pytest.approx(theirs["accuracy"], rel=1e-6)
    held_out = [lines(run, "evaluation")[-1] for run in (one, two)]
    assert held_out[0]["samples"] == held_out[1]["samples"] == 360
    assert held_out[1]["loss"] == pytest.approx(held_out[0]["loss"], rel=1e-9)
    assert held_out[1]["accuracy"] == pytest.approx(held_out[0]["accuracy"], rel=1e-6)


@pytest.mark.parametrize("precision", [pytest.param("16.32", marks=pytest.mark.full), "16.16", "bf16"])
def test_sixteen_bits_train_on_several_instances(tmp_path: Path, precision: str) -> None:
    run = make_run(tmp_path / "run", instances=2, precision=precision, epochs=2)
    assert train(run, 2) == [0, 0], log(run)
    assert lines(run, "evaluation")[-1]["accuracy"] >= 0.6


@pytest.mark.parametrize("engine", ["ddp", pytest.param("naive", marks=pytest.mark.full)])
def test_the_norm_of_the_reduced_gradient_is_clipped(tmp_path: Path, engine: str) -> None:
    job: dict[str, Any] = {
        "precision": "64.64",
        "updates": 10,
        "clip_norm": 0.05,
        "momentum": 0.0,
        "schedule": "constant",
    }
    one, two = (
        make_run(tmp_path / "one", accumulation=2, **job),
        make_run(tmp_path / "two", instances=2, engine=engine, **job),
    )
    assert train_here(one) == 0
    assert train(two, 2) == [0, 0], log(two)
    expected = tensors(one)
    for name, value in tensors(two).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-12)


def test_parameter_averaging_is_not_the_training_of_one(tmp_path: Path) -> None:
    job: dict[str, Any] = {"precision": "64.64", "updates": 30}
    one = make_run(tmp_path / "one", accumulation=2, **job)
    two = make_run(tmp_path / "two", instances=2, engine="parameter-averaging", **job)
    assert train(two, 2) == [0, 0], log(two)
    assert train_here(one) == 0
    expected = tensors(one)
    assert max(float((value - expected[name]).abs().max()) for name, value in tensors(two).items()) > 1e-3


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_to_any_rank_stops_all_after_the_same_update(tmp_path: Path, number: Any) -> None:
    run = slow_run(tmp_path / "run", instances=2, log_every=1)
    ranks = start(run, 2)
    wait_for(lambda: lines(run, "train"), ranks)
    ranks[1].send_signal(number)
    assert finish(ranks) == [exits.CHECKPOINTED] * 2
    (update,) = updates(run)
    assert int(run.requeue.read_text()) == update
    assert lines(run, "train")[-1]["update"] == update
    assert not lines(run, "end")


def test_a_signal_before_torch_is_imported_stops_after_the_first_updates(tmp_path: Path) -> None:
    run = slow_run(tmp_path / "run")
    (rank,) = start(run, python=sys.executable)
    # The handlers are there when the interpreter has them: long before the second that torch takes.
    wait_for(lambda: _catches(rank.pid, signal.SIGUSR1), [rank])
    rank.send_signal(signal.SIGUSR1)
    assert finish([rank]) == [exits.CHECKPOINTED]
    assert updates(run)[0] <= 2


def _catches(pid: int, number: int) -> bool:
    lines_of_status = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t") for line in lines_of_status if ":\t" in line)
    return bool(int(status["SigCgt"], 16) >> (number - 1) & 1)


def test_the_rank_that_the_others_wait_for_is_named(tmp_path: Path) -> None:
    only_rank_1 = SLOW.replace("import time", "import os, time").replace("0.01", '0.05 * int(os.environ["RANK"])')
    run = make_run(tmp_path / "run", {"slow.py": only_rank_1}, **{**slow_job(), "updates": 60}, instances=2)
    assert finish(start(run, 2)) == [0, 0]
    named = report(run, submissions.read(run)).slowest_rank
    assert named is not None
    assert (named.rank, named.phase) == (1, "compute")
    assert named.own_s > 60 * 0.05
    first, other = ([line.updates for line in rank_times(run, rank).new()] for rank in (0, 1))
    assert sum(first) == sum(other) == 60


def test_a_stale_attempt_leaves_without_writing(tmp_path: Path) -> None:
    run = slow_run(tmp_path / "run", instances=2, log_every=1)
    ranks = start(run, 2)
    wait_for(lambda: lines(run, "train"), ranks)
    run.attempt.write_text("2\n")
    assert finish(ranks) == [exits.STALE_ATTEMPT] * 2
    assert updates(run) == []
    assert not run.requeue.exists()
    assert "attempt 1 of this run is over, because a newer one has started" in log(run)


def test_a_stale_attempt_does_not_even_begin(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", updates=20, checkpoint_every=10)
    run.attempt.write_text("2\n")
    assert train_here(run, attempt=1) == exits.STALE_ATTEMPT
    assert updates(run) == []
    assert not run.metrics.exists()


def test_a_loss_that_is_not_a_number_ends_the_run_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    code = (
        "from trainjob.train.tasks.ffnet_toy import FfnetToy\n"
        "class Bad(FfnetToy):\n"
        "    losses = 0\n"
        "    def loss(self, outputs, targets):\n"
        "        self.losses += 1\n"
        "        return super().loss(outputs, targets) * (float('nan') if self.losses == 35 else 1)\n"
    )
    run = make_run(
        tmp_path / "run",
        {"bad.py": code},
        task="bad:Bad",
        entry="bad:Bad",
        data=None,
        samples=4096,
        instances=2,
        updates=100,
        checkpoint_every=10,
    )
    assert train(run, 2) == [exits.USER_OR_CLUSTER_CAN_FIX] * 2
    for rank in (0, 1):
        # The engine's own trials are the first two.
        assert "the loss of update 33 is nan" in log(run, rank)
        assert "Traceback" not in log(run, rank)
    assert updates(run)[0] == 30
    checkpoints.check(run.checkpoint(30))


def test_weights_that_overflow_are_not_saved(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = make_run(
        tmp_path / "run", updates=40, checkpoint_every=1, learning_rate=1e38, momentum=0.0, keep_checkpoints=9
    )
    assert train_here(run) == exits.USER_OR_CLUSTER_CAN_FIX
    assert " not a number after update " in capfd.readouterr().err
    for folder in checkpoints.folders(run.checkpoints):
        assert all(bool(value.isfinite().all()) for value in safetensors.load(folder / checkpoints.MODEL).values())


def test_only_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=65, checkpoint_every=10, keep_checkpoints=2)
    assert train_here(run) == 0
    assert updates(run) == [65, 60]
    assert sorted(path.name for path in run.checkpoints.glob("update-*")) == ["update-00000060", "update-00000065"]
    for folder in checkpoints.folders(run.checkpoints):
        checkpoints.check(folder)


def test_no_staging_file_is_left_behind(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=12, checkpoint_every=5)
    assert train_here(run) == 0
    assert not [path for path in run.folder.rglob("*") if path.name.endswith(".part")]


def test_a_finished_run_that_is_resumed_only_evaluates(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=30)
    assert train_here(run) == 0
    before = final_bytes(run)
    assert train_here(run, attempt=2) == 0
    assert final_bytes(run) == before
    assert [line["attempt"] for line in lines(run, "evaluation")] == [1, 2]
    assert [line["update"] for line in lines(run, "end")] == [30, 30]


def test_more_updates_continue_a_finished_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=30, schedule="constant")
    whole = make_run(tmp_path / "whole", updates=50, schedule="constant")
    assert train_here(run) == 0
    write_job(run, updates=50, schedule="constant")
    assert train_here(run, attempt=2) == 0
    assert train_here(whole) == 0
    assert final_bytes(run) == final_bytes(whole)


def test_how_threads_wait_changes_no_bit(tmp_path: Path) -> None:
    def trained(name: str, **waiting: Any) -> dict[str, str]:
        run = make_run(tmp_path / name, updates=5, micro_batch=32)
        assert train(run, python=sys.executable, OMP_NUM_THREADS=2, **waiting) == [0]
        return final_bytes(run)

    assert trained("asleep", **WAITING) == trained("spinning", **WAITING, **SPINNING)


def test_one_process_calls_no_collective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("all_reduce", "broadcast", "all_gather", "init_process_group", "barrier"):
        monkeypatch.setattr(torch.distributed, name, _forbidden)
    assert train_here(make_run(tmp_path / "run", updates=5)) == 0


def _forbidden(*given: Any, **named: Any) -> None:
    raise AssertionError("a collective in a world of one")


def test_the_working_folder_is_the_copy_of_the_project(tmp_path: Path) -> None:
    code = (
        "import os\nfrom trainjob.train.tasks.ffnet_toy import FfnetToy\n"
        "class Here(FfnetToy):\n"
        "    def build_model(self):\n"
        "        open('was-here', 'w').write(os.getcwd())\n"
        "        return super().build_model()\n"
    )
    run = make_run(
        tmp_path / "run",
        {"here.py": code},
        task="here:Here",
        entry="here:Here",
        data=None,
        samples=4096,
        updates=2,
    )
    assert train(run) == [0], log(run)
    assert (run.project / "was-here").read_text() == os.path.realpath(run.project)


def test_two_instances_begin_with_the_weights_of_a_file(tmp_path: Path) -> None:
    first = make_run(tmp_path / "first", updates=3)
    assert train_here(first) == 0
    file = checkpoints.folders(first.checkpoints)[0] / checkpoints.MODEL
    second = make_run(tmp_path / "second", updates=2, instances=2, init_from=str(file), learning_rate=1e-300)
    assert train(second, 2) == [0, 0]
    for name, weight in tensors(second).items():
        assert torch.equal(weight, tensors(first)[name]), name
