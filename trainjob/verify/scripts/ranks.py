"""Whether the ranks of a script of the user's own train as one: compared with each other, and with one rank."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from trainjob.contract.paths import RunPaths
from trainjob.records import updates
from trainjob.requests.workbench import Workbench
from trainjob.verify.scripts import mistakes, update_log
from trainjob.verify.scripts.interruptions import recorded
from trainjob.verify.scripts.update_log import AttemptLog, ScriptUpdate
from trainjob.verify.tasks.diagnosis import NORMALISED, OTHER_WORK, RANDOM, UNSEEN, DiagnosedVerdict, LikelyCause

# The order of a float32 sum alone moves the first update's gradients by less, and later ones' as a mistake would.
_TOLERANCE = 1e-4
# Ranks that shuffle each for itself meet about 1/N of each other's samples; padding repeats less than one batch.
_OVERLAP = 0.2
# Of one rank's samples of its first epoch: with fewer, the data repeats itself, and samples tell nothing apart.
_DISTINCT = 0.8

# code: the text, and the cure
_CAUSES = {
    "same-samples": (
        "all ranks train on the same samples",
        "Give the loader DistributedSampler(data, num_replicas=world_size, rank=rank), and call its set_epoch; only "
        "ranks that share one replica of the model, as in tensor parallelism, take the same samples",
    ),
    "sampler-rank": (
        "a sampler's rank is not the rank of its process: ranks of different nodes train on the same samples",
        "Give the sampler RANK, which counts over all nodes, and not LOCAL_RANK",
    ),
    "init-rank": (
        "a process joins the group under another rank than its own: ranks of different nodes claim the same",
        "Leave rank and world_size out of init_process_group, which reads RANK and WORLD_SIZE, or give it these; "
        "LOCAL_RANK counts within one node, and is for the choice of a GPU",
    ),
    "command-per-node": (
        "the script starts its ranks itself, and is started once for each of them",
        "Start it once a node: --command-per node",
    ),
    "order-per-rank": (
        "each rank shuffles for itself, so ranks train on samples of each other and miss others",
        "Shuffle with one seed on all ranks, and let each take its share of that order, as DistributedSampler does",
    ),
    "same-order": (
        "each epoch takes the samples in the same order, although the sampler shuffles",
        "Call sampler.set_epoch(epoch) before each epoch",
    ),
    "weights-apart": (
        "the ranks begin with different weights",
        "Wrap the model in DistributedDataParallel, which sends rank 0's, or seed all ranks alike before it is made",
    ),
    "not-synchronised": (
        "each rank steps with its own gradients",
        "Call the DistributedDataParallel that wraps the model, not the model inside. While accumulating, leave "
        "no_sync (or set require_backward_grad_sync) before the last micro batch's forward pass, which reads it",
    ),
    "all-save": (
        "all ranks write the same file, at the same time",
        "Save from rank 0 alone, or under a name for each rank",
    ),
    "accumulation-not-divided": (
        "the losses of the micro batches of an update are added, and not divided by their number",
        "Divide the loss by the number of micro batches before backward",
    ),
    "mean-against-sum": (
        "the gradients have another length than one rank's: one side sums where the other takes the mean",
        "Divide by the number of ranks exactly once; DistributedDataParallel does",
    ),
    "sum-of-losses": (
        "a loss is the sum over the rank's batch, so that N ranks train with 1/N of one rank's loss and gradients",
        "Take the mean over the batch (reduction='mean'), or divide the sum by the samples of one rank",
    ),
    "reduced-without-gradient": (
        "an all_reduce in the forward pass passes no gradient on, so the gradients are too short by the ranks' number",
        "Use torch.distributed.nn.functional.all_reduce in the loss, or multiply it by the number of ranks",
    ),
    "learning-rate": (
        "the learning rate of an update is another than one rank's",
        "Scale it once, and only with the global batch; call scheduler.step() once an update on any number of ranks",
    ),
    RANDOM: (
        "the script draws random numbers (dropout, augmentation), and ranks draw others than one rank does",
        "This may be meant, and hides whether anything else differs: compare with dropout and augmentation off",
    ),
    NORMALISED: (
        "BatchNorm takes the mean and variance of each rank's part of the batch, and of the whole batch on one rank",
        "This is what DistributedDataParallel does, and hides whether anything else differs: compare with BatchNorm in "
        "evaluation mode, or convert it to SyncBatchNorm",
    ),
    "other-samples": (
        "the ranks' samples of an update are not those of one rank",
        "Let update u take the same global batch whatever the number of ranks",
    ),
    "other-result": (
        "the samples are the same and the losses or gradients are not",
        "Look for what depends on the rank: BatchNorm's statistics, dropout, a seed, a loss that is not a mean",
    ),
    OTHER_WORK: (
        "one rank does different work, so its updates can't be compared",
        "Say how one rank takes the same global batch: --alone '--batch-size 16', say, is added to its command",
    ),
    UNSEEN: (
        "nothing could be compared",
        "verify sees steps of torch optimizers, and samples that a DataLoader delivers",
    ),
}


@dataclass(frozen=True, kw_only=True)
class RanksVerdict(DiagnosedVerdict):
    """Whether N ranks train as one."""

    instances: int
    updates: int  # that both runs made
    notes: Sequence[str] = ()


def verify_ranks(workbench: Workbench, *, instances: int, alone: Sequence[str]) -> RanksVerdict:
    """Return whether the job's command trains on `instances` ranks as on one, which gets the words `alone` as well.

    Raises UserError when a run fails.
    """
    several = workbench.run(recorded(workbench, instances=instances))
    ranks = [attempts[0] for attempts in update_log.read(several) if attempts and attempts[0].updates]
    notes = update_log.padded(ranks[:1])
    verdict = partial(RanksVerdict, instances=instances, updates=0, runs=[several], notes=notes)
    if len(ranks) < instances:
        seen = f"{len(ranks)} of {instances} ranks made a step of a torch optimizer"
        return verdict(findings=[_finding(UNSEEN, seen)])
    found = list(among_ranks(ranks))
    if found:
        return verdict(updates=len(ranks[0].updates), findings=found)
    one = workbench.run(recorded(workbench, instances=1, command=[*(workbench.request.job.command or []), *alone]))
    logs, runs = update_log.read(one), [several, one]
    if not logs or not logs[0][0].updates:
        return verdict(findings=[_finding(UNSEEN, "one rank alone made no step")], runs=runs)
    made = min(len(ranks[0].updates), len(logs[0][0].updates))
    return verdict(updates=made, findings=list(with_one(ranks, logs[0][0])), runs=runs)


_finding = partial(LikelyCause.of, _CAUSES)


def notes_of_run(paths: RunPaths) -> list[str]:
    """Return what the ranks of one run show that is no mistake, and that its user should know."""
    return update_log.padded(one for log in update_log.read(paths)[:1] for one in log)


def of_run(paths: RunPaths) -> list[LikelyCause]:
    """Return what the recorded ranks of one run show by themselves; nothing where nothing was recorded."""
    return list(among_ranks([attempts[0] for attempts in update_log.read(paths) if attempts]))


def ends_infinite(paths: RunPaths) -> bool:
    """Return whether a rank of the run ended with a loss or gradients that are not finite."""
    return any(mistakes.ends_infinite(attempts[-1]) for attempts in update_log.read(paths) if attempts)


def among_ranks(ranks: Sequence[AttemptLog]) -> Iterator[LikelyCause]:
    """Yield what the ranks of one run show by themselves."""
    for number, log in enumerate(ranks):
        joined = {str(event.fields["rank"]) for event in log.named(updates.JOINS)}
        if len(joined) > 1:
            yield _finding("command-per-node", f"processes of rank {number} join as ranks {', '.join(sorted(joined))}")
            return
    yield from mistakes.in_ranks(ranks)
    for event in (event for log in ranks for event in log.named(updates.JOINS)):
        rank, own = event.fields["rank"], event.fields["rank_at_start"]
        if str(rank) != own:
            yield _finding("init-rank", f"init_process_group gets rank {rank} in the process of rank {own}")
            return
    # Only ranks that compute losses are replicas: stages of a pipeline have weights and samples of their own.
    steps = [step for step in zip(*(log.updates for log in ranks), strict=False) if all(one.losses for one in step)]
    if not steps:
        return
    first, weights = steps[0], {one.weights_before for one in steps[0]}
    # Their losses tell where no loader delivers any.
    taken = [[one.samples or one.losses for one in step] for step in steps]
    is_alike = len(ranks) > 1 and all(len(set(step)) == 1 for step in taken)
    has_same_samples = is_alike and len({step[0] for step in taken}) > len(taken) / 2
    is_sharded = any(one.sharded for one in first)
    # With other weights for the same samples, ranks are parts of one model.
    if len(weights) == 1 or is_sharded or not has_same_samples:
        yield from _samplers(ranks, same=f"in each of {len(steps)} updates" if has_same_samples else None)
        if not is_sharded:
            yield from _replicas(first)
    added = [step[0] for step in steps[1:] if len(step[0].losses) > 1]
    if added and all(len(one.batches) == len(one.losses) and not one.divided for one in added):
        count = len(added[0].losses)
        yield _finding("accumulation-not-divided", f"{count} batches an update, and no loss or gradient is divided")
    savers: dict[str, set[int]] = {}
    for rank, log in enumerate(ranks):
        for event in log.named(updates.SAVED):
            savers.setdefault(str(event.fields["path"]), set()).add(rank)
    for path, of_ranks in savers.items():
        if len(of_ranks) > 1 and path != "None":
            yield _finding("all-save", f"{path}, by ranks {', '.join(map(str, sorted(of_ranks)))}")
            return


def _replicas(first: Sequence[ScriptUpdate]) -> Iterator[LikelyCause]:
    """Look at the first update of ranks that each have the whole model."""
    weights, gradients = ({getattr(one, name) for one in first} for name in ("weights_before", "gradients"))
    if len(weights) > 1:
        yield _finding("weights-apart", f"{len(weights)} different weights on {len(first)} ranks")
    elif len(gradients) > 1:
        yield _finding("not-synchronised", f"update 1: {len(gradients)} different gradients on {len(first)} ranks")


def _samplers(ranks: Sequence[AttemptLog], *, same: str | None) -> Iterator[LikelyCause]:
    """Look at who takes which samples; `same` says when all ranks took the same."""
    passes = [(rank, event.fields) for rank, log in enumerate(ranks) for event in log.named(updates.PASS)]
    for rank, sampler in passes:
        # A sampler of fewer replicas serves ranks that share one, unless it counts those of a node alone.
        own, replicas, local = sampler["sampler_rank"], sampler["replicas"], sampler["local_rank"]
        is_of_all = replicas == len(ranks) and own != rank
        if own is not None and (is_of_all or (replicas not in (None, len(ranks)) and own == local != rank)):
            yield _finding("sampler-rank", f"the sampler of rank {rank} has rank {own} of {replicas}")
            return
    if same is not None:
        yield _finding("same-samples", same)
        return
    if found := _same_order(ranks[0]):
        yield found
    seeds = {sampler["seed"] for _rank, sampler in passes if sampler["replicas"] == len(ranks)}
    if len(seeds) > 1:
        yield _finding("order-per-rank", f"the seeds of their samplers are {', '.join(map(str, sorted(seeds)))}")
        return
    # Over the first pass: a sample that two ranks take in it was not divided among them.
    taken = [
        [sample for one in log.updates for batch in one.batches if batch.loader_pass == 1 for sample in batch.samples]
        for log in ranks
    ]
    if any(len(set(of_rank)) < _DISTINCT * len(of_rank) for of_rank in taken):
        return
    counted = Counter(sample for of_rank in taken for sample in set(of_rank))
    again = sum(count > 1 for count in counted.values())
    if again > _OVERLAP * len(counted):
        yield _finding("order-per-rank", f"{again} of {len(counted)} samples of the first epoch were taken twice")


def _same_order(log: AttemptLog) -> LikelyCause | None:
    """Look at the passes of a sampler that shuffles by its epoch, which is never set."""
    begins = {batch.loader_pass: batch.samples for one in log.updates for batch in one.batches if batch.place == 0}
    passes = [
        event.fields
        for event in log.named(updates.PASS)
        if event.fields["replicas"] and event.fields.get("shuffles") and event.fields["number"] in begins
    ]
    for one, two in itertools.pairwise(passes):
        if one["epoch"] == two["epoch"] and begins[one["number"]] == begins[two["number"]]:
            return _finding("same-order", f"passes {one['number']} and {two['number']}, both of epoch {one['epoch']}")
    return None


def with_one(ranks: Sequence[AttemptLog], one: AttemptLog) -> Iterator[LikelyCause]:
    """Yield how the updates of several ranks differ from one rank's: all in their samples, the first in its result."""
    draws = any(
        not before.draws_as(after)
        for log in (*ranks, one)
        for before, after in itertools.pairwise(log.updates)
        if _pass(before) == _pass(after)
    )
    has_workers = any(event.fields.get("workers") for event in one.named(updates.PASS))
    for number, (alone, *ours) in enumerate(zip(one.updates, *(log.updates for log in ranks), strict=False), start=1):
        together, single = _samples(ours), _samples([alone])
        if together.total() != single.total():
            sizes = (
                f"update {number} takes {together.total()} samples on {len(ranks)} ranks, and {single.total()} on one"
            )
            yield _finding(OTHER_WORK, sizes)
            return
        if together != single:
            shared = (together & single).total()
            text = f"update {number}: {shared} of {single.total()} samples are the same"
            # Ranks that begin with one seed draw for their own first samples what one rank draws for its.
            is_drawn = shared * len(ranks) <= single.total() and (draws or has_workers)
            yield _finding(RANDOM if is_drawn else "other-samples", text)
            return
        if ours[0].rates != alone.rates:
            rates = f"update {number}: {_shown(ours[0].rates)}, one rank {_shown(alone.rates)}"
            yield _finding("learning-rate", rates)
            return
    ours, alone = [log.updates[0] for log in ranks], one.updates[0]
    losses = math.fsum(math.fsum(update.losses) for update in ours) / len(ours), math.fsum(alone.losses)
    norms = math.fsum(update.norm for update in ours) / len(ours), alone.norm
    parts = len(alone.losses) / len(ours[0].losses) if ours[0].losses else 1.0
    # A loss that each rank divides by the samples of all ranks is its part of one rank's.
    is_same = _near(*losses) or (parts == 1.0 and _near(losses[0] * len(ranks), losses[1]))
    if is_same and (_near(*norms) or any(update.sharded for update in ours)):
        return
    shown = (
        f"update 1: loss {losses[0]:.6g}, one rank {losses[1]:.6g}; gradients {norms[0]:.6g}, one rank {norms[1]:.6g}"
    )
    if parts != 1.0 and _near(losses[0] * parts, losses[1]):
        yield _finding("accumulation-not-divided", shown)
    elif _near(*losses) and _near(norms[0] * len(ranks), norms[1]) and ranks[0].named(updates.REDUCES_LOSS):
        yield _finding("reduced-without-gradient", shown)
    elif all(_near(ours * len(ranks), alone) for ours, alone in (losses, norms)):
        yield _finding("sum-of-losses", shown)
    elif _near(*losses) and any(_near(norms[0], norms[1] * factor) for factor in (len(ranks), 1 / len(ranks))):
        yield _finding("mean-against-sum", shown)
    else:
        yield _finding(RANDOM if draws else NORMALISED if one.named(updates.NORMALISES) else "other-result", shown)


def _pass(update: ScriptUpdate) -> int:
    return update.batches[-1].loader_pass if update.batches else 0


def _shown(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates[:3])


def _samples(of_ranks: Sequence[ScriptUpdate]) -> Counter[str]:
    """Return how often each sample is taken by one update."""
    return Counter(sample for one in of_ranks for batch in one.batches for sample in batch.samples)


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_TOLERANCE)
