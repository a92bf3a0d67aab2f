"""Diagnoses why N instances don't train as one. Each clue looks for one kind of mistake."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from trainjob.verify.compare import Difference
from trainjob.verify.traces import Trace

# Parts of the samples out of place. Padding repeats samples that are seen at their own place, too; ranks that shuffle
# each for itself meet half of each other's by chance.
_AGAIN = 0.75
# Samples in another order are met at another time, in a part of an epoch a part of them; changed ones hardly ever.
_MOVED = 0.1
AMPLIFIED = "amplified-rounding"
# Sums in another order round at every step; a control's first weights are rounded only once.
_MORE_ROUNDING = 10.0


@dataclass(frozen=True)
class Finding:
    """One likely cause. `code` is stable, for machines; `evidence` holds the figures that point to it."""

    code: str
    text: str
    evidence: str
    cure: str

    def as_json(self) -> dict[str, str]:
        """Return the finding for `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class Evidence:
    """All that the clues look at. `apart` are the updates that differ by more than the tolerance, in order.

    `control` returns what rounding alone does to an update of one instance. It is called last, because it trains.
    """

    several: Trace
    one: Trace
    instances: int
    apart: Sequence[Difference]
    tolerance: float
    control: Callable[[int], Difference] | None = None

    @property
    def first(self) -> Difference:
        """The first update that differs."""
        return self.apart[0]


Clue = Callable[[Evidence], Iterator[Finding]]


def diagnose(evidence: Evidence) -> list[Finding]:
    """Return the likely causes, the most telling first: different samples explain whatever follows from them."""
    for clues in _IN_ORDER:
        found = [finding for clue in clues for finding in clue(evidence)]
        if found:
            return found
    return [_unknown(evidence)]


def _samples(evidence: Evidence) -> Iterator[Finding]:
    number = _first_with_other_samples(evidence)
    if number is None:
        return
    sizes = _sizes(evidence.several, number)
    yield _uneven(number, sizes) if sizes != _sizes(evidence.one, number) else _displaced(evidence, number)


def _sizes(trace: Trace, number: int) -> list[int]:
    return [len(rows) for rows in trace.samples(number)]


def _displaced(evidence: Evidence, number: int) -> Finding:
    """Return the finding from samples that differ from those of one instance at the same place."""
    pairs = list(_pairs(evidence))
    strays = [ours for ours, theirs in pairs if ours != theirs]
    in_place = {ours for ours, theirs in pairs if ours == theirs}
    known = {theirs for _, theirs in pairs}
    again, moved = (sum(sample in others for sample in strays) for others in (in_place, known))
    where = f"from update {number} on, {len(strays)} samples differ from those of one instance at the same place"
    if again > _AGAIN * len(strays):
        return _padded(f"{where}; {again} of these also appear at their own place")
    if moved > _MOVED * len(strays):
        return _ordered_otherwise(f"{where}; one instance takes {moved} of these at another time")
    return _other_values(f"{where}; one instance takes {moved} of these at all")


def _pairs(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield each sample with the one that a single instance has at its place."""
    for number in _shared(evidence):
        for ours, theirs in zip(evidence.several.samples(number), evidence.one.samples(number), strict=False):
            yield from zip(ours, theirs, strict=False)


def _first_with_other_samples(evidence: Evidence) -> int | None:
    for number in _shared(evidence):
        if evidence.several.samples(number) != evidence.one.samples(number):
            return number
    return None


def _shared(evidence: Evidence) -> list[int]:
    return sorted(set(evidence.several.updates) & set(evidence.one.updates))


def _uneven(number: int, sizes: Sequence[int]) -> Finding:
    return Finding(
        "uneven-batch",
        "the batches of the instances differ in size, so the mean of their means is not the mean",
        f"update {number}: micro batches of {', '.join(str(size) for size in sizes)} samples",
        "Make the data set return every requested sample, on every rank; --remainder drops or pads the last batch",
    )


def _padded(figures: str) -> Finding:
    return Finding(
        "padding",
        "instances repeat samples to fill up their share",
        figures,
        "Let the runtime divide the data; a Dataset must not pad or repeat samples by rank",
    )


def _ordered_otherwise(figures: str) -> Finding:
    return Finding(
        "sample-order",
        "the same samples come in another order",
        figures,
        "Make the Dataset return sample i for index i on every rank, whatever was requested before",
    )


def _other_values(figures: str) -> Finding:
    return Finding(
        "sample-values",
        "samples have different values: the data set, or the random numbers of its augmentation, depend on the rank",
        figures,
        "Draw from torch, numpy or random, which the runtime seeds for each sample, not from a generator of your own; "
        "--updates of a whole epoch would show samples that only come in another order",
    )


def _not_reduced(evidence: Evidence) -> Iterator[Finding]:
    first = evidence.several.update(evidence.first.update)
    if first.ranks_agree:
        return
    averaged = any(evidence.several.ranks_end_equal(number) for number in evidence.several.updates)
    text = (
        "each instance steps with its own gradients, and the weights are averaged from time to time"
        if averaged
        else "each instance steps with its own gradients, and nothing synchronises the weights in these updates"
    )
    different = len(set(first.gradient_digests))
    yield Finding(
        "parameter-averaging" if averaged else "not-synchronised",
        text,
        f"update {first.number}: {different} different gradients on {evidence.instances} instances",
        "Use an engine that averages gradients before the step, such as ddp",
    )


def _scaled(evidence: Evidence) -> Iterator[Finding]:
    first = evidence.first
    if not first.gradient_residual <= evidence.tolerance:
        return
    if abs(first.gradient_factor - 1.0) > evidence.tolerance:
        yield _summed(
            f"{evidence.instances} instances' gradients are {first.gradient_factor:.6g} × those of one", first.update
        )
    elif _losses_are_a_multiple(evidence):
        yield _summed(
            "clipping makes the gradients equal, and one loss is the other × the number of instances", first.update
        )


def _losses_are_a_multiple(evidence: Evidence) -> bool:
    number = evidence.first.update
    several, one = evidence.several.losses.get(number, 0.0), evidence.one.losses.get(number, 0.0)
    return any(
        math.isclose(larger, evidence.instances * smaller, rel_tol=evidence.tolerance) and larger != smaller
        for larger, smaller in ((several, one), (one, several))
    )


def _summed(figures: str, number: int) -> Finding:
    return Finding(
        "mean-against-sum",
        "the gradients have the same direction and another length: one side sums where the other takes the mean",
        f"update {number}: {figures}",
        "Divide the loss only by the samples of the micro batch; the runtime divides by micro batches and replicas",
    )


def _random_stream(evidence: Evidence) -> Iterator[Finding]:
    if evidence.several.repeatable and evidence.one.repeatable:
        return
    yield Finding(
        "dropout-stream",
        "the model draws random numbers that do not depend on the seed of the micro batch, or counts its own calls",
        "the same micro batch with the same seed gave different outputs the second time",
        "Draw from torch's default generator (nn.Dropout does); the runtime seeds it for every micro batch",
    )


def _batch_norm(evidence: Evidence) -> Iterator[Finding]:
    if "SyncBatchNorm" in evidence.several.layers:
        yield Finding(
            "batch-norm-synchronised",
            "SyncBatchNorm computes statistics over the micro batches of all instances, and one instance over each",
            f"layers: {', '.join(evidence.several.layers)}",
            "Use BatchNorm, which computes its statistics over one micro batch in both cases",
        )


def _buffers(evidence: Evidence) -> Iterator[Finding]:
    # A model that draws random numbers itself gives different outputs anyway, which says nothing about its buffers.
    if evidence.several.reads_buffers and evidence.several.repeatable:
        first = evidence.first
        yield Finding(
            "batch-norm-not-synchronised",
            "training reads buffers that differ between instances: the running statistics of their own samples",
            f"update {first.update}: buffers are {first.buffers:.2g} apart; what one micro batch "
            "leaves in them changes the output of the next",
            "Normalise with the statistics of the micro batch while training, as nn.BatchNorm does",
        )


def _amplified(evidence: Evidence) -> Iterator[Finding]:
    # Both begin with the same bits, and no rounding can have grown before the first update: it must be a mistake.
    if evidence.control is None or evidence.first.update == min(_shared(evidence)):
        return
    apart, rounding = evidence.first, evidence.control(evidence.first.update)
    if _largest(apart) <= _MORE_ROUNDING * _largest(rounding):
        yield Finding(
            AMPLIFIED,
            "the task amplifies rounding, so that a comparison shows nothing here",
            f"update {apart.update}: gradients {apart.gradients:.2g}, parameters {apart.parameters:.2g} apart; of one "
            f"instance, by the last bits of its first weights alone: gradients {rounding.gradients:.2g}, parameters "
            f"{rounding.parameters:.2g}",
            "Give a larger --micro-batch, and compare again: normalising over very few values amplifies most",
        )


def _largest(difference: Difference) -> float:
    figures = (difference.gradients, difference.parameters, difference.loss)
    return max((figure for figure in figures if not math.isnan(figure)), default=0.0)


def _unknown(evidence: Evidence) -> Finding:
    first = evidence.first
    return Finding(
        "unknown",
        "the samples are the same and the training is not; none of the usual causes fits",
        f"update {first.update}: gradients {first.gradients:.2g}, parameters {first.parameters:.2g}, loss "
        f"{first.loss:.2g} apart; layers: {', '.join(evidence.one.layers)}",
        "Compare the two runs' trace/ folders: which parameter's gradient differs first tells the layer",
    )


# A cause in an earlier row often produces the symptoms of later rows, too.
_IN_ORDER: tuple[tuple[Clue, ...], ...] = (
    (_samples,),
    (_not_reduced,),
    (_scaled,),
    (_random_stream, _batch_norm, _buffers),
    (_amplified,),
)
