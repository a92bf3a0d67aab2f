"""The predictions of a run compared with its results."""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.contract.paths import RunPaths
from trainjob.records import prediction
from trainjob.records.prediction import Range


@dataclass(frozen=True)
class Result:
    """What a complete run took, of all that was predicted; None if its folder does not tell."""

    update_s: float | None
    run_s: float | None
    memory_bytes: float | None
    checkpoint_bytes: float | None
    attempts: float | None


@dataclass(frozen=True)
class Compared:
    """One quantity of one run. `error` is a share of what was predicted: 0.1 is 10 % more."""

    quantity: str
    unit: str  # s | B | "" for a count
    predicted: Range
    result: float
    error: float
    is_within: bool


def compare(paths: RunPaths, result: Result) -> list[Compared]:
    """Return each predicted quantity that the run has a result for."""
    stored = prediction.read(paths)
    if stored is None:
        return []
    pairs = (
        ("seconds per update", "s", stored.update_s, result.update_s),
        ("run", "s", stored.run_s, result.run_s),
        ("memory", "B", stored.memory_bytes, result.memory_bytes),
        ("checkpoint", "B", stored.checkpoint_bytes, result.checkpoint_bytes),
        ("attempts", "", stored.attempts, result.attempts),
    )
    return [
        Compared(quantity, unit, expected, value, value / expected.median - 1, value in expected)
        for quantity, unit, expected, value in pairs
        if expected is not None and value is not None and expected.median > 0
    ]


def measure(value: float, unit: str) -> str:
    """Return a quantity as people read it: 6.56 ms, 10.5 s, 485.5 kB, 2."""
    if unit == "B":
        return f"{value / 1e6:,.1f} MB" if value >= 1e6 else f"{value / 1e3:,.1f} kB"
    if unit == "s":
        return f"{1000 * value:,.3g} ms" if value < 1 else f"{value:,.1f} s"
    return f"{value:g}"
