"""What counts as a sign of life of a rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainjob.contract.paths import RunPaths
from trainjob.launch.witness import watching
from trainjob.records.usage import DeviceUse, UsageRecord


def sample(cpu_cores: float | None, *use: float) -> UsageRecord:
    devices = [DeviceUse("GPU 0", one) for one in use]
    return UsageRecord(1, 0, "n1", 7, 0.0, 8, 1000, cpu_cores, devices=devices)


def test_output_cpu_time_and_work_of_the_device_are_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, clock = RunPaths(tmp_path), [0.0]
    paths.logs.mkdir()
    log = paths.rank_log(0)
    log.write_text("header\n")
    monkeypatch.setattr("trainjob.contract.clock.monotonic", lambda: clock[0])
    life = watching._Life(paths, 0)

    def idle_s_after(seconds: float, one: UsageRecord) -> float:
        clock[0] += seconds
        return life.idle_s(one)

    assert idle_s_after(1, sample(None)) == 0
    assert idle_s_after(10, sample(0.001)) == 10
    assert idle_s_after(10, sample(0.001, 0.0)) == 20
    assert idle_s_after(10, sample(0.02)) == 0
    assert idle_s_after(10, sample(0.0, 0.0, 0.4)) == 0
    log.write_text("header\nmore\n")
    assert idle_s_after(10, sample(0.0)) == 0
    life.is_reported = True
    log.write_text("header\nmore\nthe report\n")
    assert idle_s_after(10, sample(0.0)) == 10
    assert idle_s_after(10, sample(1.0)) == 0
    assert not life.is_reported
