"""Checkpoints that several instances write, each its part: complete or absent, and read by rows."""

from __future__ import annotations

import errno
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.runs_at_work import lines, make_run, train_here
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle.export import export
from trainjob.records import checkpoints
from trainjob.records.files import DamagedError
from trainjob.records.safetensors import BrokenFileError
from trainjob.train.recording import checkpoint, safetensors
from trainjob.train.recording.checkpoint import CheckpointWriter, ShardGroup, TensorPart
from trainjob.train.recording.state import State

WEIGHT = torch.arange(15.0).reshape(5, 3)
FACTS = {"contract": 1, "update": 5, "attempt": 1}


class Meeting:
    """What two threads gather from each other, in the order of their ranks."""

    def __init__(self) -> None:
        self._given: list[Any] = [None, None]
        self._barrier = threading.Barrier(2, timeout=30)

    def gather(self, rank: int, value: Any) -> list[Any]:
        self._given[rank] = value
        self._barrier.wait()
        given = list(self._given)
        self._barrier.wait()
        return given


def parts() -> list[State]:
    """Return the states of two instances: rows 0 to 2 and 3 to 4 of the weight, and a counter that the first has."""
    first: Any = {"weight": TensorPart(WEIGHT[:3], 0, 5), "count": torch.tensor(7)}
    second: Any = {"weight": TensorPart(WEIGHT[3:], 3, 5)}
    return [State(first, {}, {}), State(second, {}, {})]


def written(run: RunPaths, monkeypatch: pytest.MonkeyPatch, warnings: list[str]) -> bool:
    """Have two writers write one checkpoint; return what the one that leads said of it."""
    monkeypatch.setattr(checkpoint.Copies, "of", lambda _self, state, _has_whole=True: state)
    meeting = Meeting()

    def write(rank: int) -> bool:
        group = ShardGroup(rank, rank, 2, lambda value: meeting.gather(rank, value))
        writer = CheckpointWriter(run, 3, lambda: None, warnings.append, group=group)
        writer.save(5, parts()[rank], FACTS)
        durable = writer.finish()
        writer.close()
        return durable

    run.checkpoints.mkdir()
    with ThreadPoolExecutor(2) as pool:
        return next(iter(pool.map(write, range(2))))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    run = make_run(tmp_path / "run")
    assert written(run, monkeypatch, [])
    return run.checkpoint(5)


def test_parts_are_one_checkpoint(folder: Path) -> None:
    checkpoints.check(folder)
    tensors = safetensors.stored(checkpoints.read(folder).model)
    assert tensors["weight"].shape == WEIGHT.shape
    assert torch.equal(tensors["weight"][...], WEIGHT)
    assert tensors["count"][...] == 7
    for start, end in [(0, 5), (2, 4), (3, 5), (1, 2), (5, 5)]:
        assert torch.equal(tensors["weight"][start:end], WEIGHT[start:end])


def test_an_export_is_the_file_that_one_instance_writes(folder: Path, tmp_path: Path) -> None:
    metadata = {"update": "5"}
    safetensors.save(tmp_path / "one", {"weight": WEIGHT, "count": torch.tensor(7)}, metadata)
    export(RunPaths(folder.parent.parent), tmp_path / "joined", print)
    assert (tmp_path / "joined").read_bytes() == (tmp_path / "one").read_bytes()


def test_a_damaged_or_missing_part_is_seen(folder: Path) -> None:
    second = folder / "model-00002-of-00002.safetensors"
    content = bytearray(second.read_bytes())
    content[-1] ^= 1
    second.write_bytes(content)
    with pytest.raises(DamagedError, match=r"model-00002-of-00002\.safetensors has sha256 "):
        checkpoints.check(folder)
    second.unlink()
    with pytest.raises(DamagedError, match=r"^model-00002-of-00002\.safetensors is missing$"):
        checkpoints.check(folder)
    with pytest.raises(BrokenFileError, match="weight has 5 rows, and 3 of them are in its files"):
        safetensors.stored(checkpoints.read(folder).model[:1])
    index = json.loads((folder / checkpoints.INDEX).read_text())
    (folder / checkpoints.INDEX).write_text(json.dumps({**index, "parts": 0}))
    with pytest.raises(DamagedError, match=r"^index\.json is missing or broken: parts is 0$"):
        checkpoints.check(folder)


def test_a_disk_that_refuses_one_part_leaves_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = safetensors.save_durably

    def full(path: Path, tensors: Any, metadata: Any) -> Any:
        if "00002-of" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, tensors, metadata)

    monkeypatch.setattr(safetensors, "save_durably", full)
    run, warnings = make_run(tmp_path / "run"), list[str]()
    assert not written(run, monkeypatch, warnings)
    assert "update 5 was NOT written: rank 1: [Errno 28] No space left on device" in warnings[0]
    assert [path.name for path in run.checkpoints.iterdir()] == []


def test_what_a_checkpoint_took_is_recorded(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=4, checkpoint_every=2)
    assert train_here(run) == 0
    found = lines(run, "checkpoint")
    assert [line["update"] for line in found] == [2, 4]
    assert all(0 <= line["stood_still_s"] <= line["durable_s"] for line in found)
