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
    """The arithmetic of one weight update, one block, one epoch. Counts are samples unless named."""

    micro_batch: int
    accumulation: int
    replicas: int
    device_iterations: int
    samples: Optional[int]  # None: known when it runs
    remainder: str
    epochs: Optional[int]
    updates: Optional[int]

    @property
    def global_batch(self) -> int:
        """Samples of one weight update."""
        return self.micro_batch * self.accumulation * self.replicas

    @property
    def block(self) -> int:
        """Samples that all instances together take at once."""
        return self.global_batch * self.device_iterations

    @property
    def blocks_per_epoch(self) -> Optional[int]:
        """Steps of each instance's loader in an epoch; None while the number of samples is not known."""
        return None if self.samples is None else blocks_per_epoch(self.samples, self.block, self.remainder)

    @property
    def updates_per_epoch(self) -> Optional[int]:
        """Weight updates in an epoch."""
        return None if self.blocks_per_epoch is None else self.blocks_per_epoch * self.device_iterations

    @property
    def dropped(self) -> Optional[int]:
        """Samples of an epoch that no update sees."""
        if self.samples is None or self.blocks_per_epoch is None:
            return None
        return max(0, self.samples - self.blocks_per_epoch * self.block)

    @property
    def padded(self) -> Optional[int]:
        """Samples of an epoch that are seen a second time to fill the last block."""
        if self.samples is None or self.blocks_per_epoch is None:
            return None
        return max(0, self.blocks_per_epoch * self.block - self.samples)

    @property
    def total_updates(self) -> Optional[int]:
        """Weight updates of the whole run."""
        if self.updates is not None:
            return self.updates
        if self.epochs is None or self.updates_per_epoch is None:
            return None
        return self.epochs * self.updates_per_epoch
