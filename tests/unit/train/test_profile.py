"""--profile: which updates and ranks, what a trace adds up to, and what stands in the run directory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.runs_at_work import settings
from trainjob.contract import forms
from trainjob.contract.paths import RunPaths
from trainjob.records import profile
from trainjob.train.recording.profile import length, profiler

CPU = torch.device("cpu")


def test_only_the_updates_of_the_range_are_recorded_and_a_resumed_run_begins_later(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    job = settings(profile="3:5", profile_ranks="0,2")
    assert profiler(paths, job, 1, 1, CPU) is None
    assert profiler(paths, settings(), 0, 1, CPU) is None
    recorder = profiler(paths, job, 2, 4, CPU)
    for update in range(4, 8):
        recorder.before(update)
        torch.ones(200, 200) @ torch.ones(200, 200)
        recorder.after(update)
    (found,) = profile.recorded(paths)
    assert (found.rank, found.attempt, found.first, found.last, found.device) == (2, 4, 4, 5, "cpu")
    assert {"aten::mm": 2}.items() <= {one.name: one.calls for one in found.operators}.items()
    assert 0 < sum(one.seconds for one in found.operators) <= found.seconds
    assert (found.communication_s, found.exposed_s) == (None, None)
    assert profile.trace_of(paths, 2).stat().st_size > 0


def test_a_run_that_ends_within_the_range_leaves_what_it_recorded(tmp_path: Path) -> None:
    recorder = profiler(RunPaths(tmp_path), settings(profile="1:9"), 0, 1, CPU)
    recorder.before(1)
    recorder.after(1)
    recorder.close()
    (found,) = profile.recorded(RunPaths(tmp_path))
    assert (found.first, found.last) == (1, 1)


def test_time_that_spans_cover_together_counts_once() -> None:
    assert length([(0, 4), (1, 2), (3, 6), (8, 9)]) == 7
    assert length([]) == 0


@pytest.mark.parametrize("text", ["20", "0:3", "5:4", "a:b", "1:2000", "1:2:3"])
def test_a_range_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(read|names) "):
        forms.parse_updates(text)


@pytest.mark.parametrize("text", ["", "1,", "x", "-1"])
def test_ranks_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match='read "'):
        forms.parse_ranks(text)


def test_a_damaged_summary_is_left_out(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    profile.trace_of(paths, 0).parent.mkdir()
    (profile.trace_of(paths, 0).parent / "rank-0000.json").write_text("{")
    assert profile.recorded(paths) == []
