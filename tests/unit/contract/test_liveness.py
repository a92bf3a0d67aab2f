"""The policy for signs of life that have stopped is the table of docs/watching.md: each row, and a second before it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.cases import each
from trainjob.contract.liveness import SignsOfLife, StallLimits, silence_of

PAGE = Path(__file__).parents[3] / "docs" / "watching.md"
NOW = 1e6
SIGNS = ("output", "cpu", "device", "progress", "stacks")
WHOSE = {
    "one rank of a command": "rank",
    "a node's ranks whose work is done": "done",
    "all ranks of a command": "command",
    "the GPUs of a node's ranks": "devices",
    "one rank of a task": "progress",
}
DEFAULT = StallLimits()
ENDS = {
    "silent": StallLimits(ends_silent=True),
    "stalled": StallLimits(ends_stalled=True),
}


def rows() -> list[tuple[str, dict[str, float], str, str]]:
    """Each row of the page's table: whose signs, how long each has stopped in seconds, what that is, what happens."""
    table = re.search(r"(?m)^\| whose signs \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text())
    assert table is not None
    found = []
    for line in table.group(1).splitlines():
        whose, *seconds, kind, happens = (cell.strip() for cell in line.strip("|").split("|"))
        found.append((WHOSE[whose], {s: float(n) for s, n in zip(SIGNS, seconds, strict=True) if n}, kind, happens))
    return found


def judged(whose: str, ages: dict[str, float], limits: StallLimits = DEFAULT) -> tuple[str, bool] | None:
    """Return what it is that signs have stopped so long ago, in a command that makes an update a second."""
    signs = SignsOfLife(**{sign: NOW - age for sign, age in ages.items()})
    silence = silence_of(whose, signs, NOW, limits._replace(usual_gap_s=1.0, longest_gap_s=2.0))
    return silence and (silence.kind, silence.ends)


@each("row", rows())
def test_each_row_of_the_page_holds_from_its_seconds_on(row: tuple[str, dict[str, float], str, str]) -> None:
    whose, ages, kind, happens = row
    assert judged(whose, ages) == (kind, happens.startswith("ended"))
    assert judged(whose, ages, ENDS.get(kind, DEFAULT)) == (kind, "ended" in happens)
    for sign in ages:
        earlier = judged(whose, {**ages, sign: ages[sign] - 1})
        assert earlier is None or earlier[0] != kind, f"{sign} has not stopped for long enough"


def test_the_page_names_all_that_the_policy_says() -> None:
    every = {"silent", "outlived", "stalled", "slow", "late", "unused"}
    assert {row[2] for row in rows()} == every


@each(
    ("whose", "ages", "expected"),
    [
        ("rank", {}, None),
        ("rank", {"output": 700, "cpu": 700}, "silent"),  # on a CPU
        ("rank", {"output": 700, "cpu": 700, "device": 10}, None),
        ("done", {"output": 700, "cpu": 700}, None),  # nobody has looked at its stacks
        ("command", {"progress": 599, "stacks": 0, "cpu": 0}, "late"),
        ("command", {"progress": 599, "stacks": 40, "cpu": 0}, "late"),
        ("command", {"progress": 599, "stacks": 40, "cpu": 40, "device": 0}, "late"),
        ("command", {"progress": 601, "stacks": 40, "cpu": 0, "device": 0}, "stalled"),
        ("command", {"progress": 601, "stacks": 0, "cpu": 0}, "slow"),
        ("devices", {}, None),
        ("progress", {}, None),
    ],
)
def test_signs_that_go_on_or_cannot_be_seen(whose: str, ages: dict[str, float], expected: str | None) -> None:
    found = judged(whose, ages)
    assert (found[0] if found else None) == expected


@pytest.mark.parametrize(
    ("gaps", "late_s"), [((1.0, 2.0), 123), ((0.01, 0.05), 120.03), ((60.0, 60.0), 300), ((1.0, 400.0), 600)]
)
def test_progress_is_late_against_what_is_usual_and_what_was_longest(gaps: tuple[float, float], late_s: float) -> None:
    def at(seconds: float) -> bool:
        signs = SignsOfLife(progress=NOW - seconds)
        limits = StallLimits(usual_gap_s=gaps[0], longest_gap_s=gaps[1])
        return silence_of("command", signs, NOW, limits) is not None

    assert [at(late_s - 0.01), at(late_s + 0.01)] == [False, True]


def test_the_sentence_says_what_has_stopped_when_and_what_goes_on() -> None:
    signs = SignsOfLife(output=NOW - 5, cpu=NOW - 700, progress=NOW - 650, stacks=NOW - 33)
    silence = silence_of("command", signs, NOW, StallLimits(usual_gap_s=2.5, longest_gap_s=9.0))
    assert silence is not None
    assert silence.text == (
        "no progress for 650 s (usually every 2.5 s), no CPU time for 700 s, "
        "no change of processes, stacks and files for 33 s; still seen: output"
    )
