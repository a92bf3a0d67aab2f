"""Compares two traces, update by update: how far they differ, and from which update on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trainjob.verify.traces import Trace, Update

if TYPE_CHECKING:
    from trainjob.verify.traces import Array

# Measured on digits-cnn after 60 updates: float64 1e-15 where instances equal one, 7e-2 for a real mistake;
# in float32 the order of a sum alone gives 1.8e-2, so only the first update's gradients can tell.
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}


@dataclass(frozen=True)
class Difference:
    """How far one update of two runs differs. Relative: ‖a − b‖ ÷ ‖b‖ over all tensors, b being one instance's."""

    update: int
    gradients: float
    parameters: float
    buffers: float
    loss: float
    same_samples: bool  # the same samples in the same micro batches
    gradient_factor: float  # the multiple of b's gradients that is closest to a's
    gradient_residual: float  # what remains of a's gradients after subtracting that multiple

    def as_json(self) -> dict[str, Any]:
        """Return the difference for `--json`: null if it was not measured; infinities, which JSON lacks, as text."""
        return {name: _in_json(value) for name, value in asdict(self).items()}

    @property
    def missing(self) -> list[str]:
        """The names of the figures that are null in JSON."""
        return [name for name, value in self.as_json().items() if value is None]


def _in_json(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)


def differences(several: Trace, one: Trace) -> Iterator[Difference]:
    """Yield the difference of each update that both traces hold."""
    for number in sorted(set(several.updates) & set(one.updates)):
        yield difference(several.update(number), one.update(number))


def difference(several: Update, one: Update) -> Difference:
    """Return the difference of one update of two runs."""
    factor, residual = _multiple(several.gradients, one.gradients)
    return Difference(
        update=several.number,
        gradients=relative(several.gradients, one.gradients),
        parameters=relative(several.parameters, one.parameters),
        buffers=relative(several.buffers, one.buffers),
        loss=_loss_apart(several.loss, one.loss),
        same_samples=several.samples == one.samples,
        gradient_factor=factor,
        gradient_residual=residual,
    )


def _loss_apart(actual: float | None, expected: float | None) -> float:
    if actual is None or expected is None:
        return math.nan
    # A loss near 0 is a difference of larger numbers and keeps their rounding errors.
    return abs(actual - expected) / max(1.0, abs(expected))


def relative(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Return ‖actual − expected‖ ÷ ‖expected‖ over all tensors; infinite if names or shapes differ."""
    if {name: value.shape for name, value in actual.items()} != {name: value.shape for name, value in expected.items()}:
        return math.inf
    apart = math.fsum(float(((actual[name] - expected[name]) ** 2).sum()) for name in expected)
    return _ratio(apart, _squares(expected))


def _multiple(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> tuple[float, float]:
    squares = _squares(expected)
    if actual.keys() != expected.keys() or not squares:
        return math.nan, math.inf
    factor = math.fsum(float((actual[name] * expected[name]).sum()) for name in expected) / squares
    left = math.fsum(float(((actual[name] - factor * expected[name]) ** 2).sum()) for name in expected)
    return factor, _ratio(left, _squares(actual))


def _squares(tensors: Mapping[str, Array]) -> float:
    return math.fsum(float((value**2).sum()) for value in tensors.values())


def _ratio(apart: float, whole: float) -> float:
    if apart == 0.0:
        return 0.0
    return math.sqrt(apart / whole) if whole else math.inf
