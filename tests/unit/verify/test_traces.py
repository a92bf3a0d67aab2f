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
from trainjob.verify.tasks import traces


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


@pytest.mark.parametrize(("update", "same"), [(1, False), (2, True), (3, False)])
def test_a_rank_that_was_killed_may_lack_the_last_update_of_its_attempt(
    tmp_path: Path, update: int, same: bool
) -> None:
    """Update 2 was saved by rank 0, and the second attempt continued after it."""
    whole = Crafted(tmp_path / "whole").update(1).update(2).update(3).update(4).read()
    broken = Crafted(tmp_path / "broken")
    for number in (1, 2, 3, 4):
        samples = [{"0": ["a", "b"]}, {"1": ["c", "d"]}][: 1 if number == update else 2]
        broken.update(number, attempt=1 if number < 3 else 2, samples=samples)
    assert broken.read().has_samples_of(whole) is same


@pytest.mark.parametrize("samples", [[{"0": ["a", "x"]}], [{"0": ["a", "b"]}, {"1": ["a", "b"]}]])
def test_other_samples_are_never_those_of_a_killed_rank(tmp_path: Path, samples: list[dict[str, list[str]]]) -> None:
    whole = Crafted(tmp_path / "whole").update(1).read()
    assert not Crafted(tmp_path / "broken").update(1, samples=samples).read().has_samples_of(whole)


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
