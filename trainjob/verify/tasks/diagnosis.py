"""Diagnoses why N instances don't train as one. Each clue looks for one kind of mistake."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainjob.contract.errors import ERROR
from trainjob.contract.paths import RunPaths
from trainjob.records.typed import to_json
from trainjob.verify.tasks.traces import Difference, RunTrace

# Parts of the samples out of place. Padding repeats samples that are seen at their own place, too; ranks that shuffle
# each for itself meet half of each other's by chance.
_AGAIN = 0.75
# Samples in another order are met at another time, in a part of an epoch a part of them; changed ones hardly ever.
_MOVED = 0.1
AMPLIFIED = "amplified-rounding"
# Sums in another order round at every step; a control's first weights are rounded only once.
_MORE_ROUNDING = 10.0

# code: the text, and the cure
_CAUSES = {
    "uneven-batch": (
        "the batches of the instances differ in size, so the mean of their means is not the mean",
        "Make the data set return every requested sample, on every rank; --remainder drops or pads the last batch",
    ),
    "padding": (
        "instances repeat samples to fill up their share",
        "Let the runtime divide the data; a Dataset must not pad or repeat samples by rank",
    ),
    "sample-order": (
        "the same samples come in another order",
        "Make the Dataset return sample i for index i on every rank, whatever was requested before",
    ),
    "sample-values": (
        "samples have different values: the data set, or the random numbers of its augmentation, depend on the rank",
        "Draw from torch, numpy or random, which the runtime seeds for each sample, not from a generator of your own; "
        "--updates of a whole epoch would show samples that only come in another order",
    ),
    "parameter-averaging": (
        "each instance steps with its own gradients, and the weights are averaged from time to time",
        "Use an engine that averages gradients before the step, such as ddp",
    ),
    "not-synchronised": (
        "each instance steps with its own gradients, and nothing synchronises the weights in these updates",
        "Use an engine that averages gradients before the step, such as ddp",
    ),
    "mean-against-sum": (
        "the gradients have the same direction and another length: one side sums where the other takes the mean",
        "Divide the loss only by the samples of the micro batch; the runtime divides by micro batches and replicas",
    ),
    "dropout-stream": (
        "the model draws random numbers that do not depend on the seed of the micro batch, or counts its own calls",
        "Draw from torch's default generator (nn.Dropout does); the runtime seeds it for every micro batch",
    ),
    "batch-norm-synchronised": (
        "SyncBatchNorm computes statistics over the micro batches of all instances, and one instance over each",
        "Use BatchNorm, which computes its statistics over one micro batch in both cases",
    ),
    "batch-norm-not-synchronised": (
        "training reads buffers that differ between instances: the running statistics of their own samples",
        "Normalise with the statistics of the micro batch while training, as nn.BatchNorm does",
    ),
    AMPLIFIED: (
        "the task amplifies rounding, so that a comparison shows nothing here",
        "Give a larger --micro-batch, and compare again: normalising over very few values amplifies most",
    ),
    "unknown": (
        "the samples are the same and the training is not; none of the usual causes fits",
        "Compare the two runs' trace/ folders: which parameter's gradient differs first tells the layer",
    ),
}


# Codes of findings that prove nothing either way.
UNSEEN, OTHER_WORK, NOISE, RANDOM = "unseen", "different-work", "differs-by-itself", "random-draws"
NORMALISED = "batch-norm"
NO_NUMBERS, NOT_INTERRUPTED = "no-numbers", "not-interrupted"
_INCONCLUSIVE = (AMPLIFIED, UNSEEN, OTHER_WORK, NOISE, RANDOM, NORMALISED, NO_NUMBERS, NOT_INTERRUPTED)


@dataclass(frozen=True)
class LikelyCause:
    """One likely cause. `code` is stable, for machines; `evidence` holds the figures that point to it."""

    code: str
    text: str
    evidence: str
    cure: str
    severity: str = ERROR
    where: str = ""

    @classmethod
    def of(cls, causes: Mapping[str, tuple[str, str]], code: str, evidence: str) -> LikelyCause:
        """Return the cause that a table, code → text and cure, has under this code."""
        text, cure = causes[code]
        return cls(code, text, evidence, cure)


@dataclass(frozen=True, kw_only=True)
class ComparisonVerdict:
    """Whether the runs that were compared are equal. `--json` prints the fields."""

    runs: Sequence[RunPaths]

    @property
    def equal(self) -> bool:
        """Whether no difference was found."""
        raise NotImplementedError

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for `--json`."""
        return {"equal": self.equal, **to_json(self), "runs": [str(paths.folder) for paths in self.runs]}


