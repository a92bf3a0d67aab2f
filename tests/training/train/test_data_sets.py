"""Every kind of prepared data set: a run that another number of instances continues ends as an uninterrupted one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("PIL", reason="pip install Pillow")

from tests.support.pictures import encoded, image_folder, web_dataset
from tests.support.runs_at_work import log, make_run, tensors, train, train_here, write_job
from trainjob.data import staging
from trainjob.data.prepare import prepare
from trainjob.data.staging import stage

PICTURES = """
from torch import nn
from trainjob.train.samples.crops import ResizedCrop
from trainjob.train.tasks.images import image_data

class Task:
    def build_model(self):
        return nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3))

    def open_data(self, place):
        return image_data(place.data_set((3, None, None), 3), ResizedCrop(12))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)
"""
# Of 12 samples, so that an epoch has two updates of 6.
JOB: dict[str, Any] = {
    "data": "mine",
    "samples": None,
    "micro_batch": 1,
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "schedule": "constant",
    "precision": "64.64",
}
OF_IMAGES = {"task": "mine:Task", "entry": "mine:Task"}
OF_TOKENS = {"task": "tiny-gpt", "task_options": {"width": 8, "layers": 1, "heads": 1, "context": 8}}


def parquet(root: Path) -> Path:
    arrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    root.mkdir(parents=True)
    rows = [{"image": {"bytes": encoded(number), "path": None}, "label": number % 3} for number in range(12)]
    writer.write_table(arrow.Table.from_pylist(rows), str(root / "train-0.parquet"), row_group_size=5)
    return root


def tokens(root: Path) -> Path:
    root.mkdir(parents=True)
    np.random.default_rng(0).integers(0, 256, 12 * 8 + 1).astype(np.uint16).tofile(root / "train.bin")
    return root


def job(kind: str, instances: int, updates: int, stage: Path | None) -> dict[str, Any]:
    task = OF_TOKENS if kind == "tokens" else OF_IMAGES
    counts = {"instances": instances, "replicas": instances, "accumulation": 6 // instances, "updates": updates}
    return {**JOB, **task, **counts, "stage": None if stage is None else str(stage)}


def copied(data_dir: Path, disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stage the data set, as an earlier run of this host does; return the disk."""
    disk.mkdir()
    monkeypatch.setattr(staging, "sync_disk", lambda folder: None)  # it waits for what others have written there
    stage("mine", data_dir, disk, print).release()
    return disk


@pytest.mark.parametrize(
    ("kind", "source", "store", "is_staged"),
    [
        # Read as the digits are, with which most tests train.
        pytest.param("imagefolder", image_folder, "resized", False, marks=pytest.mark.full),
        ("imagefolder", image_folder, "packed", False),
        ("imagefolder", image_folder, "index", False),
        ("webdataset", web_dataset, "index", True),
        # Packed, it is as the images above: tests/unit/data has what differs.
        pytest.param("parquet", parquet, "packed", False, marks=pytest.mark.full),
        ("tokens", tokens, None, False),
    ],
)
def test_two_instances_continued_by_three_in_mid_epoch_end_as_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    source: Callable[[Path], Path],
    store: str | None,
    is_staged: bool,
) -> None:
    there = source(tmp_path / "there")
    options: dict[str, Any] = {"store": store, "shape": None if store is None else (3, 16, 16)}
    data_dir = prepare("mine", tmp_path / "data", kind=kind, source=str(there), **options).parent
    files = {"mine.py": PICTURES}
    alone = make_run(tmp_path / "alone", files, **job(kind, 1, 6, None))
    assert train_here(alone, TRAINJOB_DATA_DIR=data_dir) == 0
    disk = copied(data_dir, tmp_path / "disk", monkeypatch) if is_staged else None
    if is_staged or store in ("resized", "packed"):
        shutil.rmtree(there)
    run = make_run(tmp_path / "run", files, **job(kind, 2, 3, disk))
    assert train(run, 2, TRAINJOB_DATA_DIR=data_dir) == [0, 0], log(run)
    write_job(run, **job(kind, 3, 6, disk))
    assert train(run, 3, attempt=2, TRAINJOB_DATA_DIR=data_dir) == [0, 0, 0], log(run)
    assert "from the checkpoint of update 3 to update 6" in log(run)
    expected = tensors(alone)
    for name, weight in tensors(run).items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-9, atol=1e-12)
