"""Who takes which samples: instances × loader processes against the data set."""

from __future__ import annotations

from trainjob.plan.rules import Knob, refuse
from trainjob.plan.values import Batch
from trainjob.plan.words import number, quantity

ENOUGH_SAMPLES = "every loader process has at least one sample"


def split(instances: int, workers: int, samples: int) -> int:
    """Return the most samples of an epoch that one loader process reads. Raises Broken where one would have none.

    An instance without workers loads by itself, so that is one process too.
    """
    loaders = instances * max(1, workers)
    if loaders > samples:
        found = f"{quantity(instances, 'instance')} × {max(1, workers)} = {number(loaders)} loader processes"
        knobs = [Knob("instances", instances, (samples // max(1, workers),))]
        if workers > 1:
            knobs.append(Knob("workers", workers, (samples // instances,)))
        refuse(ENOUGH_SAMPLES, f"{found} and {quantity(samples, 'sample')}", *knobs)
    return -(-samples // loaders)


def share(batch: Batch, instances: int, index: int) -> tuple[int, int]:
    """Return the first sample of every global batch that instance `index` takes, and the one after its last."""
    size = batch.global_batch // instances
    return index * size, (index + 1) * size
