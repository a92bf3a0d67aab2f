"""The page of a run is one file: nothing is requested, and nothing that a user typed is markup."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.report_runs import HOSTILE, described
from trainjob.observe.report import drawings, page
from trainjob.observe.report.report import report
from trainjob.observe.report.series import Series
from trainjob.records import events, failure, software, stacks
from trainjob.records import job as jobs
from trainjob.records import submission as submissions
from trainjob.records.job import PlanWarning
from trainjob.records.stacks import ProcessStack, RankStacks

pytestmark = pytest.mark.usefixtures("matplotlib")


def test_a_page_requests_nothing(tmp_path: Path) -> None:
    text = page.of_run(described(tmp_path / "run"))
    addresses = {address for address in re.findall(r"https?://[^\s\"'<)]+", text) if "www.w3.org" not in address}
    assert addresses == set()  # those of w3.org are names of namespaces
    assert not re.search(r"<script|<link|<img|@import|url\((?!#)", text)


def test_a_page_shows_curves_plan_checkpoints_and_script(tmp_path: Path) -> None:
    text = page.of_run(described(tmp_path / "run"))
    assert text.count("<svg") == 5  # loss, accuracy, learning rate, speed, phases
    for shown in ("attempt begins", "instance 1", "update-00000060", "2.0 MB", "Where the time went", "flag"):
        assert shown in text, shown


def test_what_a_user_typed_is_text(tmp_path: Path) -> None:
    one, other = described(tmp_path / "one", name=HOSTILE, note=HOSTILE), described(tmp_path / "other")
    for text in (page.of_run(one), page.of_runs([one, other])):
        assert "<script" not in text
        assert "&lt;script&gt;" in text


def test_a_failed_run_shows_the_rank_that_failed_its_last_lines_and_where_the_others_were(tmp_path: Path) -> None:
    run = described(tmp_path / "run")
    paths = run.paths
    failed = failure.Failure(2, 1, "gpu3", 9, ["python", "train.py"], ["Traceback …", "KeyError: <b>"])
    assert failure.record_first(paths, failed)
    paths.logs.mkdir(exist_ok=True)
    frames = "Current thread 0x1:\n" + '  File "train.py", line 7 in step\n'
    stacks.write(paths, RankStacks("w", 2, 0, "gpu2", 1.0, [ProcessStack(7, "python", "S", frames)]))
    paths.events.write_text(f"1.000\t2\t{events.BEGAN}\tgpu3\n")
    software.file_of(paths, 0).write_text(
        json.dumps({"attempt": 2, "rank": 0, "host": "gpu2", "packages": {"torch": "2.4"}})
    )
    again = report(paths, submissions.read(paths))
    text = page.of_run(page.described(paths, dataclasses.replace(again, exit_code=9), run.curves, None))
    for shown in ("Rank 1 on gpu3 failed first, with exit code 9", "KeyError: &lt;b&gt;", "step (train.py:7)"):
        assert shown in text, shown
    for shown in ("version of torch", "<strong>gpu3</strong>"):
        assert shown in text, shown
    assert text.index("<h2>Failure</h2>") < text.index("<h2>Result</h2>")


def test_no_drawing_is_made_of_phases_that_nobody_timed(tmp_path: Path) -> None:
    run = described(tmp_path / "run")
    lines = [json.loads(line) for line in run.paths.metrics.read_text().splitlines()]
    untimed = [
        {**line, **({"seconds": dict.fromkeys(line["seconds"], 0.0)} if "seconds" in line else {})} for line in lines
    ]
    run.paths.metrics.write_text("\n".join(map(json.dumps, untimed)))
    curves = Series()
    report(run.paths, submissions.read(run.paths), curves)
    drawn = [drawing.title for drawing in drawings.of_run(curves)]
    assert "Loss" in drawn
    assert not any("Where the time went" in title for title in drawn)


def test_memory_is_drawn_from_zero() -> None:
    """A hundredth of a gigabyte more is no rise."""
    drawn = drawings.draw("memory", [drawings.Curve("rank 0", [(0.0, 9.85), (1.0, 9.91)])], across="m", from_zero=True)
    ticks = [float(number) for number in re.findall(r">(\d+(?:\.\d+)?)</text>", drawn)]
    assert min(ticks) == 0


def test_updates_are_whole_numbers() -> None:
    drawn = drawings.draw("loss", [drawings.Curve("training", [(1.0, 10.5), (2.0, 11.5), (3.0, 12.5)])])
    assert {"1", "2", "3"} == set(re.findall(r">(\d)</text>", drawn))


def test_a_warning_of_the_plan_is_a_sentence(tmp_path: Path) -> None:
    run = described(tmp_path / "run")
    record = jobs.read(run.paths.job)
    warned = dataclasses.replace(record.plan, warnings=[PlanWarning("a-code", "few samples", "take more")])
    run.paths.job.write_text(dataclasses.replace(record, plan=warned).to_json())
    assert "<li>few samples: take more</li>" in page.of_run(run)


def test_ids_of_drawings_differ(tmp_path: Path) -> None:
    ids = re.findall(r' id="([^"]+)"', page.of_run(described(tmp_path / "run")))
    assert len(ids) > 20
    assert len(ids) == len(set(ids))


def test_compared_runs_begin_with_the_settings_that_differ(tmp_path: Path) -> None:
    runs = [described(tmp_path / str(rate), learning_rate=rate) for rate in (0.1, 0.2)]
    text = page.of_runs(runs)
    assert text.index("learning_rate") < text.index("<svg")
    assert "<td>instances</td>" not in text  # the same in both
    assert text.count("<svg") == 4


def test_a_run_that_has_not_begun_has_a_page(tmp_path: Path) -> None:
    run = described(tmp_path / "run")
    text = page.of_run(dataclasses.replace(run, curves=Series()))
    assert "<svg" not in text
    assert "Checkpoints" in text


def test_a_damaged_index_is_a_row(tmp_path: Path) -> None:
    run = described(tmp_path / "run")
    for content in ("[]", "{}", '{"files": 3}', "not json"):
        (run.paths.checkpoints / "update-00000060" / "index.json").write_text(content)
        assert "damaged index" in page.of_run(run)


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    run = described(tmp_path / "run")
    assert page.of_run(run) == page.of_run(run)


def sample(rank: int, time: float, **more: Any) -> str:
    fixed = {"attempt": 1, "rank": rank, "host": "n1", "pid": 7, "cpus": 4, "memory_bytes": 2_000_000_000}
    return json.dumps({**fixed, "time": time, **more}) + "\n"


def test_what_ranks_used_is_drawn(tmp_path: Path) -> None:
    run = described(tmp_path / "run")
    assert "CPUs used" not in page.of_run(run)
    run.paths.logs.mkdir()
    for rank in (0, 1):
        later = (sample(rank, 60.0 * minute, cpu_cores=3.0) for minute in (1, 2, 3))
        run.paths.rank_usage(rank).write_text(sample(rank, 0.0) + "".join(later) + "{torn")
    text = page.of_run(run)
    assert text.count("<svg") == 7
    for shown in ("Utilisation", "CPUs used (% of those that a rank may use)", "Memory (GB)", "minutes", "rank 1"):
        assert shown in text, shown
    assert "Devices used" not in text
    device = {"device": "GPU 0", "use": 0.5, "memory_bytes": 10**9}
    run.paths.rank_usage(1).write_text(sample(1, 5.0, devices=[device, {**device, "use": None}]))
    assert "Devices used (%, mean of a rank&#39;s)" in page.of_run(run)


def times(updates: int, data: float, compute: float) -> str:
    seconds = {"data": data, "compute": compute, "communication": 1.0, "checkpoint": 0.0}
    return json.dumps({"attempt": 1, "update": updates, "updates": 10, "seconds": seconds}) + "\n"


def test_the_slowest_rank_is_named_and_drawn(tmp_path: Path) -> None:
    run = described(tmp_path / "run")
    run.paths.logs.mkdir()
    run.paths.rank_times(0).write_text(times(10, 0.5, 2.0) + "[]\n{torn")
    assert report(run.paths, submissions.read(run.paths)).slowest_rank is None  # nobody to compare it with
    run.paths.rank_times(1).write_text(times(10, 1.5, 2.0) + times(20, 1.5, 2.0))
    run.paths.rank_times(0).write_text(times(10, 0.5, 2.0) + times(20, 0.5, 2.0))
    text = page.of_run(dataclasses.replace(run, report=report(run.paths, submissions.read(run.paths))))
    for shown in ("rank 1, with 7.0 s of data and compute, 17 % more than the median rank, most of it in data", "(ms)"):
        assert shown in text, shown
    run.paths.rank_times(1).write_text(times(10, 0.5, 2.1))
    run.paths.rank_times(0).write_text(times(10, 0.5, 2.0))
    assert "no rank is much slower" in str(report(run.paths, submissions.read(run.paths)).slowest_rank)


def test_a_page_tells_events(tmp_path: Path) -> None:
    run = described(tmp_path / "run")
    run.paths.events.write_text("1700000000\t1\tbegan\tn[1-2]\n1700000100\t1\tended\tCOMPLETED 0\n")
    run.paths.state.write_text("COMPLETED\n")
    run.paths.attempt.write_text("1\n")
    text = page.of_run(dataclasses.replace(run, report=report(run.paths, submissions.read(run.paths))))
    began = "attempt 1 begins on n[1-2]"
    assert "Allocated time" not in text  # nobody has recorded when it trained
    for shown in (began, "ends: COMPLETED, exit code 0"):
        assert shown in text, shown
