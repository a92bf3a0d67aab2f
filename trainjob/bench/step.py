"""What compiling, another memory format and other implementations of the optimizer gain over a plain update."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.bench.loader import MODULE, measured
from trainjob.planning.values import Refusal
from trainjob.records.measures import PLAIN_STEP, STEP_VARIATIONS
from trainjob.requests.workbench import Workbench

_CONTROL = next(iter(STEP_VARIATIONS))
# An interval between the k-th smallest and the k-th largest of n ratios holds their median in 95 of 100 cases or more.
_CERTAINTY = 0.95


@dataclass(frozen=True)
class Step:
    """One variation against the plain update. `gain` is how many times faster it is: the median over all rounds."""

    name: str
    rounds: int
    seconds: float | None = None  # of an update, the median; None if it can't be measured, and `why` says so
    plain_seconds: float | None = None
    gain: float | None = None
    gain_low: float | None = None  # the 95 % interval of the median
    gain_high: float | None = None
    is_certain: bool = False  # the gain is larger than the noise
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the row for `--json`."""
        return asdict(self)

    @property
    def verdict(self) -> str:
        """What can be concluded."""
        if self.gain is None:
            return f"not here: {self.why}"
        if not self.is_certain:
            return "no conclusion: noise hides the difference"
        return f"{self.gain:.2f} × as fast" if self.gain > 1 else f"slower: takes {1 / self.gain:.2f} × as long"


def steps(workbench: Workbench, only: Sequence[str] = (), *, rounds: int, round_s: float) -> list[Step]:
    """Return a row for the control and for each variation, or those named by `only`. Raises Refusal, UserError."""
    workbench.refuse_command()
    planned = workbench.vary(**PLAIN_STEP)
    refused: dict[str, str] = {}
    selected = {name: changes for name, changes in STEP_VARIATIONS.items() if not only or name in (*only, _CONTROL)}
    for name, changes in selected.items():
        try:
            workbench.vary(**{**PLAIN_STEP, **changes})
        except Refusal as error:
            refused[name] = error.text
    names = [name for name in selected if name not in refused]
    runtime = (MODULE, "step", "--rounds", str(rounds), "--round-s", f"{round_s:g}", "--variations", *names, "--")
    rows = measured(workbench, dataclasses.replace(planned, runtime=runtime))["rows"]
    return judged([*rows, *({"name": name, "why": why} for name, why in refused.items())])


def judged(rows: Sequence[dict[str, Any]]) -> list[Step]:
    """Return the rows with what can be concluded from them, given the seconds of every round."""
    steps = [_row(row) for row in rows]
    control = next((row for row in steps if row.name == _CONTROL), None)
    noise = 0.0 if control is None else max(abs(math.log(control.gain_low or 1)), abs(math.log(control.gain_high or 1)))
    return [row if row is control else dataclasses.replace(row, is_certain=_is_certain(row, noise)) for row in steps]


def _row(row: dict[str, Any]) -> Step:
    plain, varied = row.get("plain_s", []), row.get("varied_s", [])
    if not varied:
        return Step(row["name"], 0, why=row.get("why", ""))
    ratios = sorted(before / after for before, after in zip(plain, varied, strict=True))
    rank = _rank(len(ratios))
    return Step(
        name=row["name"],
        rounds=len(ratios),
        seconds=statistics.median(varied),
        plain_seconds=statistics.median(plain),
        gain=statistics.median(ratios),
        gain_low=ratios[rank],
        gain_high=ratios[-1 - rank],
    )


def _rank(count: int) -> int:
    """Return how many of `count` sorted values may be left out on either side of the interval of their median."""
    outside, rank = 0.0, 0
    while True:
        outside += 2 * math.comb(count, rank) / 2**count
        if outside > 1 - _CERTAINTY or rank >= count // 2:
            return max(0, rank - 1)
        rank += 1


def _is_certain(row: Step, noise: float) -> bool:
    """Return whether the whole interval lies on one side of 1, and farther from it than the control's."""
    if row.gain_low is None or row.gain_high is None:
        return False
    return math.log(row.gain_low) > noise or math.log(row.gain_high) < -noise
