"""Ranks that must meet, agree, and end together; and the words for it when they don't."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from tests.support import SUPPORT
from tests.support.runs_at_work import PACKAGE, finish, lines, log, make_run, start, train, train_here, wait_for
from trainjob.contract import exits
from trainjob.contract.errors import UserError
from trainjob.train import evaluation, opening, world
from trainjob.train.engines.base import Engine
from trainjob.train.samples.sources import TensorSource
from trainjob.train.tasks.base import TaskData

FAILED = exits.USER_OR_CLUSTER_CAN_FIX


def place(rank: int = 0, size: int = 1) -> Any:
    return world.RankPlace(rank, rank, size, torch.device("cpu"))


def test_a_torch_without_distributed_names_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    assert world.join(place(), {}, 1).size == 1
    with pytest.raises(UserError, match=r"2 instances need torch\.distributed.*trainjob container build"):
        world.join(place(size=2), {}, 1)


def test_a_port_in_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(port))
        with pytest.raises(UserError, match=rf"the other 1 ranks at 127\.0\.0\.1:{port}.*port free"):
            world.join(place(size=2), dict(os.environ), 5)


def test_a_gpu_that_is_not_there_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(
        UserError,
        match=r"this rank is to use cuda:0, and its torch .* sees no GPU.*trainjob rehearse.*accelerator: cpu",
    ):
        world.place({"TRAINJOB_RANK_DEVICE": "cuda:0"})
    assert world.place({"TRAINJOB_RANK_DEVICE": "cuda:0", "TRAINJOB_DEVICE": "cpu"}).device.type == "cpu"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instances": 2}, "plans 2 instances and 1 ranks were started"),
        ({"replicas": 2}, "engine single has one replica per instance, and 2 replicas on 1 instances were planned"),
        (
            {"engine": "magic"},
            "there is no engine magic: choose one of ddp, fsdp, horovod, ipu, naive, parameter-averaging, single",
        ),
        (
            {"optimizer": "magic"},
            "there is no optimizer magic. Choose one of sgd, adamw, lamb, lars, or module:attribute of your own",
        ),
        (
            {"schedule": "magic"},
            "there is no schedule magic. Choose one of constant, linear, cosine, step, warmup-stable-decay, one-cycle",
        ),
        ({"precision": "8.8"}, 'train.precision is "8.8", expected 64.64 or 32.32 or 16.32 or 16.16 or bf16'),
        ({"samples": 1436}, "the plan assumed 1436 training samples and the task's data has 1437"),
        (
            {"data": "no-such"},
            "data set no-such is not prepared: TRAINJOB_DATA_DIR is not set. Run: trainjob data prepare",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    assert train_here(make_run(tmp_path / "run", **changes)) == FAILED
    captured = capfd.readouterr().err
    assert captured.startswith("trainjob: ")
    assert message in captured
    assert "Traceback" not in captured


def test_a_run_directory_that_is_none_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from trainjob.train.main import main

    assert main(["train", str(tmp_path)], {}) == FAILED
    assert "job.json does not exist: is this a run directory?" in capfd.readouterr().err
    assert main(["train"], {}) == exits.USAGE


def test_damaged_data_is_refused_with_the_cure(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    shutil.copytree(PACKAGE / "data/digits", data / "digits")
    images = data / "digits/train-images.bin"
    images.write_bytes(b"\x01" + images.read_bytes()[1:])
    assert train_here(make_run(tmp_path / "run"), TRAINJOB_DATA_DIR=data) == FAILED
    message = capfd.readouterr().err
    assert f"{images}: expected sha256 194fbb7c" in message
    assert f"Remove {data / 'digits'} and run: trainjob data prepare digits" in message


def test_instances_with_other_data_refuse_to_train(tmp_path: Path) -> None:
    for name in ("one", "other"):
        shutil.copytree(PACKAGE / "data/digits", tmp_path / name / "digits")
    manifest = tmp_path / "other/digits/manifest.json"
    manifest.write_text(manifest.read_text().replace("0.3052", "0.3053"))
    run = make_run(tmp_path / "run", instances=2)
    ranks = start(run, 2, by_rank=[{"TRAINJOB_DATA_DIR": tmp_path / name} for name in ("one", "other")])
    assert finish(ranks) == [FAILED] * 2
    for rank in (0, 1):
        assert "rank 1 has other training data than rank 0" in log(run, rank)
        assert "prepare the same data set on every host" in log(run, rank)


def test_a_rank_that_is_killed_ends_the_others_with_a_word(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", instances=2, epochs=200, log_every=1)
    ranks = start(run, 2)
    wait_for(lambda: lines(run, "train"), ranks)
    ranks[1].kill()
    assert finish(ranks) == [FAILED, -signal.SIGKILL]
    assert "trainjob: rank 0 lost its connection to another rank" in log(run)
    assert "Traceback" not in log(run)


@pytest.mark.parametrize("engine", ["ddp", pytest.param("naive", marks=pytest.mark.full)])
def test_a_rank_that_hangs_is_named_and_the_others_end(tmp_path: Path, engine: str) -> None:
    job = {"task": "hangs:Hangs", "entry": "hangs:Hangs", "data": None, "samples": 4096, "engine": engine}
    run = make_run(
        tmp_path / "run",
        {"hangs.py": (SUPPORT / "hanging_task.py").read_text()},
        instances=2,
        updates=100,
        stall_timeout_s=12.0,
        **job,
    )
    assert finish(start(run, 2)) == [FAILED] * 2
    update = 20 - (2 if engine == "ddp" else 1)  # the engines' own trials come first
    assert f"rank 1 has been computing update {update} for " in log(run, 1)
    assert "hangs.py" in log(run, 1)  # where it is
    record = pickle.loads((run.logs / "flight-record-1").read_bytes())
    assert any("all" in entry["profiling_name"] for entry in record["entries"])  # its last collectives
    # The others learn of it by their own watch or by the broken connection, whichever is first.
    assert f"rank 1 has been computing update {update} for " in log(run, 0)


def test_a_rank_that_is_frozen_is_named_by_the_others(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", instances=2, epochs=500, log_every=1, stall_timeout_s=12.0)
    ranks = start(run, 2)
    wait_for(lambda: lines(run, "train"), ranks)
    ranks[1].send_signal(signal.SIGSTOP)
    try:
        assert ranks[0].wait(200) == FAILED
    finally:
        finish(ranks, 0.1) if ranks[1].poll() is not None else [rank.kill() or rank.wait() for rank in ranks]
    assert "rank 1 does not respond: it or its host is frozen" in log(run, 0)


def test_without_torch_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    run = make_run(tmp_path / "run")
    assert train(run, python=sys.executable, PYTHONPATH=tmp_path) == [FAILED]
    assert "torch is not installed in this Python" in log(run)
    assert Path(sys.executable).name in log(run)


class Counts:
    """An engine that notes which samples it is asked to evaluate."""

    metric_names = ("accuracy",)
    evaluation_batch = 16
    evaluates_together = False
    shards = False

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.times_prepared = 0

    def before_evaluation(self) -> None:
        self.times_prepared += 1

    def after_evaluation(self) -> None:
        pass

    def evaluate(self, inputs: Any, targets: Any) -> list[float]:
        self.seen += inputs.tolist()
        return [float(inputs.float().mean()), 1.0]


@pytest.mark.parametrize("samples", [1, 7, 100])
def test_evaluation_counts_every_sample_once(samples: int) -> None:
    held_out = TensorSource(torch.arange(samples), torch.arange(samples))
    seen: list[int] = []
    sums: list[Any] = []

    class Part(world.World):
        def sum(self, values: Any) -> list[Any]:
            sums.append(values)
            return [sum(column) for column in zip(*sums, strict=True)]

    # The last rank is the one with samples of a data set smaller than the world.
    for rank in (2, 1, 0):
        engine = Counts()
        found = evaluation.evaluate(cast("Engine", engine), held_out, Part(place(rank, 3)), lambda: None)
        assert engine.times_prepared == 1
        seen = engine.seen + seen
    assert seen == list(range(samples))
    assert found.samples == samples
    assert found.loss == pytest.approx((samples - 1) / 2)
    assert found.metrics == {"accuracy": 1.0}


def test_instances_agree_on_equal_data() -> None:
    class Other(world.World):
        def gather(self, word: Any) -> list[Any]:
            return [word, word[::-1]]

    opening.agree_on_data(world.World(place()), TaskData(None, identity="a"), 10)
    with pytest.raises(UserError, match="rank 1 has other training data"):
        opening.agree_on_data(Other(place()), TaskData(None, identity="a"), 10)
