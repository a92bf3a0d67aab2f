"""Goodput: every second of every attempt is accounted for, once."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.support.records import record
from tests.support.run_folders import submission
from trainjob.contract.paths import RunPaths
from trainjob.observe.report import page, rows
from trainjob.observe.report.goodput import Goodput
from trainjob.observe.report.report import report
from trainjob.observe.report.series import Series
from trainjob.records import submission as submissions

SUBMITTED = 1_700_000_000  # 2023-11-14 22:13:20 UTC


class Folder:
    """A run directory whose files a job script and rank 0 have written. Times are seconds after the submission."""

    def __init__(self, folder: Path) -> None:
        self.paths = RunPaths(folder)
        self.paths.job.write_text(record(2).to_json())
        self.paths.submission.write_text(json.dumps(submission(None, "2023-11-14T22:13:20+00:00")))

    def event(self, at: float, attempt: int, what: str, detail: str = "") -> None:
        with self.paths.events.open("a") as stream:
            stream.write(f"{SUBMITTED + at}\t{attempt}\t{what}\t{detail}\n")

    def line(self, kind: str, attempt: int, update: int, **more: Any) -> None:
        with self.paths.metrics.open("a") as stream:
            stream.write(json.dumps({"kind": kind, "attempt": attempt, "epoch": 1, "update": update, **more}) + "\n")

    def begin(self, at: float, attempt: int, update: int) -> None:
        self.line("begin", attempt, update, time=SUBMITTED + at)

    def train(self, attempt: int, update: int, compute_s: float, checkpoint_s: float = 0.0) -> None:
        seconds = {"data": 0.0, "compute": compute_s, "communication": 0.0, "checkpoint": checkpoint_s}
        self.line("train", attempt, update, samples_per_s=8.0, loss=1.0, seconds=seconds)

    def checkpoint(self, update: int) -> None:
        self.paths.checkpoint(update).mkdir(parents=True)

    def goodput(self, state: str | None = None) -> Goodput:
        if state is not None:
            self.paths.state.write_text(state)
        goodput = report(self.paths, submissions.read(self.paths)).goodput
        assert goodput is not None
        assert sum(seconds for _, seconds in goodput.parts) == pytest.approx(goodput.allocated_s)
        return goodput


@pytest.fixture
def run(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def requeued(run: Folder) -> None:
    """Write a run that a dead node interrupted after update 30, whose last checkpoint was that of update 15."""
    run.event(60, 1, "began", "n[1-2]")
    run.begin(70, 1, 0)
    run.train(1, 10, 100, 2)
    run.train(1, 20, 100, 2)
    run.train(1, 30, 100)
    run.event(384, 1, "lost")
    run.event(500, 2, "began", "n[2-3]")
    run.begin(520, 2, 15)
    run.train(2, 25, 90)
    run.line("evaluation", 2, 30, loss=1.0, samples=8, seconds=7.0)
    run.train(2, 30, 45)
    run.line("end", 2, 30, training_seconds=140.0)
    run.event(680, 2, "ended", "COMPLETED 0")


def test_the_time_of_a_requeued_run(run: Folder) -> None:
    requeued(run)
    found = run.goodput("COMPLETED")
    assert found.allocated_s == pytest.approx(324 + 180)
    assert found.final_weights_s == pytest.approx(150 + 135)  # an interval that the checkpoint divides counts in part
    # What a killed attempt did after its last line is in no weights.
    assert found.lost_updates_s == pytest.approx(150 + (324 - 10 - 304))
    assert found.checkpoints_s == pytest.approx(4 + 5)  # the last one is written after the last interval
    assert (found.start_up_s, found.evaluation_s) == pytest.approx((10 + 20, 7))
    assert found.ending_s == pytest.approx(180 - 20 - 140 - 7)
    assert (found.queue_s, found.stopped_s) == pytest.approx((60 + 116, 0))
    assert found.share == pytest.approx(285 / 504)


def test_a_run_that_failed_keeps_what_its_newest_checkpoint_holds(run: Folder) -> None:
    run.event(1, 1, "began")
    run.begin(2, 1, 0)
    run.train(1, 10, 10)
    run.train(1, 20, 10)
    run.event(23, 1, "ended", "FAILED 1")
    assert run.goodput("FAILED").final_weights_s == 0
    run.checkpoint(15)
    found = run.goodput("FAILED")
    assert (found.final_weights_s, found.lost_updates_s) == pytest.approx((15, 6))


def test_a_cancelled_run_that_has_saved_all_it_trained_loses_nothing(run: Folder) -> None:
    run.event(1, 1, "began")
    run.begin(2, 1, 0)
    run.train(1, 10, 10)
    run.event(14, 1, "ended", "CANCELLED 143")
    assert run.goodput("CANCELLED").lost_updates_s == pytest.approx(12)
    run.checkpoint(10)
    found = run.goodput("CANCELLED")
    assert (found.lost_updates_s, found.ending_s) == pytest.approx((0, 2))


def test_a_run_at_work_may_yet_keep_all_it_has_done(run: Folder) -> None:
    run.event(1, 1, "began")
    run.begin(3, 1, 0)
    run.train(1, 10, 10)
    run.paths.progress.write_text(json.dumps({"heartbeat": SUBMITTED + 18.0}))
    found = run.goodput("RUNNING")
    assert (found.allocated_s, found.final_weights_s, found.start_up_s) == pytest.approx((17, 15, 2))


def test_time_until_somebody_resumes_is_not_the_queue(run: Folder) -> None:
    run.event(1, 1, "began")
    run.begin(2, 1, 0)
    run.train(1, 10, 10)
    run.event(14, 1, "ended", "STOPPED 75")
    run.event(1014, 2, "began")
    run.begin(1015, 2, 10)
    run.train(2, 20, 10)
    run.event(1026, 2, "ended", "COMPLETED 0")
    found = run.goodput("COMPLETED")
    assert (found.queue_s, found.stopped_s, found.lost_updates_s) == pytest.approx((1, 1000, 0))
    assert found.waits == [("stopped until it was resumed", 1000)]
    # Once it was asked for, the attempt waited in the queue.
    asked = {"attempt": 2, "resumed_at": "2023-11-14T22:29:04+00:00"}  # 944 s after the submission
    run.paths.submission.write_text(json.dumps({**submission(None, "2023-11-14T22:13:20+00:00"), **asked}))
    found = run.goodput("COMPLETED")
    assert (found.queue_s, found.stopped_s) == pytest.approx((1 + 70, 930))


def test_a_command_of_the_users_own_has_no_share(run: Folder) -> None:
    run.event(5, 1, "began")
    run.event(25, 1, "ended", "COMPLETED 0")
    found = run.goodput("COMPLETED")
    assert (found.share, found.allocated_s, found.unrecorded_s) == (None, 20, 20)


def test_updates_that_were_all_seen_at_once_have_no_share(run: Folder) -> None:
    run.event(5, 1, "began")
    run.begin(20, 1, 0)
    run.train(1, 60, 0)
    run.event(25, 1, "ended", "COMPLETED 0")
    found = run.goodput("COMPLETED")
    assert (found.share, found.start_up_s, found.ending_s) == (None, 15, 5)


def test_an_attempt_that_died_before_its_first_update_is_unrecorded(run: Folder) -> None:
    run.event(0, 1, "began")
    run.event(9, 1, "ended", "FAILED 1")
    run.event(10, 2, "began")
    run.begin(12, 2, 0)
    run.train(2, 10, 8)
    run.event(20, 2, "ended", "COMPLETED 0")
    found = run.goodput("COMPLETED")
    assert (found.unrecorded_s, found.final_weights_s) == pytest.approx((9, 8))


def test_a_clock_that_was_set_back_gives_no_negative_part(run: Folder) -> None:
    run.event(0, 1, "began")
    run.begin(4, 1, 0)
    run.train(1, 10, 8)
    run.event(9, 1, "ended", "COMPLETED 0")
    found = run.goodput("COMPLETED")
    assert (found.start_up_s, found.final_weights_s, found.share) == pytest.approx((1, 8, 8 / 9))


@pytest.mark.parametrize("content", ["", "x\ty\n", "1\t1\tbegan\n", "-1\t1\tbegan\t\n", "1e9\t1\tbegan\t\n", "\x00"])
def test_a_run_without_a_time_has_no_goodput(run: Folder, content: str) -> None:
    run.paths.events.write_text(content)
    assert report(run.paths, submissions.read(run.paths)).goodput is None


@pytest.mark.parametrize("broken", [{}, {"time": "x"}, {"time": None}, {"time": math.nan}, {"time": 10**400}])
def test_a_damaged_first_line_is_counted(run: Folder, broken: dict[str, Any]) -> None:
    run.line("begin", 1, 0, **broken)
    assert report(run.paths, submissions.read(run.paths)).damaged_lines == 1


def test_events_are_listed_in_order_and_in_words(run: Folder) -> None:
    requeued(run)
    run.event(681, 2, "signal", "USR1")
    run.paths.excluded_nodes.write_text("n1\t2\tit did not answer\n")
    run.paths.progress.write_text(json.dumps({"attempt": 2, "began_at": 15, "passed_over": ["update-20 is torn"]}))
    reported = [(one.time[-8:], one.attempt, one.text) for one in page.happenings(run.paths)]
    assert reported == [
        ("22:14:20", 1, "attempt 1 begins on n[1-2]"),
        ("22:19:44", 1, "killed without a word: this is its last sign of life"),
        ("22:21:40", 2, "attempt 2 begins on n[2-3]"),
        ("22:24:40", 2, "ends: COMPLETED, exit code 0"),
        ("22:24:41", 2, "asked to write a checkpoint and stop (USR1)"),
        ("", 2, "avoids node n1: it did not answer"),
        ("", 2, "continued from the checkpoint of update 15"),
        ("", 2, "checkpoint skipped: update-20 is torn"),
    ]


def test_a_signal_that_went_past_the_job_script_is_told_with_its_sender(run: Folder) -> None:
    run.event(60, 1, "began", "n1")
    run.event(65, 1, "signal", "HUP")
    run.event(70, 1, "bypassed", "USR1 the launcher of rank 0 on n1, sent by slurmstepd (process 9 of user 0)")
    assert [one.text for one in page.happenings(run.paths)][1:] == [
        "asked to end (HUP)",
        "USR1 goes past the job script, to the launcher of rank 0 on n1, sent by slurmstepd (process 9 of user 0)",
    ]


def test_a_report_says_why_the_newest_attempts_ended_as_they_did(run: Folder) -> None:
    for attempt in range(1, 8):
        run.event(60 * attempt, attempt, "began", "n1")
        why = "" if attempt == 6 else f" asked to stop, for the time {attempt}"
        run.event(60 * attempt + 50, attempt, "ended", f"REQUEUED 0{why}")
    told = dict(rows.endings(report(run.paths, submissions.read(run.paths))))
    assert list(told) == [f"attempt {number}" for number in (2, 3, 4, 5, 7)]
    assert told["attempt 7"] == "REQUEUED: asked to stop, for the time 7"


def test_events_say_when_ranks_began_and_stopped_to_train(run: Folder) -> None:
    run.event(0, 1, "began", "n1")
    run.begin(4, 1, 0)
    run.line("stop", 1, 15, time=SUBMITTED + 12)
    run.event(13, 1, "ended", "REQUEUED 0")
    run.event(20, 2, "began", "n2")
    run.begin(25, 2, 15)
    run.line("stop", 2, 20, time="yesterday")
    run.paths.progress.write_text(json.dumps({"attempt": 2, "began_at": 15}))
    curves = Series()
    assert report(run.paths, submissions.read(run.paths), curves).damaged_lines == 1
    assert [(one.time[-5:], one.text) for one in page.happenings(run.paths, curves.marks)] == [
        ("13:20", "attempt 1 begins on n1"),
        ("13:24", "training begins"),
        ("13:32", "stops on request after update 15; its checkpoint is written"),
        ("13:33", "ends: REQUEUED, exit code 0"),
        ("13:40", "attempt 2 begins on n2"),
        ("13:45", "continued from the checkpoint of update 15"),
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, 1e308, "x", None, [], True])
def test_a_damaged_figure_ends_no_report(run: Folder, value: Any) -> None:
    run.event(1, 1, "began")
    run.begin(2, 1, 0)
    run.train(1, 10, 10)
    run.paths.progress.write_text(json.dumps({"heartbeat": value}))
    run.paths.submission.write_text(json.dumps({"submitted_at": value}))
    run.line("evaluation", 1, 10, loss=1.0, seconds=value)
    run.line("end", 1, 10, training_seconds=value, peak_memory_bytes=value)
    for state in ("RUNNING", "COMPLETED"):
        run.paths.state.write_text(state)
        found = report(run.paths, submissions.read(run.paths)).goodput
        assert found is None or math.isfinite(found.allocated_s)
