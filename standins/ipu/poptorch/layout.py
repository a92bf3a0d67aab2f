"""The layout of a combined batch in memory, and of its results that come back. The only place that knows.

Nobody has written down how poptorch lays out the samples of one call over device iterations, replicas and
accumulation. This stand-in takes the outermost first: device iterations, replicas, accumulation, micro batch; results
lie as inputs do. A program must not depend on more than that an update's samples lie together.
"""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple

import torch

from poptorch.enums import OutputMode
from poptorch.errors import Error


class Shape(NamedTuple):
    """The micro batches of one call."""

    iterations: int
    replicas: int
    accumulation: int
    inputs: int  # replicas that have an input of their own

    @property
    def of_input(self) -> int:
        """Micro batches that a call's input holds."""
        return self.iterations * self.inputs * self.accumulation

    def place_of(self, iteration: int, source: int, micro_batch: int) -> int:
        """Return where in the input the micro batch lies that replicas with input `source` take."""
        return (iteration * self.inputs + source) * self.accumulation + micro_batch


def micro_batch(tensor: Any, place: int, count: int) -> Any:
    """Return part `place` of `count` equal parts of an input. Raises Error if it can't be divided so."""
    if count == 1:
        return tensor
    if tensor.dim() == 0 or tensor.shape[0] % count:
        raise Error(
            "Invalid batch dimension: In the input %s, the batch dimension (%s) must be a multiple of "
            "deviceIterations x replicationFactor / input group x gradientAccumulation = %d"
            % (tuple(tensor.shape), tensor.shape[0] if tensor.dim() else "none", count)
        )
    size = tensor.shape[0] // count
    return tensor[place * size : (place + 1) * size]


class Results:
    """Gathers what each micro batch gives, and hands back what the output mode asks for."""

    def __init__(self, shape: Shape, mode: OutputMode, period: int) -> None:
        self._shape, self._mode, self._period = shape, mode, period
        self._kept: List[List[Any]] = []
        self._sums: List[List[Any]] = [[] for _ in range(shape.replicas)]
        if mode == OutputMode.EveryN and (shape.iterations * shape.accumulation) % period:
            raise Error(
                "the output return period must divide device iterations x accumulation: %d, and %d"
                % (period, shape.iterations * shape.accumulation)
            )

    def add(self, iteration: int, replica: int, number: int, tensors: List[Any]) -> None:
        """Take the results of micro batch `number` of `replica` in `iteration`; they come in the layout's order."""
        if self._mode == OutputMode.Sum:
            before = self._sums[replica]
            self._sums[replica] = [one + other for one, other in zip(before, tensors)] if before else tensors
        elif self._is_asked_for(iteration, number):
            self._kept.append(tensors)

    def _is_asked_for(self, iteration: int, number: int) -> bool:
        if self._mode == OutputMode.All:
            return True
        if self._mode == OutputMode.EveryN:
            return (iteration * self._shape.accumulation + number + 1) % self._period == 0
        return (iteration, number) == (self._shape.iterations - 1, self._shape.accumulation - 1)

    def joined(self) -> Iterator[Any]:
        """Yield each result over all micro batches that were asked for: joined along the first dimension."""
        rows = self._sums if self._mode == OutputMode.Sum else self._kept
        for parts in zip(*rows):
            if len(parts) == 1:
                yield parts[0]
            else:
                yield torch.cat([part.reshape(1) if part.dim() == 0 else part for part in parts])
