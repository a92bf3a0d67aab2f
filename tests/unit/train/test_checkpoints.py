"""Checkpoints: complete or absent, broken ones passed over, a full disk outlived, others' refused."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.runs_at_work import final_bytes, lines, make_run, tensors, train_here, updates, write_job
from trainjob.contract import exits
from trainjob.contract.paths import RunPaths
from trainjob.records import checkpoints
from trainjob.records.checkpoints import NewerContractError
from trainjob.train.recording import checkpoint, safetensors
from trainjob.train.recording.state import State


def finished(folder: Path, **changes: Any) -> Any:
    run = make_run(folder, **{"updates": 60, "checkpoint_every": 20, "schedule": "constant", **changes})
    assert train_here(run) == 0
    return run


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def wait_for(event: threading.Event) -> None:
    event.wait()


def forget(path: Path) -> None:
    index = json.loads(path.read_text())
    del index["files"][checkpoints.MODEL]
    path.write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (checkpoints.MODEL, cut, "model.safetensors has "),
        (checkpoints.MODEL, flip, "model.safetensors has sha256 "),
        (checkpoints.TRAINING, flip, "training.safetensors has sha256 "),
        (checkpoints.TRAINING, os.remove, "training.safetensors is missing"),
        (checkpoints.INDEX, os.remove, "index.json is missing or broken"),
        (checkpoints.INDEX, cut, "passed over"),
        (checkpoints.INDEX, forget, "index.json does not mention model.safetensors"),
    ],
)
def test_a_broken_checkpoint_is_passed_over_for_the_one_before(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: Any, damage: Any, message: str
) -> None:
    run = finished(tmp_path / "run")
    whole = final_bytes(run)
    damage(run.checkpoint(60) / name)
    if damage is cut and name == checkpoints.INDEX:
        (run.checkpoint(60) / name).write_text("{")
    warned: list[str] = []
    assert checkpoints.newest_sound(run.checkpoints, warned.append).update == 40
    assert len(warned) == 1
    assert message in warned[0]
    assert str(run.checkpoint(60)) in warned[0]
    capfd.readouterr()
    assert train_here(run, attempt=2) == 0
    out = capfd.readouterr().out
    assert "is passed over" in out
    assert "from the checkpoint of update 40" in out
    assert final_bytes(run) == whole
    checkpoints.check(run.checkpoint(60))


def renamed(run: Any) -> None:
    run.checkpoint(20).rename(run.checkpoint(80))


def linked(run: Any) -> None:
    run.checkpoint(80).symlink_to(run.checkpoint(20).name)


def from_another_run(run: Any) -> None:
    shutil.copytree(run.checkpoint(60), run.checkpoint(80))
    index = json.loads((run.checkpoint(80) / checkpoints.INDEX).read_text())
    (run.checkpoint(80) / checkpoints.INDEX).write_text(json.dumps({**index, "update": 80, "run": "efgh-other"}))


@pytest.mark.parametrize("place", [renamed, linked, from_another_run])
def test_a_folders_name_alone_decides_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], place: Callable[[Any], None]
) -> None:
    run = finished(tmp_path / "run")
    whole = final_bytes(run)
    if place is from_another_run:
        place(run)
        shutil.rmtree(run.checkpoint(60))
    else:
        shutil.rmtree(run.checkpoint(60))
        place(run)
    assert train_here(run, attempt=2) == 0
    assert "from the checkpoint of update 40" in capfd.readouterr().out
    assert final_bytes(run) == whole


def test_a_run_directory_that_is_renamed_keeps_its_checkpoints(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    moved = RunPaths(run.folder.rename(tmp_path / "moved"))
    assert checkpoints.run_of(moved.checkpoints) == "run"
    assert checkpoints.newest_sound(moved.checkpoints, print).update == 60


def test_half_written_ones_are_never_seen_and_removed(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    staging = run.checkpoints / ".update-00000080.4711.part"
    staging.mkdir()
    (staging / checkpoints.MODEL).write_bytes(b"half")
    assert updates(run) == [60, 40, 20]
    assert train_here(run, attempt=2) == 0
    assert not staging.exists()


def test_where_all_are_damaged_the_run_starts_over_only_once_they_are_set_aside(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = finished(tmp_path / "run")
    whole = final_bytes(run)
    for folder in checkpoints.folders(run.checkpoints):
        flip(folder / checkpoints.MODEL)
    assert train_here(run, attempt=2) == 1
    assert "is damaged. Restore one from a backup, or start over with trainjob resume --from" in capfd.readouterr().err
    checkpoints.set_aside(run.checkpoints)
    assert train_here(run, attempt=2) == 0
    assert final_bytes(run) == whole
    assert lines(run, "train")[-1]["attempt"] == 2


def test_a_full_disk_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write = safetensors.save_durably

    def full(path: Path, tensors: Any, metadata: Any) -> Any:
        if "00000040" in str(path):
            path.write_bytes(b"as much as there was room for")
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, tensors, metadata)

    monkeypatch.setattr(safetensors, "save_durably", full)
    run = finished(tmp_path / "run")
    message = capfd.readouterr().out
    assert "WARNING: the checkpoint of update 40 was NOT written: [Errno 28] No space left on device" in message
    assert updates(run) == [60, 20]
    assert not list(run.checkpoints.glob(".*"))


def test_a_last_checkpoint_that_cannot_be_written_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, tensors: Any, metadata: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(safetensors, "save_durably", full)
    run = make_run(tmp_path / "run", updates=10)
    run.stop.touch()
    assert train_here(run) == exits.USER_OR_CLUSTER_CAN_FIX
    assert "the checkpoint of update 2 could not be written: free some space" in capfd.readouterr().err
    assert not run.requeue.exists()


def test_writing_goes_on_behind_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writers = set()
    write = safetensors.save_durably

    def noted(path: Path, tensors: Any, metadata: Any) -> Any:
        writers.add(threading.current_thread())
        return write(path, tensors, metadata)

    monkeypatch.setattr(safetensors, "save_durably", noted)
    finished(tmp_path / "run")
    assert writers
    assert threading.main_thread() not in writers


def test_an_old_checkpoint_that_can_not_be_removed_keeps_no_new_one_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run")
    writer = checkpoint.CheckpointWriter(run, 1, lambda: None, print)
    remove = checkpoint.remove

    def refuse(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for update, act in ((1, remove), (2, refuse), (3, remove)):
        monkeypatch.setattr(checkpoint, "remove", act)
        writer.save(update, State({"weight": torch.zeros(3)}, {}, {}), {"update": update})
        assert writer.finish()
        assert updates(run) == {1: [1], 2: [2, 1], 3: [3]}[update]
    writer.close()


def test_what_is_saved_does_not_change_while_it_is_written(tmp_path: Path) -> None:
    state = State({"weight": torch.zeros(3)}, {}, {})
    run = make_run(tmp_path / "run")
    go_on = threading.Event()
    writer = checkpoint.CheckpointWriter(run, 3, lambda: wait_for(go_on), print)
    writer.save(5, state, {"update": 5})
    state.model["weight"] += 1
    go_on.set()
    assert writer.finish()
    writer.close()
    assert tensors(run)["weight"].tolist() == [0, 0, 0]


def test_a_newer_attempt_that_begins_while_one_is_written_keeps_it_from_appearing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", updates=30, checkpoint_every=20)
    write = safetensors.save_durably

    def fenced(path: Path, tensors: Any, metadata: Any) -> Any:
        run.attempt.write_text("2\n")
        return write(path, tensors, metadata)

    monkeypatch.setattr(safetensors, "save_durably", fenced)
    assert train_here(run, attempt=1) == exits.STALE_ATTEMPT
    assert updates(run) == []
    assert not run.progress.exists() or json.loads(run.progress.read_text())["attempt"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"task_options": {"width": 8}},
            "belongs to another model: 0.bias is (24,) in the file and (8,) in the model, 0.weight",
        ),
        ({"seed": 1}, "was made with seed 0 and this job has 1"),
        ({"micro_batch": 8}, "was made with global batch 4 and this job has 8"),
        ({"remainder": "pad"}, "was made with remainder drop and this job has pad"),
        ({"task": "ffnet-toy", "task_options": {}}, "was made with task digits-cnn and this job has ffnet-toy"),
    ],
)
def test_a_checkpoint_of_another_job_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    run = finished(tmp_path / "run")
    write_job(run, **{"updates": 90, **changes})
    assert train_here(run, attempt=2) == exits.USER_OR_CLUSTER_CAN_FIX
    assert message in capfd.readouterr().err
    assert updates(run) == [60, 40, 20]


def test_a_checkpoint_of_a_newer_contract_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = finished(tmp_path / "run")
    index = run.checkpoint(60) / checkpoints.INDEX
    index.write_text(json.dumps({**json.loads(index.read_text()), "contract": 99}))
    with pytest.raises(NewerContractError, match="speaks contract 99 and this trainjob speaks 1"):
        checkpoints.newest_sound(run.checkpoints, print)
    assert train_here(run, attempt=2) == exits.USER_OR_CLUSTER_CAN_FIX
    assert "speaks contract 99" in capfd.readouterr().err


def test_another_optimizer_starts_afresh_and_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = finished(tmp_path / "run")
    write_job(run, updates=90, optimizer="adamw", learning_rate=0.001)
    assert train_here(run, attempt=2) == 0
    assert (
        "holds the state of optimizer sgd and this job uses adamw: the optimizer restarts from zero"
        in capfd.readouterr().out
    )


def test_the_index_says_what_it_was_made_with(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", instances=1, seed=3)
    facts = checkpoints.newest_sound(run.checkpoints, print).facts
    assert {
        name: facts[name] for name in ("update", "epoch", "update_in_epoch", "global_batch", "seed", "instances")
    } == {
        "update": 60,
        "epoch": 0,
        "update_in_epoch": 60,
        "global_batch": 4,
        "seed": 3,
        "instances": 1,
    }
