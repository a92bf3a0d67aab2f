"""Randomness without a state to save: every draw is a hash of what it is for.

Dropout and augmentation draw from (seed, update, place in the global batch), so that it makes no difference which
instance holds a micro batch, or whether the run was interrupted before it.
"""

from __future__ import annotations

from typing import Any, Union

import numpy as np

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB

# What a draw is for. The numbers are part of every run's result: never change one, only add.
WEIGHTS, ORDER, MICRO_BATCH, AUGMENTATION, DATA, HELD_OUT, STREAM = range(1, 8)


def mix(value: int) -> int:
    """Return splitmix64's next output for state `value`: 64 well-stirred bits."""
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


def mix_array(values: Any) -> Any:
    """Return `mix` of every element: uint64 in, a new uint64 array of the same shape out."""
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
    """Draws for the augmentation of some samples: each sample has a stream of its own.

    `updates` and `slots` are arrays of one shape (samples,): the update that takes a sample, and the sample's place
    in that update's global batch. Every call takes the next number of each stream.
    """

    def __init__(self, seed: int, updates: Any, slots: Any) -> None:
        start = np.uint64(key(seed, AUGMENTATION))
        self._state = mix_array(mix_array(_unsigned(updates) ^ start) ^ _unsigned(slots))

    def integers(self, low: int, high: int) -> Any:
        """Return whole numbers in [low, high), int64, one a sample."""
        # The top 32 bits times the range: biased by less than range ÷ 2³².
        scaled = (self._next() >> np.uint64(32)) * np.uint64(high - low)
        return (scaled >> np.uint64(32)).astype(np.int64) + low

    def floats(self) -> Any:
        """Return numbers in [0, 1), float64, one a sample."""
        return (self._next() >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def _next(self) -> Any:
        self._state = mix_array(self._state)
        return self._state


def _unsigned(values: Union[Any, int]) -> Any:
    return np.asarray(values).astype(np.uint64)
