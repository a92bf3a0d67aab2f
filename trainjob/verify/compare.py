"""Compares two traces, update by update: how far they differ, and from which update on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trainjob.verify.traces import RunTrace, Update

if TYPE_CHECKING:
    from trainjob.verify.traces import Array

# Measured on digits-cnn after 60 updates: float64 1e-15 where instances equal one, 7e-2 for a real mistake;
# in float32 the order of a sum alone gives 1.8e-2, so only the first update's gradients can tell.
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}


@dataclass(frozen=True)
class Difference:
    """The difference of one update of two runs. Relative: ‖a − b‖ ÷ ‖b‖ over all tensors, b being one instance's."""

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
        figures = {name: None if math.isnan(value) else value for name, value in asdict(self).items()}
        return {name: str(value) if value in (math.inf, -math.inf) else value for name, value in figures.items()}

    @property
    def figures(self) -> tuple[float, ...]:
        """Gradients, parameters, buffers and loss, which are shown."""
        return (self.gradients, self.parameters, self.buffers, self.loss)

    @property
    def missing(self) -> list[str]:
        """The names of the figures that are null in JSON."""
        return [name for name, value in self.as_json().items() if value is None]


def differences(several: RunTrace, one: RunTrace) -> Iterator[Difference]:
    """Yield the difference of each update that both traces hold."""
    for number in sorted(set(several.updates) & set(one.updates)):
        yield difference(several.update(number), one.update(number))


def difference(several: Update, one: Update) -> Difference:
    """Return the difference of one update of two runs."""
    factor, residual = _multiple(several.gradients, one.gradients)
    loss = math.nan
    if several.loss is not None and one.loss is not None:
        # A loss near 0 is a difference of larger numbers and keeps their rounding errors.
        loss = abs(several.loss - one.loss) / max(1.0, abs(one.loss))
    return Difference(
        update=several.number,
        gradients=relative(several.gradients, one.gradients),
        parameters=relative(several.parameters, one.parameters),
        buffers=relative(several.buffers, one.buffers),
        loss=loss,
        same_samples=several.samples == one.samples,
        gradient_factor=factor,
        gradient_residual=residual,
    )


def relative(actual: Mapping[str, Array], expected: Mapping[str, Array], factor: float = 1.0) -> float:
    """Return ‖actual − factor × expected‖ ÷ ‖expected‖ over all tensors; infinite if names or shapes differ."""
    if {name: value.shape for name, value in actual.items()} != {name: value.shape for name, value in expected.items()}:
        return math.inf
    apart = math.fsum(float(((actual[name] - factor * expected[name]) ** 2).sum()) for name in expected)
    whole = _product(expected, expected)
    return math.sqrt(apart / whole) if whole else math.inf if apart else 0.0


def _multiple(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> tuple[float, float]:
    """Return the multiple of `expected` that is closest to `actual`, and what remains, relative to `actual`."""
    squares = _product(expected, expected)
    if actual.keys() != expected.keys() or not squares:
        return math.nan, math.inf
    factor = _product(actual, expected) / squares
    left = relative(actual, expected, factor)
    whole = math.sqrt(_product(actual, actual) / squares)
    return factor, left / whole if whole else 0.0


def _product(one: Mapping[str, Array], other: Mapping[str, Array]) -> float:
    return math.fsum(float((one[name] * other[name]).sum()) for name in other)
