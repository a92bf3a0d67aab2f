"""The tutorial's benchmark: ffnet-toy while its model grows, and while its data grow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.bench.scaling import measure
from trainjob.requests.workbench import Workbench

TASK = "ffnet-toy"
_INPUTS, _LAYERS, _OUTPUTS = 100, 3, 1  # the task's own


@dataclass(frozen=True)
class Growth:
    """One width, one size of the data, one number of instances. Times are medians over epochs after a warm-up."""

    width: int
    parameters: int
    samples: int
    instances: int
    seconds_per_epoch: float
    samples_per_s: float
    communication_share: float

    def as_json(self) -> dict[str, Any]:
        """Return the row for `--json`."""
        return asdict(self)


def growth(
    workbench: Workbench, widths: Sequence[int], sizes: Sequence[int], numbers: Sequence[int], *, epochs: int
) -> Iterator[Growth]:
    """Yield a row for each width at the first size, then for each further size at the first width.

    Raises Refusal if a case can't be planned, and UserError if a run fails.
    """
    pairs = [(width, sizes[0]) for width in widths] + [(widths[0], samples) for samples in sizes[1:]]
    cases = [(width, samples, instances) for width, samples in pairs for instances in numbers]
    for number, (width, samples, instances) in enumerate(cases, start=1):
        workbench.say(f"{number} of {len(cases)}: width {width}, {samples:,} samples")
        options = {**workbench.request.job.set, "width": width, "samples": samples}
        # One thread each: instances that share cores would otherwise be compared with one that has them all.
        environ = {**workbench.request.job.env, "OMP_NUM_THREADS": "1"}
        grown = {"task": TASK, "set": options, "samples": samples, "env": environ}
        scale = measure(workbench, instances, epochs, None, grown)
        yield Growth(
            width=width,
            parameters=parameters(width),
            samples=samples,
            instances=scale.instances,
            seconds_per_epoch=scale.seconds_per_epoch,
            samples_per_s=scale.samples_per_s,
            communication_share=scale.communication_share,
        )


def parameters(width: int) -> int:
    """Return the weights and biases of ffnet-toy with hidden layers of `width`."""
    sizes = [_INPUTS, *[width] * _LAYERS, _OUTPUTS]
    return sum((before + 1) * after for before, after in itertools.pairwise(sizes))
