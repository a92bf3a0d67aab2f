"""What `trainjob watch` draws, as text."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from tests.support.curves import series
from tests.support.records import record
from trainjob.contract.paths import RunPaths
from trainjob.observe.report.series import Series
from trainjob.observe.status import Snapshot
from trainjob.watch import screen, views
from trainjob.watch.screen import Ranks

RUNNING = Snapshot(
    id="k3xq-digits-cnn",
    folder="/runs/k3xq-digits-cnn",
    state="RUNNING",
    name="digits-cnn",
    cluster="hpc",
    submitted_at=None,
    attempt=1,
    exit_code=None,
    epoch=2,
    update=300,
    total_updates=1000,
    heartbeat=None,
    failure=None,
    script_tail=[],
    note=None,
)


def text_of(drawn: RenderableType, width: int = 140) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(drawn)
    return console.export_text()


def changed(**fields: Any) -> Snapshot:
    return dataclasses.replace(RUNNING, **fields)


def test_all_runs_are_rows_with_state_cluster_and_progress() -> None:
    waiting = changed(id="7hea-best", state="PENDING", update=None, note="waits for nodes")
    text = text_of(views.all_runs([RUNNING, waiting], 0))
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert all(word in rows["k3xq-digits-cnn"] for word in ("RUNNING", "hpc", "300 of 1,000"))
    assert all(word in rows["7hea-best"] for word in ("PENDING", "waits for nodes"))
    assert "quit" in text


def test_one_run_has_curves_cause_and_last_lines() -> None:
    losses = series({"kind": "train", "attempt": 1, "update": n, "loss": 8.0 / n} for n in (1, 2, 4, 8))
    now = changed(scheduler={"job_id": "17", "time_left": "1:02:03"}, note="preempted soon")
    now = dataclasses.replace(now, printed=["acc: 0.5"])
    text = text_of(views.one_run(now, losses, [("rank 0", "n1")], ["epoch 1", "epoch 2"]))
    for shown in (
        "8 █▄▂▁ 1",
        "job_id 17",
        "(limit 1:02:03)",
        "preempted soon",
        "epoch 2",
        "rank 0            n1",
        "as printed        acc: 0.5",
    ):
        assert shown in text, shown
    assert "held-out" not in text
    assert any(line.startswith("loss ") for line in text.splitlines())  # not behind the bar


def test_control_characters_and_markup_are_shown_and_not_obeyed() -> None:
    text = text_of(views.one_run(RUNNING, Series(), [], ["\x1b]0;title\x07", "[red]x[/red]", "[/nothing]"]))
    assert "\x1b" not in text
    assert "[red]x[/red]" in text
    assert "[/nothing]" in text
    assert "\\x1b]0;title\\x07" in views.plain_line(changed(note="\x1b]0;title\x07"))


def test_a_long_curve_keeps_its_extremes_on_one_line() -> None:
    lines = ({"kind": "train", "attempt": 1, "update": n, "loss": 9.0 if n == 777 else 1.0} for n in range(1, 5000))
    curve = views.sparkline(series(lines), "training", "loss")
    assert "█" in curve
    assert len(curve) < 140
    assert views.sparkline(Series(), "training", "loss") == ""


def test_ranks_are_rows_with_what_they_use_and_the_slowest_is_named(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    assert Ranks(str(tmp_path)).until_now() == []  # no job.json
    paths.job.write_text(record(10).to_json())
    paths.logs.mkdir()
    ranks = Ranks(str(tmp_path))
    assert ranks.until_now() == []

    def add(rank: int, attempt: int, compute_s: float, cores: float) -> None:
        device = {"device": "GPU 1", "use": 0.93, "memory_bytes": 2_000_000_000}
        sample = {
            "attempt": attempt,
            "rank": rank,
            "host": "n1",
            "pid": 7,
            "time": 1.0,
            "cpus": 4,
            "memory_bytes": 10**9,
        }
        seconds = {"data": 0.0, "compute": compute_s, "communication": 9.0}
        with paths.rank_usage(rank).open("a") as usage, paths.rank_times(rank).open("a") as times:
            usage.write(json.dumps({**sample, "cpu_cores": cores, "devices": [device]}) + "\n[]\n")
            times.write(json.dumps({"attempt": attempt, "update": 10, "updates": 10, "seconds": seconds}) + "\n")

    for rank in (0, 1, 2):
        add(rank, 1, 0.1, 1.0)
    add(0, 2, 0.2, 3.5)
    assert ranks.until_now()[0][1].endswith("20 ms of data and compute an update")  # alone: nobody to compare it with
    add(1, 2, 0.3, 2.5)
    assert ranks.until_now() == [
        ("rank 0", "n1 · 3.50 of 4 CPUs · 1.0 GB · GPU 1 93% 2.0 GB · 20 ms of data and compute an update"),
        (
            "rank 1",
            "n1 · 2.50 of 4 CPUs · 1.0 GB · GPU 1 93% 2.0 GB · 30 ms of data and compute an update, the slowest",
        ),
        ("", "… and 2 more ranks: trainjob usage"),
    ]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    """What the view on a terminal finds at each look: a test changes it."""
    runs = [changed(id=name) for name in ("c", "b", "a")]
    older = changed(id="older:1")
    monkeypatch.setattr(screen, "newest", lambda _asking, only=None: [older] if only is not None else [*runs])
    return runs


def test_the_chosen_run_stays_chosen_while_others_are_submitted(listed: list[Snapshot]) -> None:
    shown = screen.Screen(1.0, None)
    shown.obey("j")
    listed.insert(0, changed(id="d"))
    shown.look()
    assert shown.listed[shown.chosen].id == "b"
    for key in "jjjjj":
        shown.obey(key)
    assert shown.listed[shown.chosen].id == "a"


def test_a_run_that_is_too_old_to_be_listed_can_be_watched(listed: list[Snapshot]) -> None:
    shown = screen.Screen(1.0, RunPaths("/runs/older/tasks/1"))
    assert shown.listed[shown.chosen].id == "older:1"
    assert len(shown.listed) == len(listed) + 1
