"""Mistakes that raise no error and show in the updates of one rank: what it trains is not what its author means."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from trainjob.records import updates
from trainjob.verify.scripts.update_log import AttemptLog, ScriptUpdate
from trainjob.verify.tasks.diagnosis import LikelyCause

NOT_FINITE = "not-finite"
# code: the text, and the cure
_CAUSES = {
    NOT_FINITE: (
        "a loss or a gradient is not finite",
        "Look at the samples and the learning rate of this update; torch.autograd.set_detect_anomaly(True) names the "
        "operation that gives the first NaN",
    ),
    "other-weights": (
        "the optimizer has weights that get no gradient: they are not those of the model that trains",
        "Give the optimizer the parameters of the model that computes the loss, once that is made, moved and wrapped",
    ),
    "weights-unchanged": (
        "no update changes any weight",
        "Look at the learning rate and the gradients: a step below the precision of the weights is lost, too",
    ),
    "not-zeroed": (
        "the gradients of an update are added to those of all updates before",
        "Call optimizer.zero_grad() after each step",
    ),
    "clips-scaled": (
        "gradients are clipped while they still have the scaler's factor, so that they end far too short",
        "Call scaler.unscale_(optimizer) before clip_grad_norm_",
    ),
    "reduced-twice": (
        "gradients are reduced again, after DistributedDataParallel has averaged them",
        "Leave the all_reduce of gradients to DistributedDataParallel",
    ),
    "evaluation-mode": (
        "the model trains in evaluation mode, with dropout off and running statistics in BatchNorm",
        "Call model.train() before each epoch and after each evaluation; from_pretrained leaves it to you",
    ),
}
_LEAST = 2  # updates that show a habit

_finding = partial(LikelyCause.of, _CAUSES)


def in_ranks(ranks: Sequence[AttemptLog]) -> Iterator[LikelyCause]:
    """Yield the mistakes that the updates show, each once, with the first rank that has it."""
    reported = set()
    for rank, log in enumerate(ranks):
        for found in _in_updates(log, f"rank {rank}" if len(ranks) > 1 else ""):
            if found.code not in reported:
                reported.add(found.code)
                yield found


def _in_updates(log: AttemptLog, rank: str) -> Iterator[LikelyCause]:
    where = f"{rank}, " if rank else ""
    made = [one for one in log.updates if one.losses]
    bad = [(number, what) for number, one in enumerate(log.updates, start=1) if (what := _infinite(one))]
    if bad:
        count = f"; in all, {len(bad)} of {len(log.updates)} updates" if len(bad) > 1 else ""
        yield _finding(NOT_FINITE, f"{where}update {bad[0][0]}: {bad[0][1]}{count}")
    if made and not any(one.with_gradient or one.norm for one in made):
        yield _finding("other-weights", f"{where}none has a gradient in {len(made)} updates")
    elif len(made) >= _LEAST and all(one.weights == one.weights_before for one in made) and _is_meant_to_move(log):
        rate = f"{made[-1].rates[0]:g}" if made[-1].rates else "unknown"
        yield _finding("weights-unchanged", f"{where}{len(made)} updates, learning rate {rate}")
    if len(made) > _LEAST and all(one.kept for one in made[1:]):
        yield _finding("not-zeroed", f"{where}in each of {len(made)} updates")
    began = next((number for number, one in enumerate(made) if one.evaluating), len(made))
    if len(made) - began >= _LEAST and all(one.evaluating for one in made[began:]):
        yield _finding("evaluation-mode", f"{where}from update {began + 1} on")
    events = ((updates.CLIPS_SCALED, "clips-scaled"), (updates.REDUCES_GRADIENTS, "reduced-twice"))
    for name, code in events:
        if found := log.named(name):
            yield _finding(code, f"{where}before update {found[0].update + 1}")


def _is_meant_to_move(log: AttemptLog) -> bool:
    """Return whether a rate is above 0, or has been 0 for a whole epoch: a schedule may begin with 0."""
    return any(any(one.rates) for one in log.updates) or any(event.update for event in log.named(updates.PASS_ENDED))


def ends_infinite(log: AttemptLog) -> bool:
    """Return whether the last update's loss is not a number, or its gradients are: then its weights are none either."""
    last = log.updates[-1] if log.updates else None
    return last is not None and bool(_infinite(last))


def _infinite(update: ScriptUpdate) -> str:
    """Return what is not finite of an update; "" if all is."""
    # A scaler makes a loss infinite, and gradients, and then takes no step and tries a smaller scale.
    bad = [loss for loss in update.losses if math.isnan(loss) or (math.isinf(loss) and update.scale is None)]
    if bad:
        return f"loss {bad[0]}"
    return "" if math.isfinite(update.norm) or update.scale is not None else f"gradients {update.norm}"
