"""First weights from a file: names and shapes are compared, and what was trained since goes before them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests.support.runs_at_work import make_run, tensors, train, train_here
from trainjob.records import checkpoints


def trained(folder: Path, **changes: Any) -> Any:
    run = make_run(folder, updates=3, **changes)
    assert train_here(run) == 0
    return run


def test_two_instances_begin_with_the_same_weights(tmp_path: Path) -> None:
    first = trained(tmp_path / "first")
    file = checkpoints.folders(first.checkpoints)[0] / checkpoints.MODEL
    second = make_run(tmp_path / "second", updates=2, instances=2, init_from=str(file), learning_rate=1e-300)
    assert train(second, 2) == [0, 0]
    for name, weight in tensors(second).items():
        assert torch.equal(weight, tensors(first)[name]), name
