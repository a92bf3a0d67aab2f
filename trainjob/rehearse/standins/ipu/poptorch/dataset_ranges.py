"""Which samples of a map-style data set a process takes in an epoch."""

from __future__ import annotations

from typing import Any, Iterator, Optional

import torch


class ProcessSampler:
    """One process's samples: a contiguous part of the data set, or of one permutation that all processes draw alike.

    With `whole_batches` all parts are the same whole number of combined batches; what is left over takes part in every
    other epoch, when all parts begin that much later. Without, parts are equal give or take one sample.
    """

    def __init__(
        self, samples: int, combined: int, process: int, processes: int, whole_batches: bool, seed: Optional[int]
    ) -> None:
        self._samples, self._process, self._processes = samples, process, processes
        self._each = combined * (samples // (combined * processes)) if whole_batches else None
        self._generator: Any = None if seed is None else torch.Generator().manual_seed(seed)
        self._epoch = 0

    def __len__(self) -> int:
        if self._each is not None:
            return self._each
        return self._bound(self._process + 1) - self._bound(self._process)

    def __iter__(self) -> Iterator[int]:
        begin = self._begin()
        self._epoch += 1
        part = range(begin, begin + len(self))
        if self._generator is None:
            return iter(part)
        order = torch.randperm(self._samples, generator=self._generator)
        return iter(order[part.start : part.stop].tolist())

    def _begin(self) -> int:
        if self._each is None:
            return self._bound(self._process)
        left_over = self._samples - self._each * self._processes
        return self._process * self._each + (left_over if self._epoch % 2 else 0)

    def _bound(self, process: int) -> int:
        return self._samples * process // self._processes
