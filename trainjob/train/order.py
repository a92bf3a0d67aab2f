"""The one order of samples: a keyed permutation of each epoch, a pure function with no state to save.

A Feistel network stirs the positions of a power of two at least as large as the data set; a result beyond the data
set goes through the network again until it falls inside (cycle walking), which keeps the map one to one. Memory
stays with the positions asked for, whatever the size of the data set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainjob.train.draws import ORDER, key, mix_array

_ROUNDS = 8


class Permutation:
    """The order of `samples` samples in one epoch."""

    def __init__(self, seed: int, epoch: int, samples: int) -> None:
        bits = max(2, (samples - 1).bit_length())
        self.samples = samples
        self._low_bits = np.uint64(bits // 2)
        self._low_mask = np.uint64((1 << (bits // 2)) - 1)
        self._high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
        self._keys = [np.uint64(key(seed, ORDER, epoch, turn)) for turn in range(_ROUNDS)]

    def __call__(self, positions: Any) -> Any:
        """Return the sample at each position: (n,) whole numbers below `samples` in, (n,) int64 out."""
        values = self._stir(np.asarray(positions).astype(np.uint64))
        outside = np.flatnonzero(values >= self.samples)
        while len(outside):
            values[outside] = self._stir(values[outside])
            outside = outside[values[outside] >= self.samples]
        return values.astype(np.int64)

    def _stir(self, values: Any) -> Any:
        low, high = values & self._low_mask, values >> self._low_bits
        for turn in range(0, _ROUNDS, 2):
            high ^= mix_array(low ^ self._keys[turn]) & self._high_mask
            low ^= mix_array(high ^ self._keys[turn + 1]) & self._low_mask
        return (high << self._low_bits) | low
