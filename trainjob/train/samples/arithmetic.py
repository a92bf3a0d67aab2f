"""The arithmetic of a run: which update is in which epoch, and which samples an instance holds of it.

Update u takes the u-th global batch. Its micro batches have one fixed order, and instance i of N holds the i-th of N
equal slices of them. So the samples of an update don't depend on the number of instances, and resuming is a division.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Tuple

import numpy as np

from trainjob.contract import batch
from trainjob.contract.errors import UserError
from trainjob.train.samples.draws import Permutation

if TYPE_CHECKING:
    from trainjob.train.samples.draws import Indices


class Arithmetic(NamedTuple):
    """Counts are samples unless named otherwise."""

    samples: int
    micro_batch: int
    micro_batches: int  # of one update, over all instances: accumulation × replicas
    instances: int
    device_iterations: int
    remainder: str
    seed: int

    @property
    def global_batch(self) -> int:
        """Samples of one weight update."""
        return self.micro_batch * self.micro_batches

    @property
    def block(self) -> int:
        """Samples that all instances together take at once."""
        return self.global_batch * self.device_iterations

    @property
    def micro_batches_per_instance(self) -> int:
        """Micro batches of one update that one instance holds."""
        return self.micro_batches // self.instances

    @property
    def share(self) -> int:
        """Samples of one update that one instance holds."""
        return self.global_batch // self.instances

    @property
    def updates_per_epoch(self) -> int:
        """Weight updates in an epoch; a multiple of the device iterations."""
        return batch.blocks_per_epoch(self.samples, self.block, self.remainder) * self.device_iterations

    def place(self, update: int) -> Tuple[int, int]:
        """Return the epoch of `update` and its number within that epoch, both counted from 0."""
        return divmod(update, self.updates_per_epoch)

    def epoch_of(self, updates: int) -> int:
        """Return the epoch of the last of `updates` updates, counted from 1; 0 before the first."""
        return -(-updates // self.updates_per_epoch)

    def first_micro_batch(self, instance: int) -> int:
        """Return the index in the global batch of the first micro batch that `instance` holds."""
        return instance * self.micro_batches_per_instance

    def slots(self, instance: int) -> Indices:
        """Return the places in a global batch that `instance` holds: (share,) int64."""
        return np.arange(*batch.share(self.global_batch, self.instances, instance), dtype=np.int64)

    def sample_indices(self, first_update: int, updates: int, instance: int) -> Indices:
        """Return the samples that `instance` takes in `updates` updates of one epoch: (updates, share) int64."""
        epoch, within = self.place(first_update)
        starts = np.arange(within, within + updates, dtype=np.int64)[:, None] * self.global_batch
        positions = (starts + self.slots(instance)).reshape(-1)
        # Only a padded remainder reaches beyond the data set; it repeats the beginning of the epoch's order.
        order = Permutation(self.seed, epoch, self.samples)
        return order(positions % self.samples).reshape(updates, self.share)


def check(counts: Arithmetic) -> Arithmetic:
    """Return `counts`. Raises UserError unless instances share the micro batches equally and an epoch has an update."""
    if counts.micro_batches % counts.instances:
        raise UserError(
            (
                "every instance must hold the same number of micro batches, and there are %d micro "
                "batches for %d instances"
            )
            % (counts.micro_batches, counts.instances),
            "choose a number of instances that divides %d" % counts.micro_batches,
        )
    if counts.updates_per_epoch < 1:
        raise UserError(
            (
                "an epoch must have at least one block of device iterations × global batch = %d "
                "samples, and the data set has %d"
            )
            % (counts.block, counts.samples),
            "use a smaller micro batch, less accumulation, or --remainder pad",
        )
    return counts
