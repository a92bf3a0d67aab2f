"""The parts of a start-up add up to the time from the submission to the first update."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.records import record
from tests.support.run_folders import submission
from trainjob.contract.paths import RunPaths
from trainjob.observe.report import page, rows
from trainjob.observe.report.report import report
from trainjob.observe.report.series import Series
from trainjob.observe.report.startup import StartupFigures, startups
from trainjob.records import submission as submissions
from trainjob.records.events import Event
from trainjob.records.metrics import MetricsLine
from trainjob.records.submission import Submission

SUBMITTED = 1_700_000_000
TASK = {
    "launcher": 1.0,
    "imports": 3.0,
    "rendezvous": 0.5,
    "data": 2.0,
    "model": 4.0,
    "compile": 6.0,
    "first update": 0.5,
}
FIRST = Submission(**submission(None, "2023-11-14T22:13:20+00:00"))


def line(attempt: int, at: float, seconds: dict[str, float]) -> MetricsLine:
    return MetricsLine("startup", attempt, 1, 1, phases=seconds, time=SUBMITTED + at)


def event(at: float, attempt: int, what: str, detail: str = "") -> Event:
    return Event(SUBMITTED + at, attempt, what, detail)


def summed(made: list[StartupFigures]) -> list[float]:
    return [sum(one.parts.values()) for one in made]


def test_the_parts_of_a_task_in_a_container_begin_with_the_queue() -> None:
    noted = [event(60, 1, "began"), event(65, 1, "launch")]
    made = startups(noted, [line(1, 100, TASK)], FIRST, has_image=True)
    assert made[0].parts == {
        "queue": 60.0,
        "environment": 6.0,  # five seconds of prologue, one of the launcher
        "image": 18.0,
        **{name: seconds for name, seconds in TASK.items() if name != "launcher"},
    }
    assert list(made[0].parts) == ["queue", "environment", "image", *list(TASK)[1:]]
    assert summed(made) == [made[0].whole_s] == [100.0]


def test_compiling_before_the_ranks_is_compiling() -> None:
    noted = [event(0, 1, "began"), event(1, 1, "launch"), event(401, 1, "compiled")]
    made = startups(noted, [line(1, 420, TASK)], FIRST, has_image=False)
    assert (made[0].parts["compile"], made[0].parts["environment"]) == (406.0, 4.0)
    assert summed(made) == [420.0]


def test_a_requeued_attempt_has_waited_since_the_one_before_ended() -> None:
    noted = [event(10, 1, "began"), event(50, 1, "ended", "REQUEUED 0"), event(80, 2, "began"), event(81, 2, "launch")]
    made = startups(noted, [line(1, 30, TASK), line(2, 120, TASK)], FIRST, has_image=False)
    assert [(one.attempt, one.parts["queue"], one.whole_s) for one in made] == [(1, 10.0, 30.0), (2, 30.0, 70.0)]
    assert summed(made) == [30.0, 70.0]


def test_a_resumed_attempt_has_waited_since_it_was_asked_for() -> None:
    noted = [event(10, 1, "began"), event(50, 1, "ended", "FAILED 1"), event(80, 2, "began"), event(81, 2, "launch")]
    at = datetime.fromtimestamp(datetime.fromisoformat(FIRST.submitted_at).timestamp() + 75, UTC).isoformat()
    made = startups(noted, [line(2, 120, TASK)], FIRST.replace(attempt=2, resumed_at=at), has_image=False)
    assert [(one.attempt, one.parts["queue"], one.whole_s) for one in made] == [(2, 5.0, 45.0)]


def test_of_a_command_what_it_does_itself_is_one_part() -> None:
    made = startups([event(2, 1, "began")], [line(1, 30, {"launcher": 1.0, "script": 26.0})], FIRST, has_image=False)
    assert made[0].parts == {"queue": 2.0, "environment": 2.0, "script until its first update": 26.0}


def test_clocks_that_differ_give_no_negative_part() -> None:
    made = startups([event(10, 1, "began"), event(13, 1, "launch")], [line(1, 29, TASK)], FIRST, has_image=True)
    assert "image" not in made[0].parts
    assert min(made[0].parts.values()) >= 0


def test_it_stands_in_the_report_its_json_and_the_page(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    paths.job.write_text(record(2).to_json())
    paths.submission.write_text(json.dumps(submission(None, "2023-11-14T22:13:20+00:00")))
    paths.events.write_text(f"{SUBMITTED + 60}\t1\tbegan\t\n{SUBMITTED + 65}\t1\tlaunch\t\n")
    figures: dict[str, Any] = {"time": SUBMITTED + 100, "seconds": TASK}
    lines = [{"kind": "begin", "time": SUBMITTED + 95}, {"kind": "startup", **figures}]
    paths.metrics.write_text(
        "".join(json.dumps({"attempt": 1, "epoch": 1, "update": 0, **one}) + "\n" for one in lines)
    )
    curves = Series()
    made = report(paths, submissions.read(paths), curves)
    shown = dict(rows.figures(made))["start-up"]
    assert shown.startswith("1 min 40 s: queue 1 min 0 s · environment 24.0 s · imports 3.00 s")
    assert made.as_json()["startups"][0]["parts"]["compile"] == 6.0
    html = page.of_run(page.described(paths, made, curves, None))
    assert "<th>rendezvous</th>" in html
    assert "<td>100.00</td>" in html


@pytest.mark.parametrize("broken", [{"time": None}, {"time": -1.0}, {"seconds": 3}])
def test_damage_is_no_start_up(tmp_path: Path, broken: dict[str, Any]) -> None:
    paths = RunPaths(tmp_path)
    paths.job.write_text(record(2).to_json())
    paths.events.write_text(f"{SUBMITTED}\t1\tbegan\t\n")
    figures = {"time": SUBMITTED + 100, "seconds": TASK, **broken}
    paths.metrics.write_text(json.dumps({"kind": "startup", "attempt": 1, "update": 1, **figures}) + "\n")
    assert (report(paths, submissions.read(paths)).startups, report(paths, submissions.read(paths)).damaged_lines) == (
        [],
        1,
    )
