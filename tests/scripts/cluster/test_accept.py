"""`trainjob cluster accept` before it submits: its steps, their cost, and the budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainjob.accept import acceptance
from trainjob.contract.errors import UserError
from trainjob.kinds.lookup import find
from trainjob.requests import budget


def test_beyond_the_budget_nothing_is_submitted(tmp_path: Path) -> None:
    steps = acceptance.plan_steps(find("slurm-gpu"), tmp_path, 4, "/tmp", skip=["site"])
    outcomes = list(acceptance.outcomes(steps, 0.05, lambda _line: None))
    assert [one.step for one in outcomes if one.state != acceptance.NOT_RUN] == ["site"]
    assert outcomes[1].note == "rank may cost 0.08 device-hours, and 0.05 of the budget are left"
    assert outcomes[-1].step == "4-hosts"


def test_a_rung_costs_its_devices_for_its_time_limit_at_most(tmp_path: Path) -> None:
    steps = {one.name: one for one in acceptance.plan_steps(find("slurm-gpu"), tmp_path, None, "/tmp", skip=[])}
    assert steps["two-hosts"].device_hours == 8 * 5 / 60
    assert steps["two-hosts"].spent(seconds=60) == 8 / 60
    assert steps["two-hosts"].spent(seconds=3600) == 8 * 5 / 60
    assert steps["site"].device_hours == 0


def test_a_rung_that_is_not_there_can_not_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--skip gpu: no step has that name"):
        acceptance.plan_steps(find("slurm-gpu"), tmp_path, None, "/tmp", skip=["gpu"])


def test_a_rung_is_charged_for_the_starts_that_it_needs(tmp_path: Path) -> None:
    steps = {one.name: one for one in acceptance.plan_steps(find("slurm-gpu"), tmp_path, 4, "/tmp", skip=[])}
    starts = {name: {budget.charged(job.prepared).starts for job in one.jobs} for name, one in steps.items()}
    assert {name for name, each in starts.items() if each == {2}} == {"time-limit", "preemption"}
    assert {name for name, each in starts.items() if each == {1}} == {*steps} - {"time-limit", "preemption"}
    assert steps["preemption"].device_hours == 2 * 5 / 60
