"""What the evidence points to when N instances are not one. Each clue looks at one kind of mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from trainjob.verify.compare import Difference, all_samples, relative, sample_counts
from trainjob.verify.traces import Trace


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
    """All that the clues look at. `apart` are the updates that differ by more than the tolerance, in order."""

    several: Trace
    one: Trace
    instances: int
    apart: Sequence[Difference]
    tolerance: float

    @property
    def first(self) -> Difference:
        """The first update that differs."""
        return self.apart[0]


Clue = Callable[[Evidence], Iterator[Finding]]


def diagnose(evidence: Evidence) -> list[Finding]:
    """Return the likely causes, the most telling first: other samples explain whatever follows from them."""
    for clues in _IN_ORDER:
        found = [finding for clue in clues for finding in clue(evidence)]
        if found:
            return found
    return [_unknown(evidence)]


def _samples(evidence: Evidence) -> Iterator[Finding]:
    number = _first_with_other_samples(evidence)
    if number is None:
        return
    several, one = sample_counts(evidence.several, number), sample_counts(evidence.one, number)
    sizes = [len(rows) for rows in evidence.several.samples(number)]
    if len(set(sizes)) > 1 or sum(sizes) != sum(one.values()):
        yield _uneven(number, sizes)
    elif max(several.values()) > max(one.values()):
        yield _padded(number, several.most_common(1)[0][1], one.most_common(1)[0][1])
    elif all_samples(evidence.several) == all_samples(evidence.one):
        yield _ordered_otherwise(number, len(several - one), sum(one.values()))
    else:
        yield _other_values(number, len(several - one), sum(one.values()))


def _first_with_other_samples(evidence: Evidence) -> int | None:
    shared = sorted(set(evidence.several.updates) & set(evidence.one.updates))
    for number in shared:
        if evidence.several.samples(number) != evidence.one.samples(number):
            return number
    return None


def _uneven(number: int, sizes: Sequence[int]) -> Finding:
    return Finding(
        "uneven-batch",
        "the instances' batches are not equally large, and a mean of their means is not the mean",
        f"update {number}: micro batches of {', '.join(str(size) for size in sorted(set(sizes)))} samples",
        "Drop or pad the last batch (--remainder), or give the data set a length that every instance agrees on",
    )


def _padded(number: int, several: int, one: int) -> Finding:
    return Finding(
        "padding",
        "instances see samples again to fill their share",
        f"update {number}: one sample is seen {several} times, and {one} times by one instance",
        "Let the runtime divide the data: a Dataset must not pad or repeat by rank",
    )


def _ordered_otherwise(number: int, other: int, samples: int) -> Finding:
    return Finding(
        "sample-order",
        "the same samples come in another order",
        f"update {number}: {other} of {samples} samples are others; over all updates they are the same",
        "A Dataset must give sample i for index i on every rank, whatever was asked before",
    )


def _other_values(number: int, other: int, samples: int) -> Finding:
    return Finding(
        "sample-values",
        "samples have other values: the data set, or the stream its augmentation draws from, depends on the rank",
        f"update {number}: {other} of {samples} samples have values that one instance never sees",
        "Draw from torch, numpy or random as the runtime seeds them for each sample, not from a generator of its own",
    )


def _not_reduced(evidence: Evidence) -> Iterator[Finding]:
    first = evidence.several.update(evidence.first.update)
    if first.ranks_agree:
        return
    averaged = any(evidence.several.ranks_end_equal(number) for number in evidence.several.updates)
    text = (
        "each instance steps with gradients of its own, and the weights are averaged now and then"
        if averaged
        else "each instance steps with gradients of its own: nothing brings the instances together"
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
    if first.gradient_residual > evidence.tolerance or abs(first.gradient_factor - 1.0) <= evidence.tolerance:
        return
    yield Finding(
        "mean-against-sum",
        "the gradients point the same way and have another length: one side sums where the other takes the mean",
        f"update {first.update}: {evidence.instances} instances' gradients are {first.gradient_factor:.6g} × one's",
        "Divide the loss by the samples of the micro batch alone; the runtime divides by micro batches and replicas",
    )


def _random_stream(evidence: Evidence) -> Iterator[Finding]:
    if evidence.several.repeatable and evidence.one.repeatable:
        return
    yield Finding(
        "dropout-stream",
        "the model draws random numbers that the seed of a micro batch does not decide",
        "the same micro batch, seeded the same, gave other outputs the second time",
        "Draw from torch's default generator (nn.Dropout does); the runtime seeds it for every micro batch",
    )


def _batch_norm(evidence: Evidence) -> Iterator[Finding]:
    if "SyncBatchNorm" in evidence.several.layers:
        yield Finding(
            "batch-norm-synchronised",
            "SyncBatchNorm takes its statistics over all instances' micro batches, one instance over each alone",
            f"layers: {', '.join(evidence.several.layers)}",
            "Use BatchNorm, whose statistics are a micro batch's in both",
        )


def _buffers(evidence: Evidence) -> Iterator[Finding]:
    before = evidence.first.update - 1
    if before < 1 or evidence.first.gradients <= evidence.tolerance:
        return
    apart = relative(evidence.several.update(before).buffers, evidence.one.update(before).buffers)
    if apart > evidence.tolerance:
        yield Finding(
            "batch-norm-not-synchronised",
            "training reads buffers that differ between instances: running statistics of each instance's own samples",
            f"buffers are {apart:.2g} apart after update {before}, gradients differ from update {before + 1} on",
            "Normalise with the micro batch's own statistics while training, or synchronise the buffers",
        )


def _unknown(evidence: Evidence) -> Finding:
    first = evidence.first
    return Finding(
        "unknown",
        "the samples are the same and the gradients are not; none of the usual causes fits",
        f"update {first.update}: gradients {first.gradients:.2g} apart, layers: {', '.join(evidence.one.layers)}",
        "Compare the two traces (--keep): which parameter's gradient differs first tells the layer",
    )


# A cause in an earlier row makes those of later rows likely to appear as well.
_IN_ORDER: tuple[tuple[Clue, ...], ...] = (
    (_samples,),
    (_not_reduced,),
    (_scaled,),
    (_random_stream, _batch_norm, _buffers),
)
