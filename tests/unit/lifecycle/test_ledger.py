"""The rows of the ledger of device-hours: what is no sound row says nothing about its run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainjob.contract.paths import home
from trainjob.lifecycle import ledger
from trainjob.lifecycle.ledger import Limit

ALL = Limit(100.0, "GPU", None, "config.yaml")


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
