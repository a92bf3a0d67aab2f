"""The margin before the time limit of a resumed run: as long as its own checkpoints need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.render_cases import explained_script, request, script
from trainjob.contract.paths import RunPaths
from trainjob.kinds.lookup import find
from trainjob.kinds.table import cluster_of
from trainjob.records import job as jobs
from trainjob.render.record import job_record
from trainjob.render.request import Request
from trainjob.requests.resumption import follow_checkpoints

SLURM = find("slurm-gpu").cluster
TOOK = "a checkpoint of this run took up to 70 s until it was on disk"
SLOW = f"{TOOK}, and the stop signal comes only 120 s before the time "


def ended(paths: RunPaths, asked: Request, *durable_s: float) -> RunPaths:
    """Make a run whose checkpoints took so long."""
    paths.folder.mkdir(exist_ok=True)
    paths.job.write_text(job_record(asked).to_json())
    line = {"kind": "checkpoint", "attempt": 1, "epoch": 1, "update": 9, "stood_still_s": 0.1}
    paths.metrics.write_text("".join(json.dumps({**line, "durable_s": one}) + "\n" for one in durable_s))
    return paths


def of_slurm(**changes: Any) -> Request:
    values = {**SLURM.as_values(stated_only=True), **changes}
    return request(cluster_of(values), task="digits-cnn", time_limit="00:10:00", instances=2)


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path / "run")


def test_a_margin_that_is_too_short_for_a_checkpoint_becomes_longer_and_the_page_says_why(run: RunPaths) -> None:
    output: list[str] = []
    asked = of_slurm()
    assert follow_checkpoints(ended(run, asked, 2.0, 59.9), None, output.append) is None
    longer = follow_checkpoints(ended(run, asked, 70.4, 2.0), None, output.append)
    assert longer is not None
    assert output == [f"{SLOW}limit: from now on 201 s, also in its job script"]
    # Nothing else of the page changes, and job.json follows.
    assert script(longer) == script(asked).replace("USR1@120", "USR1@201") != script(asked)
    assert "measured: a checkpoint of this run took up to 70 s" in explained_script(longer)
    record = jobs.parse(job_record(longer).to_json())
    assert record.train is not None
    assert record.train.limit_margin_s == 201
    # Once it was measured, it is not the user's, and follows further.
    assert follow_checkpoints(ended(run, longer, 70.4), None, output.append) is None
    longest = follow_checkpoints(ended(run, longer, 70.4, 200.0), None, output.append)
    assert longest is not None
    assert "USR1@460" in script(longest)


def test_with_another_number_of_instances_both_change(run: RunPaths) -> None:
    other = of_slurm(directives={"nice": 7})
    longer = follow_checkpoints(ended(run, of_slurm(), 70.4), other, lambda _line: None)
    assert longer is not None
    assert script(longer) == script(other).replace("USR1@120", "USR1@201")


def test_a_margin_that_the_user_has_stated_stays(run: RunPaths) -> None:
    output: list[str] = []
    asked = of_slurm(time_limit_signal={"margin_s": 120})
    assert follow_checkpoints(ended(run, asked, 70.4), None, output.append) is None
    reported = "as its cluster file says. Submit it again with time_limit_signal.margin_s: 201 there"
    assert output == [f"{SLOW}limit, {reported}"]


def test_a_time_limit_without_room_for_it_is_named(run: RunPaths) -> None:
    output: list[str] = []
    assert follow_checkpoints(ended(run, of_slurm(), 300.0), None, output.append) is None
    (line,) = output
    assert "It stays so, because 660 s do not fit: a job trains before it is asked to checkpoint" in line
    assert "time_limit is 00:10:00 = 600 s, and time_limit_signal.margin_s is 660" in line


def test_other_runs_keep_what_they_have(run: RunPaths) -> None:
    unlimited = SLURM.changed(time_limit=None)
    for asked in (request(task="digits-cnn"), request(unlimited, task="digits-cnn"), request(SLURM, command=["true"])):
        assert follow_checkpoints(ended(run, asked, 70.4), None, pytest.fail) is None
