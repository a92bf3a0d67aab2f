"""The rows of the ledger of device-hours: what is no sound row says nothing about its run."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import each
from tests.support.run_folders import made
from tests.support.told_back_end import told_as
from trainjob.backends.base import Answer, Liveness, NotSubmittedError
from trainjob.contract import clock
from trainjob.contract.paths import RunPaths, home
from trainjob.lifecycle import ledger
from trainjob.lifecycle.ledger import Charge, Limit
from trainjob.observe import status as of_status
from trainjob.planning import pack

ALL = Limit(100.0, "GPU", None, "config.yaml")


def charge(device: str, devices: int, hours: float, starts: int = 1, **more: Any) -> Charge:
    return Charge(device, devices, hours, starts, "hpc", "/p", **{"limits": [ALL], **more})


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


@each(
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
    with ledger.charged(paths, charge("GPU", 8, 2.0, again=[paths])) as begins:
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
        with ledger.charged(paths, charge("GPU", 8, 2.0)) as begins:
            if begins_first:
                begins()
            raise error

    with pytest.raises(type(error)):
        submitted()
    assert ledger.used([ALL]) == [(ALL, hours)]


# --- A budget that is too small.

GPU, FEW = "GPU-hours", "the budget is 10 GPU-hours a day (budget in config.yaml)"
AGAIN = [RunPaths(Path("/runs/abcd"))]


@each(
    ("cost", "more", "charged_h", "text", "cure"),
    [
        (charge("GPU", 4, 5.0), {}, 5.0, "", ""),  # all that is left
        (charge("IPU", 4, 99.0), {}, 5.0, "", ""),  # other devices
        (charge("IPU", 4, 1.0), {"beside": "gres"}, 5.0, "", ""),
        (
            charge("GPU", 4, 5.5),
            {},
            5.0,
            "this job may cost 5.50 GPU-hours, but 5.00 of 10 GPU-hours a day (budget in config.yaml) are left; "
            "5.00 are already charged",
            "Give --time-limit 01:15:00, or fewer devices",
        ),
        (
            charge("GPU", 4, 2.0, 3),
            {},
            5.0,
            "this job may cost 6.00 GPU-hours in 3 starts of 2.00, but 5.00 of 10 GPU-hours",
            "Give --max-attempts 2: it then starts at most that many times",
        ),
        (
            charge("GPU", 4, 6.0, 2),
            {},
            5.0,
            "this job may cost 12.00 GPU-hours in 2 starts of 6.00, but 5.00 of",
            "Give --time-limit 01:15:00 --max-attempts 1, or fewer devices",
        ),
        (charge("GPU", 60, 2.0), {}, 9.0, "but 1.00 of", "Give --time-limit 00:01:00, or fewer devices"),
        (charge("GPU", 61, 2.0), {}, 9.0, "but 1.00 of", "Wait for running jobs to end"),
        (charge("GPU", 1, 2.0), {}, 12.0, "but 0.00 of", "Wait for running jobs to end"),
        (
            charge("GPU", 4, 2.0, 3),
            {"again": AGAIN},
            5.0,
            "in 3 starts of 2.00",
            "Wait for running jobs to end; each is",
        ),
        (
            charge("GPU", 4, math.inf),
            {},
            0.0,
            f"{FEW}, and this job has no time limit, so its 4 GPUs",
            "Give --time-limit;",
        ),
        (
            charge("GPU", 4, 1.0),
            {},
            math.inf,
            "a run without a time limit counts until it has ended",
            "Wait for running",
        ),
        (
            charge("GPU", 4, 1.0),
            {"beside": "gres"},
            0.0,
            f"{FEW}, and directives.gres may take GPUs beside the 4 of the plan",
            "Take it out and give --instances",
        ),
        (
            charge("GPU", 0, 0.0),
            {"beside": "gres"},
            0.0,
            "beside the 0 of the plan",
            "Take it out and state in the cluster file what its nodes have (accelerator)",
        ),
    ],
)
def test_a_submission_that_does_not_fit_is_told_what_would(
    cost: Charge, more: dict[str, Any], charged_h: float, text: str, cure: str
) -> None:
    limit = Limit(10.0, "GPU", "day", "config.yaml")
    found = ledger.over(limit, cost._replace(limits=[limit], **more), charged_h)
    assert (found is None) == (not text)
    if found is not None:
        assert text in found.text
        assert found.cure.startswith(cure), found.cure
        assert found.cure.endswith("; or submit it yourself at a terminal, with --over-budget")


@pytest.mark.parametrize(("before", "hours", "is_told"), [(0.0, 6.0, False), (9.0, 2.0, True), (None, 2.0, True)])
def test_a_run_that_goes_on_counts_beside_what_it_has_cost(before: float | None, hours: float, is_told: bool) -> None:
    limit, paths = Limit(10.0, "GPU", None, "config.yaml"), RunPaths(Path("/runs/abcd"))
    charged({"run": "abcd", "device": "GPU", "most": before}, {"run": "other", "device": "GPU", "most": 1.0})
    again = charge("GPU", 1, hours, limits=[limit], again=[paths])
    if is_told:
        with pytest.raises(ledger.OverBudgetError), ledger.charged(paths, again):
            pass
    else:
        with ledger.charged(paths, again) as begins:
            begins()
        assert ledger.used([limit])[0][1] == hours + 1.0


# --- What an ended run has cost.


def ended_run(tmp_path: Path, *events: str, devices: int = 4, **row: Any) -> RunPaths:
    """Return a run that has ended, with a row in the ledger and with events: |-separated fields of a line each."""
    paths = made(tmp_path, "abcd", state="FAILED", native={"job_id": "7", "folder": str(tmp_path)}, backend="slurm")
    paths.events.write_text("".join(line.replace("|", "\t") + "\n" for line in events))
    charged({**RUNS, "folder": str(paths.folder), "most": 100.0, **row})
    return paths


@pytest.mark.parametrize(
    ("events", "row", "spent"),
    [
        (["3600|1|began|n1", "7200|1|ended|FAILED 1"], {}, 4.0),
        (["3600|1|began|n1", "7200|1|ended|FAILED 1", "7200|2|began|n1", "9000|2|ended|FAILED 1"], {}, 6.0),
        (["3600|1|began|n1", "7200|1|ended|FAILED 1"], {"most": 3.0}, 3.0),
        (["3600|1|began|n1", "7200|1|ended|FAILED 1"], {"before": 2.0}, 6.0),
        (["3600|1|began|n1", "7200|1|ended|FAILED 1"], {"before": 2.0, "attempts": {"": 1}}, 2.0),
        (["3600|1|began|n1"], {}, 8.0),  # it has noted no end: until now
        ([], {}, 0.0),
        (["3600|1|began|n1", "7200|1|ended|FAILED 1"], {"attempts": {"7": 1}}, 0.0),  # a part that was not charged
    ],
)
def test_an_ended_run_has_cost_its_devices_as_long_as_its_attempts_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[str], row: dict[str, Any], spent: float
) -> None:
    paths = ended_run(tmp_path, *events, **{"before": 0.0, **row})
    monkeypatch.setattr(clock, "time", lambda: 10_800.0)
    monkeypatch.setattr(pack, "devices_held", lambda *_: 4)
    told_as(monkeypatch, "slurm")
    ledger.settle(paths)
    newest = rows_of(home() / "ledger.jsonl")[-1]
    assert newest["spent"] == spent
    ends = [float(line.partition("|")[0]) for line in events if "|ended|" in line]
    was_charged = row.get("attempts") is None
    assert newest["ended_at"] == (max(ends) if ends and was_charged else 10_800.0)
    assert ledger.used([ALL])[0][1] == spent


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_a_run_that_may_still_cost_counts_at_its_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    paths = ended_run(tmp_path, "3600|1|began|n1")
    told = told_as(monkeypatch, "slurm")
    told.answer = Answer(Liveness.ALIVE, state)
    ledger.settle(paths)
    assert ledger.used([ALL])[0][1] == 100.0


def test_a_run_whose_record_is_damaged_counts_at_its_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ended_run(tmp_path, "3600|1|began|n1", "7200|1|ended|FAILED 1")
    paths.job.write_text("{")
    told_as(monkeypatch, "slurm")
    ledger.settle(paths)
    assert ledger.used([ALL])[0][1] == 100.0


@pytest.mark.parametrize(
    ("state", "hours"),
    [("LOST", 0.0), ("CANCELLED", 0.0), ("RUNNING", 100.0)],
)
def test_what_was_never_found_is_charged_what_has_run_of_it(tmp_path: Path, state: str, hours: float) -> None:
    paths = made(tmp_path, "abcd", state=state, native=None)
    charged({**RUNS, "folder": str(paths.folder), "most": 100.0, "before": 0.0})
    ledger.release(replace(of_status.status(paths), state=state))
    assert ledger.used([ALL])[0][1] == hours
