"""The rows of the ledger of device-hours: what is no sound row says nothing about its run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_folders import made
from trainjob.backends.base import NotSubmittedError
from trainjob.contract import clock
from trainjob.contract.paths import home
from trainjob.lifecycle import ledger
from trainjob.lifecycle.ledger import Charge, Cost, Limit
from trainjob.observe import status as of_status

ALL = Limit(100.0, "GPU", None, "config.yaml")


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().split("\n") if line]


def charged(*rows: Any) -> float:
    """Return the hours that a ledger of these rows charges."""
    file = home() / "ledger.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ((_, hours),) = ledger.used([ALL])
    return hours


RUNS = {"run": "abcd", "device": "GPU", "most": 8.0}


@pytest.mark.parametrize(
    "row",
    [
        7,
        {"run": 7, "most": 1.0},
        {"run": "abcd", "spent": -1.0, "ended_at": 5.0},
        {"run": "abcd", "spent": 1.0, "ended_at": -5.0},
        {"run": "abcd", "spent": "1", "ended_at": 5.0},
        {"run": "abcd", "spent": True, "ended_at": 5.0},
        {"run": "abcd", "spent": None, "ended_at": 5.0},
        {"run": "abcd", "spent": float("nan"), "ended_at": 5.0},
        {"run": "abcd", "spent": 1e300, "ended_at": 5.0},
        {"run": "abcd", "ended_at": 5.0},
        {**RUNS, "most": -1.0},
        {**RUNS, "most": 1.0, "before": "0"},
        {**RUNS, "most": 1.0, "attempts": [1]},
        {**RUNS, "most": 1.0, "attempts": {"": "1"}},
    ],
)
def test_a_row_that_is_not_sound_changes_nothing(row: object) -> None:
    assert charged(RUNS, row) == 8.0


@pytest.mark.parametrize(
    ("row", "hours"),
    [
        ({"run": "abcd", "spent": 0, "ended_at": 0}, 0.0),
        ({"run": "abcd", "spent": 9e299, "ended_at": 5}, 9e299),
        ({**RUNS, "most": 1.0, "before": 0.0, "attempts": {"": 0}}, 1.0),
        ({**RUNS, "most": None, "before": None, "attempts": None}, float("inf")),
    ],
)
def test_a_newer_row_of_a_run_counts(row: object, hours: float) -> None:
    assert charged(RUNS, row) == hours


def test_a_budget_counts_its_own_devices_cluster_folder_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "time", lambda: 1e9)
    ended = {"device": "GPU", "cluster": "hpc", "project": "/p/a", "spent": 1.0, "ended_at": 1e9 - 10}
    rows = [
        {"run": "mine", **ended},
        {"run": "ipus", **ended, "device": "IPU", "spent": 10.0},
        {"run": "elsewhere", **ended, "cluster": "other", "spent": 100.0},
        {"run": "another", **ended, "project": "/q", "spent": 1000.0},
        {"run": "old", **ended, "ended_at": 1e9 - 90_000, "spent": 10_000.0},
    ]
    assert charged(*rows) == 11_101.0
    for limit, hours in (
        (ALL._replace(device="IPU"), 10.0),
        (ALL._replace(cluster="hpc"), 11_001.0),
        (ALL._replace(folder="/p"), 10_101.0),
        (ALL._replace(per="day"), 1_101.0),
        (ALL._replace(per="day", cluster="hpc", folder="/p/a"), 1.0),
    ):
        assert ledger.used([limit]) == [(limit, hours)]


def test_what_a_run_has_cost_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> list[object]:
        raise AssertionError

    monkeypatch.setattr(of_status, "statuses", asked)
    assert charged({**RUNS, "folder": str(tmp_path), "spent": 1.0, "ended_at": 5.0}) == 1.0
    with pytest.raises(AssertionError):
        charged({**RUNS, "folder": str(tmp_path)})


def test_a_run_that_has_not_begun_is_charged_from_its_first_attempt_on(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state=None)
    with ledger.charged(paths, Charge(Cost("GPU", 8, 2.0), "hpc", "/p", [ALL], [paths])) as begins:
        begins()
    (row,) = rows_of(home() / "ledger.jsonl")
    assert (row["attempts"], row["before"], row["most"]) == ({"": 0}, 0.0, 2.0)


@pytest.mark.parametrize(
    ("begins_first", "error", "hours"),
    [
        (False, OSError("full"), 0.0),
        (True, OSError("full"), 2.0),
        (True, NotSubmittedError("sbatch: no", "wait"), 0.0),
    ],
)
def test_what_certainly_never_began_is_not_charged(
    tmp_path: Path, begins_first: bool, error: Exception, hours: float
) -> None:
    paths = made(tmp_path, "abcd", state=None)

    def submitted() -> None:
        with ledger.charged(paths, Charge(Cost("GPU", 8, 2.0), "hpc", "/p", [ALL])) as begins:
            if begins_first:
                begins()
            raise error

    with pytest.raises(type(error)):
        submitted()
    assert ledger.used([ALL]) == [(ALL, hours)]