@dataclass(frozen=True, kw_only=True)
class DiagnosedVerdict(ComparisonVerdict):
    """A verdict that names the likely causes of each difference."""

    findings: Sequence[LikelyCause]

    @property
    def equal(self) -> bool:
        """Whether no difference was found."""
        return not self.findings

    @property
    def inconclusive(self) -> bool:
        """Whether nothing is proved either way."""
        return bool(self.findings) and all(one.code in _INCONCLUSIVE for one in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for `--json`."""
        return {**super().as_json(), "inconclusive": self.inconclusive}


@dataclass(frozen=True)
class TraceEvidence:
    """All that the clues look at. `apart` are the updates that differ by more than the tolerance, in order.

    `control` returns what rounding alone does to an update of one instance. It is called last, because it trains.
    """

    several: RunTrace
    one: RunTrace
    instances: int
    apart: Sequence[Difference]
    tolerance: float
    control: Callable[[int], Difference] | None = None

    @property
    def first(self) -> Difference:
        """The first update that differs."""
        return self.apart[0]

    @property
    def updates(self) -> list[int]:
        """The updates that both traces hold."""
        return sorted(set(self.several.updates) & set(self.one.updates))


Clue = Callable[[TraceEvidence], Iterator[LikelyCause]]


def diagnose(evidence: TraceEvidence) -> list[LikelyCause]:
    """Return the likely causes, the most telling first: different samples explain whatever follows from them."""
    for clue in _IN_ORDER:
        if found := list(clue(evidence)):
            return found
    first = evidence.first
    figures = (
        f"update {first.update}: gradients {first.gradients:.2g}, parameters {first.parameters:.2g}, loss "
        f"{first.loss:.2g} apart; layers: {', '.join(evidence.one.layers)}"
    )
    return [_finding("unknown", figures)]


_finding = partial(LikelyCause.of, _CAUSES)


def _samples(evidence: TraceEvidence) -> Iterator[LikelyCause]:
    """Compare the samples of N instances with those that one instance has at the same place."""
    several, one, updates = evidence.several, evidence.one, evidence.updates
    number = next((number for number in updates if several.samples(number) != one.samples(number)), None)
    if number is None:
        return
    sizes = [len(rows) for rows in several.samples(number)]
    if sizes != [len(rows) for rows in one.samples(number)]:
        listed = ", ".join(str(size) for size in sizes)
        yield _finding("uneven-batch", f"update {number}: micro batches of {listed} samples")
        return
    pairs = [
        pair
        for update in updates
        for ours, theirs in zip(several.samples(update), one.samples(update), strict=False)
        for pair in zip(ours, theirs, strict=False)
    ]
    strays = [ours for ours, theirs in pairs if ours != theirs]
    in_place = {ours for ours, theirs in pairs if ours == theirs}
    known = {theirs for _, theirs in pairs}
    again, moved = (sum(sample in others for sample in strays) for others in (in_place, known))
    where = f"from update {number} on, {len(strays)} samples differ from those of one instance at the same place"
    if again > _AGAIN * len(strays):
        yield _finding("padding", f"{where}; {again} of these also appear at their own place")
    elif moved > _MOVED * len(strays):
        yield _finding("sample-order", f"{where}; one instance takes {moved} of these at another time")
    else:
        yield _finding("sample-values", f"{where}; one instance takes {moved} of these at all")


def _not_reduced(evidence: TraceEvidence) -> Iterator[LikelyCause]:
    several = evidence.several
    first = several.update(evidence.first.update)
    different = len(set(first.gradient_digests))
    if different > 1:
        averaged = any(len(set(several.parameter_digests(number))) == 1 for number in several.updates)
        yield _finding(
            "parameter-averaging" if averaged else "not-synchronised",
            f"update {first.number}: {different} different gradients on {evidence.instances} instances",
        )


def _scaled(evidence: TraceEvidence) -> Iterator[LikelyCause]:
    first, instances = evidence.first, evidence.instances
    if not first.gradient_residual <= evidence.tolerance:
        return
    if abs(first.gradient_factor - 1.0) > evidence.tolerance:
        figures = f"{instances} instances' gradients are {first.gradient_factor:.6g} × those of one"
        yield _finding("mean-against-sum", f"update {first.update}: {figures}")
        return
    losses = [trace.losses.get(first.update, 0.0) for trace in (evidence.several, evidence.one)]
    smaller, larger = sorted(losses, key=abs)
    if larger != smaller and math.isclose(larger, instances * smaller, rel_tol=evidence.tolerance):
        figures = "clipping makes the gradients equal, and one loss is the other × the number of instances"
        yield _finding("mean-against-sum", f"update {first.update}: {figures}")


def _model(evidence: TraceEvidence) -> Iterator[LikelyCause]:
    """Look at the model's own random numbers, layers and buffers."""
    several, first = evidence.several, evidence.first
    if not (several.repeatable and evidence.one.repeatable):
        yield _finding(
            "dropout-stream", "the same micro batch with the same seed gave different outputs the second time"
        )
    if "SyncBatchNorm" in several.layers:
        yield _finding("batch-norm-synchronised", f"layers: {', '.join(several.layers)}")
    # A model that draws random numbers itself gives different outputs anyway, which says nothing about its buffers.
    if several.reads_buffers and several.repeatable:
        yield _finding(
            "batch-norm-not-synchronised",
            f"update {first.update}: buffers are {first.buffers:.2g} apart; what one micro batch "
            "leaves in them changes the output of the next",
        )


def _amplified(evidence: TraceEvidence) -> Iterator[LikelyCause]:
    # Both begin with the same bits, and no rounding can have grown before the first update: it must be a mistake.
    if evidence.control is None or evidence.first.update == min(evidence.updates):
        return
    apart, rounding = evidence.first, evidence.control(evidence.first.update)
    ours, alone = (
        max((figure for figure in (one.gradients, one.parameters, one.loss) if not math.isnan(figure)), default=0.0)
        for one in (apart, rounding)
    )
    if ours <= _MORE_ROUNDING * alone:
        yield _finding(
            AMPLIFIED,
            f"update {apart.update}: gradients {apart.gradients:.2g}, parameters {apart.parameters:.2g} apart; of one "
            f"instance, by the last bits of its first weights alone: gradients {rounding.gradients:.2g}, parameters "
            f"{rounding.parameters:.2g}",
        )


# An earlier cause often produces the symptoms of later ones, too.
_IN_ORDER: tuple[Clue, ...] = (_samples, _not_reduced, _scaled, _model, _amplified)
