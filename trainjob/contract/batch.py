"""The arithmetic of a batch: one implementation for the plan and for the ranks.

A block is what an engine takes at once: device iterations × global batch samples. An epoch has as many whole blocks as
the data set fills ("drop"), or one more that begins the epoch's order again ("pad").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple


def blocks_per_epoch(samples: int, block: int, remainder: str) -> int:
    """Return the blocks of an epoch: the data set's whole blocks, rounded up where the remainder is padded."""
    padded = block - 1 if remainder == "pad" else 0
    return (samples + padded) // block


def share(global_batch: int, instances: int, index: int) -> Tuple[int, int]:
    """Return the first sample of every global batch that instance `index` takes, and the one after its last."""
    size = global_batch // instances
    return index * size, (index + 1) * size


@dataclass(frozen=True)
class Batch:
    """The arithmetic of one weight update, one block, one epoch. Counts are samples unless named.

    What depends on the number of samples is None as long as that is not known.
    """

    micro_batch: int
    accumulation: int
    replicas: int
    device_iterations: int
    remainder: str
    global_batch: int  # of one weight update
    block: int  # that all instances together take at once
    samples: Optional[int] = None
    epochs: Optional[int] = None
    updates: Optional[int] = None  # as requested, instead of epochs
    blocks_per_epoch: Optional[int] = None  # steps of each instance's loader
    updates_per_epoch: Optional[int] = None
    total_updates: Optional[int] = None  # of the whole run
    dropped: Optional[int] = None  # of an epoch, which no update sees
    padded: Optional[int] = None  # of an epoch, which are seen a second time to fill the last block

    @classmethod
    def of(
        cls,
        micro_batch: int,
        accumulation: int,
        replicas: int,
        device_iterations: int,
        samples: Optional[int],
        remainder: str,
        epochs: Optional[int],
        updates: Optional[int],
    ) -> "Batch":
        """Return the arithmetic that follows from these numbers."""
        global_batch = micro_batch * accumulation * replicas
        block = global_batch * device_iterations
        counts = (micro_batch, accumulation, replicas, device_iterations, remainder, global_batch, block)
        if samples is None:
            return cls(*counts, epochs=epochs, updates=updates, total_updates=updates)
        blocks = blocks_per_epoch(samples, block, remainder)
        per_epoch = blocks * device_iterations
        return cls(
            *counts,
            samples=samples,
            epochs=epochs,
            updates=updates,
            blocks_per_epoch=blocks,
            updates_per_epoch=per_epoch,
            total_updates=updates if updates is not None or epochs is None else epochs * per_epoch,
            dropped=max(0, samples - blocks * block),
            padded=max(0, blocks * block - samples),
        )
