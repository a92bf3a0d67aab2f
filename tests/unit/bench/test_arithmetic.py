"""The conclusions of bench from figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from trainjob.bench import plots, scaling
from trainjob.bench.scaling import Epoch, Scale, epochs_of, implausible, interval, scale_of, student_95
from trainjob.cli.prove.bench import bucket_sizes
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths


def test_an_epoch_is_what_lies_between_two_lines(tmp_path: Path) -> None:
    seconds = {"data": 1.0, "compute": 2.0, "communication": 1.0}
    lines = [{"kind": "train", "update": 10, "seconds": seconds}, {"kind": "evaluation", "update": 10, "seconds": 9}]
    lines.append({"kind": "train", "update": 20, "seconds": {**seconds, "compute": 6.0}})
    paths = RunPaths(tmp_path)
    paths.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = list(epochs_of(paths, 8))
    assert [(epoch.samples, epoch.total_s) for epoch in found] == [(80, 4.0), (80, 8.0)]


def test_efficiency_is_against_the_first_rows_instances() -> None:
    epochs = [Epoch(80, {"data": 1.0, "compute": second - 1.0}) for second in (4.0, 2.0, 8.0)]
    first = scale_of(2, 8, [epochs], None)
    assert first.efficiency == 1.0
    assert (first.seconds_per_epoch, first.fastest_epoch_s, first.slowest_epoch_s) == (4.0, 2.0, 8.0)
    assert first.data_share == pytest.approx(0.25)
    assert scale_of(4, 16, [epochs], first).efficiency == pytest.approx(0.5)


def timed(instances: int, *seconds: float, first: Scale | None = None) -> Scale:
    epochs = [Epoch(80 * instances, {"data": 0.0, "compute": second}) for second in seconds]
    return scale_of(instances, 8 * instances, [epochs], first)


def test_the_interval_of_a_rate_is_that_of_its_runs() -> None:
    low, high = interval([[100.0] * 20, [110.0] * 20, [90.0] * 20])
    assert low < 90 < 110 < high  # 60 epochs are three results, and no more
    assert interval([[100.0]]) == (100.0, 100.0)
    narrow = interval([[99.0, 100.0, 101.0, 100.0, 99.5, 100.5]])
    assert 98 < narrow[0] < 100 < narrow[1] < 102


def test_an_efficiency_that_can_not_be_is_noise() -> None:
    first = timed(1, 10.0, 10.1)
    assert implausible(timed(2, 5.0, 5.1, first=first), first) is not None
    assert implausible(timed(2, 11.0, 11.1, first=first), first) is None


def test_figures_that_can_not_be_are_measured_once_more_and_every_measurement_is_counted_aloud(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[int] = []

    def epochs_at(_workbench: object, number: int, *_: object) -> tuple[int, list[Epoch]]:
        measured.append(number)
        return 8 * number, [Epoch(80, {"compute": 8.0 / number**3})]

    monkeypatch.setattr(scaling, "epochs_at", epochs_at)
    lines: list[str] = []
    plan = SimpleNamespace(batch=SimpleNamespace(updates_per_epoch=10))
    workbench: Any = SimpleNamespace(
        say=lines.append, refuse_command=lambda: None, vary=lambda **_: SimpleNamespace(plan=plan)
    )
    one, two = scaling.scaling(workbench, [1, 2], epochs=1, repeats=2)
    assert measured == [1, 2, 1, 2, 2]
    again = "these figures are implausible: measuring again"
    assert lines == [*(f"measurement {number} of 4" for number in range(1, 5)), again]
    assert (one.noise, two.noise) == (
        None,
        "an efficiency of 400 % means that something else slowed down the first row",
    )


def test_what_can_not_be_measured_is_refused_before_anything_is_measured() -> None:
    """The samples of one's own task are not known."""
    lines: list[str] = []

    def vary(instances: int) -> Any:
        batch = SimpleNamespace(updates_per_epoch=10 if instances == 1 else None)
        return SimpleNamespace(plan=SimpleNamespace(batch=batch))

    workbench: Any = SimpleNamespace(say=lines.append, refuse_command=lambda: None, vary=vary)
    with pytest.raises(UserError, match="give --samples"):
        scaling.scaling(workbench, [1, 2], epochs=1, repeats=2)
    assert lines == []


def test_rows_that_differ_by_less_than_their_epochs_are_noise() -> None:
    first = timed(1, 9.0, 10.0, 11.0)
    assert "differ by 2.000 s" in (implausible(timed(2, 10.4, 10.5, 10.6, first=first), first) or "")
    assert implausible(timed(2, 14.0, 14.5, 15.0, first=first), first) is None


def test_sizes_of_buckets_are_numbers() -> None:
    assert bucket_sizes("1,5,25") == [1.0, 5.0, 25.0]
    for wrong in ("", "1,,2", "0", "a"):
        with pytest.raises(typer.BadParameter, match="expected sizes in MB"):
            bucket_sizes(wrong)


@pytest.mark.usefixtures("matplotlib")
def test_a_plot_into_a_missing_folder_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        plots.check(tmp_path / "missing" / "plot.svg")
    with pytest.raises(UserError, match=r"matplotlib draws no \.doc"):
        plots.check(tmp_path / "plot.doc")
    plots.check(tmp_path / "plot.svg")


def test_a_plot_says_what_it_shows_where_and_when(tmp_path: Path, matplotlib: Any) -> None:
    first = timed(1, 10.0)
    rows = [first, timed(2, 11.0, first=first), timed(4, 13.0, first=first)]
    target = tmp_path / "scaling.svg"
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plots.draw_scaling(rows, target)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", target.read_text())
    title, machine = "Training speed by number of instances", plots.machine_and_date()
    assert {title, "instances", "samples/s", machine, "measured, 90 % interval"} <= set(texts)
    # Whole instances, and those that were measured.
    assert [text for text in texts if text in ("1", "1.5", "2", "2.5", "3", "4")] == ["1", "2", "4"]


@pytest.mark.parametrize(("freedom", "exact"), [(2, 2.920), (3, 2.353), (5, 2.015), (10, 1.812), (1e9, 1.645)])
def test_students_t(freedom: float, exact: float) -> None:
    assert student_95(freedom) == pytest.approx(exact, rel=0.06)
