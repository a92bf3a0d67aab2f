"""Reads the traces of runs (samples, gradients, parameters and buffers of each update), and compares two."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import metrics
from trainjob.records.safetensors import pieces
from trainjob.records.trace import BUFFER, GRADIENT, PARAMETER, TracePaths

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

# safetensors' names of the types that a trace holds -> numpy's
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
_WHOLE = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1"}
_TYPES = {**_FLOATS, **_WHOLE, "BOOL": "?"}


@dataclass(frozen=True)
class Update:
    """One weight update as rank 0 saw it, and each rank's digests. Tensors by name, as float64."""

    number: int
    gradients: Mapping[str, Array]
    parameters: Mapping[str, Array]
    buffers: Mapping[str, Array]
    loss: float | None
    samples: tuple[tuple[str, ...], ...]  # of each micro batch of the global batch, in order
    gradient_digests: tuple[str, ...]  # by rank
    parameter_digests: tuple[str, ...]  # by rank


@dataclass(frozen=True)
class TraceLine:
    """One update of one rank."""

    attempt: int
    update: int
    samples: Mapping[str, Sequence[str]]  # digests of samples by the number of their micro batch
    gradients: str = ""  # digests, of a full trace
    parameters: str = ""


@dataclass(frozen=True)
class RunTrace:
    """The trace of a run. Updates are read one at a time: all those of a large model would fill the memory."""

    paths: RunPaths
    updates: tuple[int, ...]
    layers: tuple[str, ...]
    buffers: frozenset[str]  # the names of tensors that are not parameters
    repeatable: bool
    reads_buffers: bool  # the buffers that one forward pass leaves change the outputs of the next
    stream: bool  # the data set is iterable: the order of samples is its own
    lines: tuple[Mapping[int, TraceLine], ...]  # by rank, by update; the last attempt of an update counts
    last_of_attempts: frozenset[int]  # the last update that each attempt has recorded
    losses: Mapping[int, float]

    def update(self, number: int) -> Update:
        """Return update `number`, counted from 1."""
        tensors = dict(tensors_of(TracePaths(self.paths).update(number)))
        of_kind = {
            kind: {name[len(kind) :]: value for name, value in tensors.items() if name.startswith(kind)}
            for kind in (GRADIENT, PARAMETER, BUFFER)
        }
        return Update(
            number=number,
            gradients=of_kind[GRADIENT],
            parameters=of_kind[PARAMETER],
            buffers=of_kind[BUFFER],
            loss=self.losses.get(number),
            samples=self.samples(number),
            gradient_digests=tuple(line[number].gradients for line in self.lines if number in line),
            parameter_digests=self.parameter_digests(number),
        )

    def parameter_digests(self, number: int) -> tuple[str, ...]:
        """Return the digest of the weights after update `number`, by rank."""
        return tuple(line[number].parameters for line in self.lines if number in line)

    def samples(self, number: int) -> tuple[tuple[str, ...], ...]:
        """Return the digests of one update's samples by micro batch, without reading its tensors."""
        return tuple(samples for _, samples in sorted(self._micro_batches(number).items()))

    def _micro_batches(self, number: int) -> dict[int, tuple[str, ...]]:
        parts = [line[number].samples for line in self.lines if number in line]
        return {int(index): tuple(rows) for part in parts for index, rows in part.items()}

    def has_samples_of(self, whole: RunTrace) -> bool:
        """Return whether this run, which may have been interrupted, took the samples of `whole`, update by update.

        A rank that is killed may not have recorded the last update of its attempt, which counts all the same if rank 0
        has saved it: of such an update, what was recorded is compared.
        """
        if self.updates != whole.updates:
            return False
        for number in self.updates:
            mine, its = self._micro_batches(number), whole._micro_batches(number)
            same = mine.items() <= its.items() if number in self.last_of_attempts else mine == its
            if not same:
                return False
        return True


def read(paths: RunPaths) -> RunTrace:
    """Return the trace of a run. Raises UserError if the run left none."""
    files = TracePaths(paths)
    model = files.facts()
    ranks = [[TraceLine(**line) for line in of_rank] for of_rank in files.ranks()]
    newest: dict[int, int] = {}
    last: dict[int, int] = {}
    for line in (line for of_rank in ranks for line in of_rank):
        newest[line.update] = max(newest.get(line.update, 0), line.attempt)
        last[line.attempt] = max(last.get(line.attempt, 0), line.update)
    lines = tuple({line.update: line for line in of_rank if line.attempt == newest[line.update]} for of_rank in ranks)
    if model is None or not any(lines):
        raise UserError(
            f"run {paths.id} left no trace to compare: it ended before its first update", "give more --updates"
        )
    updates = tuple(sorted({number for of_rank in lines for number in of_rank}))
    losses = {line.update: line.loss for line in metrics.read(paths) if line.kind == "train" and line.loss is not None}
    flags = (model["repeatable"], model["reads_buffers"], bool(model.get("stream")))
    names = tuple(model["layers"]), frozenset(model.get("buffers", ()))
    return RunTrace(paths, updates, *names, *flags, lines, frozenset(last.values()), losses)


def tensors_of(*paths: Path) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of a safetensors file, or of the parts of a model, by name, as float64."""
    import numpy as np

    # Mapped, not read: only the tensors of a large model that are being compared are in memory.
    contents = {path: np.memmap(path, dtype=np.uint8, mode="r") for path in paths}
    for name, listed in pieces(paths).items():
        parts = []
        for path, place, _ in listed:
            values = contents[path][place.start : place.start + place.size].view(_TYPES[place.dtype])
            parts.append(values.reshape(place.shape).astype(np.float64, copy=False))
        yield name, parts[0] if len(parts) == 1 else np.concatenate(parts)


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
