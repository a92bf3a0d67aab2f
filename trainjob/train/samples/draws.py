"""Random numbers and the order of samples, without a state to save: every draw is a hash of its purpose.

Dropout and augmentation draw from (seed, update, place in the global batch). So it makes no difference which instance
holds a micro batch, or whether the run was interrupted before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]
    Words = NDArray[np.uint64]

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB

# The purposes of draws. The numbers affect the result of every run: never change one, only add.
WEIGHTS, ORDER, MICRO_BATCH, AUGMENTATION, DATA, HELD_OUT, STREAM = range(1, 8)


def mix(value: int) -> int:
    """Return splitmix64's next output for state `value`: 64 well-mixed bits."""
    value = (value + _STEP) & _MASK
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def key(*words: int) -> int:
    """Return 64 bits that depend on every word and on their order."""
    state = 0
    for word in words:
        state = mix(state ^ (word & _MASK))
    return state


def mix_array(values: Words) -> Words:
    """Return `mix` of every element, as a new array of the same shape."""
    values = values + np.uint64(_STEP)
    values ^= values >> np.uint64(30)
    values *= np.uint64(_FIRST)
    values ^= values >> np.uint64(27)
    values *= np.uint64(_SECOND)
    values ^= values >> np.uint64(31)
    return values


def micro_batch_seed(seed: int, update: int, micro_batch: int) -> int:
    """Return the seed of torch's generator for micro batch `micro_batch` of the global batch of `update`."""
    return key(seed, MICRO_BATCH, update, micro_batch)


class Draws:
    """Random numbers for the augmentation of some samples, each of which has its own stream.

    `updates` and `slots` have shape (samples,): the update that takes a sample, and the sample's place in the global
    batch of that update. Every call takes the next number of each stream.
    """

    def __init__(self, seed: int, updates: Indices, slots: Indices) -> None:
        start = np.uint64(key(seed, AUGMENTATION))
        self._state = mix_array(mix_array(updates.astype(np.uint64) ^ start) ^ slots.astype(np.uint64))

    def below(self, limit: int) -> Indices:
        """Return whole numbers in [0, limit), one per sample."""
        # The top 32 bits times the limit; the bias is less than limit ÷ 2³².
        self._state = mix_array(self._state)
        scaled = (self._state >> np.uint64(32)) * np.uint64(limit)
        drawn: Indices = (scaled >> np.uint64(32)).astype(np.int64)
        return drawn

    def floats(self) -> NDArray[np.float64]:
        """Return numbers in [0, 1), one per sample."""
        self._state = mix_array(self._state)
        drawn: NDArray[np.float64] = (self._state >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return drawn


_ROUNDS = 8


class Permutation:
    """The order of `samples` samples in one epoch.

    A Feistel network permutes a power of two at least as large as the data set. A result beyond the data set goes
    through the network again until it falls inside (cycle walking), so the map stays one to one. Memory depends only on
    the number of positions requested, not on the size of the data set.
    """

    def __init__(self, seed: int, epoch: int, samples: int) -> None:
        bits = max(2, (samples - 1).bit_length())
        self.samples = samples
        self._low_bits = np.uint64(bits // 2)
        self._low_mask = np.uint64((1 << (bits // 2)) - 1)
        self._high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
        self._keys = [np.uint64(key(seed, ORDER, epoch, turn)) for turn in range(_ROUNDS)]

    def __call__(self, positions: Indices) -> Indices:
        """Return the sample at each position; positions, (n,), are below `samples`."""
        values = self._stir(np.asarray(positions).astype(np.uint64))
        outside = np.flatnonzero(values >= self.samples)
        while len(outside):
            values[outside] = self._stir(values[outside])
            outside = outside[values[outside] >= self.samples]
        return values.astype(np.int64)

    def _stir(self, values: Words) -> Words:
        low, high = values & self._low_mask, values >> self._low_bits
        for turn in range(0, _ROUNDS, 2):
            high ^= mix_array(low ^ self._keys[turn]) & self._high_mask
            low ^= mix_array(high ^ self._keys[turn + 1]) & self._low_mask
        stirred: Words = (high << self._low_bits) | low
        return stirred
