"""What the ranks of a run use, summed up."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.support.records import record
from trainjob.contract.paths import RunPaths
from trainjob.observe.ranks import RankUsage, usage_of
from trainjob.records import typed, usage
from trainjob.records.usage import DeviceUse, UsageRecord


def used(folder: Path, *ranks: list[UsageRecord]) -> list[RankUsage]:
    """Return what the ranks of a run use whose launchers have taken these samples."""
    paths = RunPaths(folder)
    paths.logs.mkdir()
    paths.job.write_text(record(len(ranks)).to_json())
    for rank, samples in enumerate(ranks):
        for one in samples:
            usage.append(paths, replace(one, rank=rank))
    return usage_of(paths)


def sample(time: float, cpu_cores: float | None = None, attempt: int = 1, **more: object) -> UsageRecord:
    fields = {"attempt": attempt, "rank": 3, "host": "n1", "pid": 7, "time": time, "cpus": 8, "memory_bytes": 1000}
    return typed.from_json(UsageRecord, {**fields, "cpu_cores": cpu_cores, **more})


def test_means_are_over_time_and_of_the_newest_attempt(tmp_path: Path) -> None:
    device = asdict(DeviceUse("GPU 0", 0.5, 300, 400, 100.0))
    samples = [
        sample(0, 9.0, memory_bytes=9999, openmp={"OMP_NUM_THREADS": "1"}),
        sample(100, attempt=2, openmp={"OMP_NUM_THREADS": "2"}),
        sample(101, 4.0, attempt=2, memory_bytes=5000, devices=[device]),
        sample(104, 0.0, attempt=2, devices=[{**device, "use": 1.0, "memory_bytes": 350}]),
    ]
    (one,) = used(tmp_path, samples)
    assert (one.attempt, one.samples, one.seconds) == (2, 3, 4.0)
    assert (one.cpu_cores, one.most_cpu_cores) == (1.0, 4.0)
    assert one.openmp == {"OMP_NUM_THREADS": "2"}
    assert (one.memory_bytes, one.most_memory_bytes) == (1000, 5000)
    assert (one.devices, one.device_use, one.most_device_memory_bytes) == (["GPU 0"], 0.75, 350)


@pytest.mark.parametrize(("cores", "marked"), [((2.0, 2.0, 0.9), [2]), ((2.0, 1.9, 1.1), []), ((2.0, 0.1), [])])
def test_a_rank_that_uses_much_less_than_is_usual_is_marked(
    tmp_path: Path, cores: tuple[float, ...], marked: list[int]
) -> None:
    ranks = used(tmp_path, *([sample(0), sample(1, each)] for each in cores))
    assert [one.rank for one in ranks if one.uses_much_less] == marked


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    paths.logs.mkdir()
    good = json.dumps(typed.to_json(sample(5.0)))
    paths.rank_usage(3).write_text(f'{good}\n{{"attempt": "one"}}\n[]\n{good}\n{good[:20]}')
    assert [one.time for one in usage.lines(paths, 3).new()] == [5.0, 5.0]
