"""What is read back of a trace: resumed attempts, torn lines, types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.crafted_traces import Crafted
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.train.recording import safetensors
from trainjob.verify import traces


def test_of_an_update_made_again_the_last_attempt_counts(tmp_path: Path) -> None:
    run = Crafted(tmp_path).update(1).update(2, gradients="xy").update(2, attempt=2)
    assert run.read().update(1).gradient_digests == ("g", "g")
    assert run.read().update(2).gradient_digests == ("g", "g")


def test_ranks_of_an_older_attempt_with_more_instances_do_not_count(tmp_path: Path) -> None:
    run = Crafted(tmp_path).update(1).update(1, attempt=2, samples=[{"0": ["e", "f"]}])
    assert run.read().samples(1) == (("e", "f"),)


def test_a_line_torn_by_a_kill_is_passed_over(tmp_path: Path) -> None:
    run = Crafted(tmp_path).update(1)
    run.line(0, '{"attempt":1,"update":2,"sam')
    assert run.update(2).read().samples(2) == (("a", "b"), ("c", "d"))


def test_micro_batches_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    samples = [{"10": ["j"], "9": ["i"]}, {"2": ["c"]}]
    assert Crafted(tmp_path).update(1, samples=samples).read().samples(1) == (("c",), ("i",), ("j",))


@pytest.mark.parametrize("dtype", [torch.int16, torch.bool, torch.float32, torch.uint8, torch.int64])
def test_buffers_of_every_type_are_read(tmp_path: Path, dtype: Any) -> None:
    run = Crafted(tmp_path).update(1)
    safetensors.save(run.files.update(1), {"buffer/b": torch.ones(2, 3, dtype=dtype), "buffer/s": torch.tensor(2.0)})
    buffers = run.read().update(1).buffers
    assert buffers["b"].tolist() == [[1.0] * 3] * 2
    assert float(buffers["s"]) == 2.0


def test_a_run_without_a_trace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="left no trace"):
        traces.read(RunPaths(tmp_path))
