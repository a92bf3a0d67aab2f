"""The visible parts of a compiled model: tensors by name, times, random numbers. What needs hardware says so."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Dict, Iterator, List, Tuple

import torch

from poptorch.errors import Error

_EVENTS = ("input", "input_complete", "output", "output_complete")
_Latency = Tuple[float, float, float]


class Inspection:
    """The part of an executor that answers questions."""

    _program: Any
    _options: Any
    _training: bool

    def _begin_inspection(self) -> None:
        self._seconds: List[float] = []
        self._ran_from, self._ran_to, self._compiled_in = 0.0, 0.0, 0.0

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        self._ran_from = time.perf_counter()
        yield
        self._ran_to = time.perf_counter()

    def _compiled(self) -> Any:
        if self._program is None:
            raise Error("Model has not been compiled or has been destroyed.")
        return self._program

    def isCompiled(self) -> bool:
        """Return whether it is compiled."""
        return self._program is not None

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Return False: after every call the host has the weights."""
        return False

    # -- tensors -------------------------------------------------------------------------------

    def getTensorNames(self) -> List[str]:
        """Return the names of weights, and in training of their gradients and updates; a compiler knows more."""
        assert self._program is not None, "Model must be compiled before calling getTensorNames"  # noqa: S101
        return list(self._program.tensor_names())

    def getAnchoredTensor(self, short_name: str) -> Any:
        """Return an anchored tensor of the last call, by its mode. Raises AssertionError for no such anchor."""
        anchors = self._options.anchored_tensors
        assert short_name in anchors, "No tensor with name %s found." % short_name  # noqa: S101 - poptorch's own
        assert self._ran_to, "the model must be run before anchored tensors can be read"  # noqa: S101 - as above
        return self._compiled().anchored(*anchors[short_name])

    # -- random numbers ------------------------------------------------------------------------

    @property
    def rng_state(self) -> List[int]:
        """Return the state of the device's random numbers. Raises Error unless it is compiled."""
        return [int(byte) for byte in self._compiled()._random_state]

    @rng_state.setter
    def rng_state(self, state: List[int]) -> None:
        self._compiled()._random_state = torch.tensor(state, dtype=torch.uint8)

    # -- times, of this CPU --------------------------------------------------------------------

    def getPerfCounters(self) -> Dict[str, List[List[float]]]:
        """Return when the last call began and ended, in seconds: of this CPU, as one input and one output."""
        if not self._ran_to:
            return {event: [[]] for event in _EVENTS}
        times = (self._ran_from, self._ran_from, self._ran_to, self._ran_to)
        return {event: [[second]] for event, second in zip(_EVENTS, times)}

    def getLatency(self) -> _Latency:
        """Return the shortest, longest and mean seconds from first input to last output in the last call."""
        return self._between("input", "output_complete")

    def getHostIpuLatency(self) -> _Latency:
        """Return the seconds that inputs took to the device."""
        return self._between("input", "input_complete")

    def getComputeLatency(self) -> _Latency:
        """Return the seconds from the last input to the last output."""
        return self._between("input_complete", "output")

    def getIpuHostLatency(self) -> _Latency:
        """Return the seconds that outputs took to the host."""
        return self._between("output", "output_complete")

    def _between(self, begin: str, end: str) -> _Latency:
        counters = self.getPerfCounters()
        if not counters[begin][0]:
            return 0.0, 0.0, 0.0
        seconds = counters[end][0][0] - counters[begin][0][0]
        return seconds, seconds, seconds

    def compilationTime(self) -> float:
        """Return the seconds that compiling took here: nothing like those of an IPU."""
        self._compiled()
        return self._compiled_in

    def cycleCount(self) -> int:
        """Raise Error: cycles are the hardware's."""
        if not self._options.log_cycle_count:
            raise Error(
                "Cycle count logging is disabled. Please set option logCycleCount to True to enable.",
            )
        if self._program is None:
            raise Error("Please run the model at least once before obtaining cycle count.")
        raise Error("cycleCount needs IPU hardware: a stand-in on a CPU has no cycles to count")
