"""What a script has lost: the first update that differs, or the first saved value, and the words for it."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from trainjob.records import updates
from trainjob.verify.scripts import final_states
from trainjob.verify.scripts.update_log import AttemptLog, LoadedBatch, Resumption, ScriptEvent, ScriptUpdate, starts_at
from trainjob.verify.tasks.diagnosis import NO_NUMBERS, NOISE, NOT_INTERRUPTED, UNSEEN, LikelyCause

# code: the text, and the cure
_CAUSES = {
    "sampler-position": (
        "the position within the epoch was lost: samples are seen twice, or never",
        "Save the number of batches of this epoch, and skip as many after a restart (itertools.islice, "
        "accelerate's skip_first_batches, a StatefulDataLoader)",
    ),
    "sampler-epoch": (
        "the sampler's epoch was lost: the order of another epoch's samples comes again",
        "Save the epoch, and call sampler.set_epoch with it before the first pass of each attempt",
    ),
    "rng": (
        "the random state was not restored, so dropout, augmentation or shuffling differs",
        "Save torch.get_rng_state(), random.getstate(), numpy's and each GPU's state, and set them after a restart, as "
        "soon as the loader's iterator has been made, which draws a number itself",
    ),
    "scheduler": (
        "the learning rate schedule was not restored",
        "Save scheduler.state_dict() and load it after a restart",
    ),
    "scaler": (
        "the gradient scaler was not restored: it begins with its first scale again",
        "Save scaler.state_dict() and load it after a restart",
    ),
    "step-counter": (
        "the count of steps or epochs was lost",
        "Save the count, and begin the loop from it after a restart",
    ),
    "ema": (
        "the moving average of the weights was not restored",
        "Save the averaged weights beside the model's, and load both after a restart",
    ),
    "optimizer": (
        "the optimizer's state was not restored",
        "Save optimizer.state_dict() and load it after the model is on its device",
    ),
    "weights": (
        "these weights never occur in the uninterrupted run",
        "Load the model's state_dict with strict=True before the first update, on every rank",
    ),
    "rank-0-only": (
        "rank 0 alone saved, and the model is sharded: the other ranks' parts are lost",
        "Save from every rank, with torch.distributed.checkpoint, or gather the full state before rank 0 saves",
    ),
    "torn-checkpoint": (
        "the newest checkpoint is torn: the script was killed while it wrote the file, and can't continue from it",
        "Write to another name in the same folder, then os.replace it: a reader sees the old file or the new one",
    ),
    "crashed": (
        "the script fails when it is started again",
        "Read the lines above; the run directory is kept, with all that the script had written",
    ),
    "between-epochs": (
        "USR1 is handled between epochs only: an epoch that lasts longer than the time given loses all of it",
        "Look at the flag after every update, save, leave the marker and end",
    ),
    "nothing-saved": (
        "no checkpoint was written in the time given",
        "Save as soon as the flag is seen, after at most one more update",
    ),
    "complete-too-early": (
        "the script was asked to stop, and says of itself that it is done: its run would not be continued",
        "Print counts of the whole training, leave no file `done`, or leave the marker $TRAINJOB_RUN_DIR/requeue",
    ),
    "workers-killed": (
        "the signal ended the loader's workers, and the script died of that before it had saved",
        "Have workers ignore it: DataLoader(worker_init_fn=lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN))",
    ),
    "no-checkpoint": (
        "the script saves nothing before its last update, so a restart begins again",
        "Save every so many updates, and load the newest file when the script starts",
    ),
    "not-resumed": (
        "the script began again from its first weights, although it had saved later ones",
        "Look for the newest checkpoint when the script starts, and load it",
    ),
    "fewer-updates": (
        "the interrupted run ended before it had made all updates",
        "Save the count of updates with the weights, and not one that runs ahead of them",
    ),
    "samples-unseen": (
        "the loss is another, and weights, optimizer, rates and random numbers are the same: most likely other samples",
        "Save where the data was (the stream's state_dict, or an index), and continue from there. What was taken isn't "
        "seen: no DataLoader delivers the samples, and they reach no module's call",
    ),
    "unknown": (
        "weights, optimizer, samples, rates and random numbers are the same before this update, and its result is not",
        "Look for what else the script keeps from update to update: gradients that it accumulates, clipping, a cache",
    ),
    NOISE: (
        "the script differs from itself even when nothing interrupts it, so the comparison shows nothing",
        "",
    ),
    NO_NUMBERS: (
        "the training ends with values that are no numbers, which are the same whatever was lost",
        "Mend that first: a smaller learning rate, or other samples; then verify again",
    ),
    NOT_INTERRUPTED: (
        "the run met fewer interruptions than were planned, so resuming is not proved for all of them",
        "Give the script more updates, fewer --interruptions, or --stops at moments that come",
    ),
    UNSEEN: (
        "nothing could be compared: no update and no saved state was seen",
        "Save below the working folder, with torch.save, safetensors or torch.distributed.checkpoint",
    ),
}

finding = partial(LikelyCause.of, _CAUSES)
# kind of a saved value: the code of the cause
OF_STATES = {
    final_states.WEIGHTS: "weights",
    final_states.OPTIMIZER: "optimizer",
    final_states.SCHEDULER: "scheduler",
    final_states.SCALER: "scaler",
    final_states.AVERAGE: "ema",
    final_states.COUNTER: "step-counter",
}
_BESIDE = re.compile(r"^\.?(tmp|temp)[._-]|[._-](tmp|temp)\d*$|\.(new|part)\d*$")
_OF_STEP = {"optimizer", "scheduler", "scaler"}
# How far apart losses may be that follow from the same weights, samples and random numbers, relative.
PROFILES = {"strict": 0.0, "standard": 1e-3, "relaxed": 1e-2}


@dataclass(frozen=True)
class FirstApart:
    """The first update that differs. `expected` is that of the uninterrupted run; None: it had ended before."""

    attempt: AttemptLog
    index: int  # of the update within its attempt
    update: int  # counted from 1, as the uninterrupted run does
    ours: ScriptUpdate
    expected: ScriptUpdate | None
    right_resumes: int = 0  # attempts before this one that went on as they should
    other: str = "uninterrupted"  # the word for what is expected
    is_nowhere: bool = False  # it began with weights that no attempt before it had

    @property
    def where(self) -> str:
        """The words that say which update it is, and what was right until then."""
        again = f", number {self.index + 1} of attempt {self.attempt.number}" if self.attempt.number > 1 else ""
        right = " (the resume before was right)" if self.right_resumes == 1 else ""
        right = f" (the {self.right_resumes} resumes before were right)" if self.right_resumes > 1 else right
        return f"attempt {self.attempt.number}{right}" if self.is_nowhere else f"update {self.update}{again}{right}"


def first_apart(whole: AttemptLog, attempts: Sequence[AttemptLog]) -> FirstApart | None:
    """Return the first update of the attempts that differs from the uninterrupted run's."""
    reached, right = 0, 0
    for attempt in attempts:
        start = starts_at(attempt, whole)
        for index, ours in enumerate(attempt.updates):
            number = (reached if start is None else start) + index
            last = len(whole.updates) - 1
            expected = whole.updates[min(number, last)] if start is None or number <= last else None
            if start is None or expected is None or not ours.ends_as(expected):
                return FirstApart(attempt, index, number + 1, ours, expected, right, is_nowhere=start is None)
        right += bool(start)
        reached = max(reached, (start or 0) + len(attempt.updates))
    return None


def first_apart_from_itself(resumed: Sequence[Resumption], tolerance: float) -> FirstApart | None:
    """Return the first update that differs from what the attempt before did after the same checkpoint.

    Where it had gone no further, only the state that it left is compared.
    """
    right = 0
    for one in resumed:
        ours = one.attempt.updates[0] if one.attempt.updates else None
        at_end = one.way[-1] if one.way and (one.is_lost or one.start == len(one.way)) else None
        if ours is not None and at_end is not None and (one.is_lost or ours.state_before != at_end.state):
            expected = replace(ours, weights_before="" if one.is_lost else at_end.weights, state_before=at_end.state)
            return FirstApart(
                one.attempt, 0, (one.start or 0) + 1, ours, expected, right, "before the interruption", one.is_lost
            )
        for index, (ours, expected) in enumerate(zip(one.attempt.updates, one.expected, strict=False)):
            is_same = ours.state_before == expected.state_before or index > 0
            if not (is_same and ours.goes_on_as(expected, tolerance)):
                update = (one.start or 0) + index + 1
                return FirstApart(one.attempt, index, update, ours, expected, right, "before the interruption")
        right += bool(one.attempt.updates and one.start)
    return None


def lost(
    first: FirstApart, whole: AttemptLog, *, longer: bool, saves: Sequence[ScriptEvent] = ()
) -> Iterator[LikelyCause]:
    """Yield what the first update that differs has lost. `saves` are those that the attempts before it made."""
    ours, expected, where = first.ours, first.expected, first.where
    if expected is None:
        yield finding("step-counter", f"{where}: the uninterrupted run has {len(whole.updates)} updates")
        return
    if ours.weights_before != expected.weights_before:
        found_in = _averaged(where, ours, saves) or _rounded(where, ours, whole)
        yield found_in or finding("weights", f"{where} began with other weights")
        return
    left = [one.state_before for one in whole.updates]
    if first.update == 1 and ours.state_before in left[1:]:
        loaded = f"the optimizer's state after {left.index(ours.state_before)} updates"
        yield finding("not-resumed", f"{where}: the first weights, with {loaded}")
        return
    found = []
    if ours.state_before != expected.state_before:
        what = "it is empty" if not ours.state_before else "it is another"
        found.append(finding("optimizer", f"{where}: {what}"))
    elif ours.rates != expected.rates:
        rates = f"{where}: learning rate {_shown(ours.rates)}, {first.other} {_shown(expected.rates)}"
        found.append(finding("step-counter" if longer else "scheduler", rates))
    if ours.scale != expected.scale:
        found.append(finding("scaler", f"{where}: scale {_scale(ours)}, {first.other} {_scale(expected)}"))
    found += _other_samples(first, expected, whole)
    if not found and longer:
        found.append(finding("step-counter", f"{where}, and more updates than the uninterrupted run's"))
    draws, is_other_loss = not ours.draws_as(expected), not ours.same_losses(expected)
    losses = f"loss {_shown(ours.losses)}, {first.other} {_shown(expected.losses)}"
    seen = "the same weights and samples" if ours.batches else "the same weights (its samples aren't seen)"
    if not found and (draws or is_other_loss):
        found.append(finding("rng" if draws or ours.batches else "samples-unseen", f"{where}: {seen}, and {losses}"))
    elif draws and is_other_loss and ours.batches and {one.code for one in found} <= _OF_STEP:
        # The loss comes before the step, so what that has lost has no part in it.
        found.append(finding("rng", f"{where}: {seen}, and {losses}"))
    yield from found or [finding("unknown", where)]


def lost_later(resumed: Sequence[Resumption], after: int, whole: AttemptLog) -> Iterator[LikelyCause]:
    """Yield what attempts after number `after`, the first that differs, lost of what the attempts before them left."""
    for one in resumed:
        if one.attempt.number <= after or not one.attempt.updates or not one.expected:
            continue
        ours, expected = one.attempt.updates[0], one.expected[0]
        first = FirstApart(one.attempt, 0, (one.start or 0) + 1, ours, expected, other="before the interruption")
        is_same = ours.ends_as(expected)  # another random state may have changed nothing
        for found in () if is_same else lost(first, AttemptLog(0, one.way, whole.events), longer=False):
            # Other samples may bring another rate with them.
            if found.code in ("optimizer", "scaler", "rng") or (
                found.code == "scheduler" and ours.samples == expected.samples
            ):
                yield found
        if ours.state_before == expected.state_before:
            yield from _begun_anew(first, one, whole)


def _begun_anew(first: FirstApart, one: Resumption, whole: AttemptLog) -> Iterator[LikelyCause]:
    """Yield the cause, if an attempt has the rates of the first updates of all where it goes on in a later epoch.

    The rate of its own first update is often right, because it is saved with the optimizer.
    """
    there = whole.updates[first.update - 1 :]  # which epoch it is; an attempt's passes count from its own start
    pairs = zip(one.attempt.updates, one.expected, whole.updates, there, strict=False)
    for index, (ours, before, begin, here) in enumerate(pairs):
        is_later = any(batch.loader_pass > 1 for batch in here.batches)
        if is_later and before.rates != ours.rates == begin.rates:
            where = replace(first, index=index, update=first.update + index).where
            rates = f"learning rate {_shown(ours.rates)}, as in update {index + 1} of all"
            yield finding("scheduler", f"{where}: {rates}, before the interruption {_shown(before.rates)}")
            return


def lost_by_epochs(resumed: Sequence[Resumption], whole: AttemptLog) -> Iterator[LikelyCause]:
    """Yield the cause, if the rate changes after as many epochs of an attempt as it did after the first ones of all.

    It is for samples that are others already, so that only epochs, and not updates, have something in common.
    """
    expected = _rates_by_epoch(whole)
    changes = _changes(expected)
    if not changes or any(len(rates) > 1 for rates in expected):
        return
    for one in resumed:
        ours = _rates_by_epoch(one.attempt)
        if not one.start or not ours:
            continue
        here = len(_rates_by_epoch(AttemptLog(0, whole.updates[: one.start + 1]))) - 1
        # It may repeat the epoch in which it was, or the one that had just ended, or begin with the next.
        had_ended = len(_rates_by_epoch(AttemptLog(0, whole.updates[: one.start]))) == here
        begins = range(here - had_ended, here + 2)
        if any(all(map(operator.eq, ours, expected[begin:])) for begin in begins):
            continue
        if _changes(ours) == [place for place in changes if place < len(ours)]:
            number, mine, other = next(
                (here + place, mine, other)
                for place, (mine, other) in enumerate(zip(ours, expected[here:], strict=False))
                if mine != other
            )
            rates = f"epoch {number + 1} has learning rate {_shown(mine[0])}, uninterrupted {_shown(other[0])}"
            yield finding("scheduler", f"attempt {one.attempt.number}: {rates}; it counts epochs from 0 again")
            return


def _rates_by_epoch(log: AttemptLog) -> list[list[tuple[float, ...]]]:
    """Return the different rates of each pass over the loader, in order."""
    passes = itertools.groupby(log.updates, lambda one: one.batches[-1].loader_pass if one.batches else 0)
    return [list(dict.fromkeys(one.rates for one in made)) for _, made in passes]


def _changes(rates: Sequence[object]) -> list[int]:
    return [place for place, (one, two) in enumerate(itertools.pairwise(rates), start=1) if one != two]


def _averaged(where: str, ours: ScriptUpdate, saves: Sequence[ScriptEvent]) -> LikelyCause | None:
    """Return the cause, if the weights are those that were saved under the name of an average."""
    for event in reversed(saves):
        tensors, name = event.fields["tensors"], name_of(event.fields["path"])
        for key, digest in tensors.items():
            is_average = final_states.kind_of(name, (key,), is_tensor=True) == final_states.AVERAGE
            if digest == ours.weights_before and is_average and digest != event.fields["weights"]:
                return LikelyCause(
                    "weights",
                    "the weights are the averaged ones: they were saved while the average was in the model",
                    f"{where} began with what {name} has as {key!r}, saved after update {event.update}",
                    "Save before the average is put into the model, or after the trained weights are back in it",
                )
    return None


def name_of(path: object) -> str:
    """Return the name of a saved file, as it is once one that was written beside its place has been moved there."""
    name = Path(str(path)).name
    return _BESIDE.sub("", name) or name


def _rounded(where: str, ours: ScriptUpdate, whole: AttemptLog) -> LikelyCause | None:
    """Return the cause, if all weights have values of a shorter type, and did not from the beginning."""
    if not ours.rounded or any(one.rounded for one in whole.updates[:1]):
        return None
    return LikelyCause(
        "weights",
        f"the weights have been rounded: they were saved as {ours.rounded}, or loaded as such",
        f"{where} began with weights that all are values of {ours.rounded}",
        "Save the weights as they are trained, without .half() or .to(torch.bfloat16), in the file that is loaded",
    )


def _shown(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values[:3]) or "none"


def _scale(update: ScriptUpdate) -> str:
    return "none" if update.scale is None else f"{update.scale:g}"


def _other_samples(first: FirstApart, expected: ScriptUpdate, whole: AttemptLog) -> Iterator[LikelyCause]:
    ours, where = first.ours, first.where
    if not ours.batches or len(ours.batches) != len(expected.batches) or ours.samples == expected.samples:
        return
    taken, here = ours.batches[0], expected.batches[0]
    found = _origin(taken, whole)
    if found is None:
        # Without a loader nothing says who chose them; where no random number was drawn, it is a position.
        draws = taken.loader_pass or not ours.draws_as(expected)
        never = f"{where}: samples in an order that was never there {first.other}"
        yield finding("rng", never) if draws else _position(first, taken, never)
        return
    number, batch = found
    text = f"{where} takes the samples of {_place(number, batch)}, {first.other} those of {_place(first.update, here)}"
    if not taken.loader_pass and not ours.draws_as(expected):
        yield finding("rng", f"{text}, and its random numbers, by which the script may draw them, are others as well")
    elif batch.place != here.place or batch.loader_pass == here.loader_pass:
        yield _position(first, taken, text)
    elif _sampler(whole, batch.loader_pass) == "RandomSampler":
        yield finding("rng", f"{text}: the loader shuffles by torch's random numbers, whose state is another")
    else:
        yield finding("sampler-epoch", text)


def _origin(taken: LoadedBatch, whole: AttemptLog) -> tuple[int, LoadedBatch] | None:
    """Return the update that takes the same samples, or begins with them where batches are cut otherwise."""
    places = [(number, batch) for number, update in enumerate(whole.updates, start=1) for batch in update.batches]
    if same := next((place for place in places if place[1].samples == taken.samples), None):
        return same
    inside = [(sample, place) for place in places for sample in place[1].samples]
    order = [sample for sample, _ in inside]
    length = len(taken.samples)
    begins = (index for index, sample in enumerate(order) if sample == taken.samples[0])
    return next((inside[at][1] for at in begins if tuple(order[at : at + length]) == taken.samples), None)


def _place(number: int, batch: LoadedBatch) -> str:
    """Return the words for a place in the data; what a model's call got has no epoch."""
    return f"update {number}" + (
        f" (batch {batch.place + 1} of epoch {batch.loader_pass})" if batch.loader_pass else ""
    )


def _position(first: FirstApart, taken: LoadedBatch, text: str) -> LikelyCause:
    """Return the cause that a position was lost, with the cure for what was right until then."""
    found = finding("sampler-position", text)
    if taken.loader_pass > 1 and first.index > 0:
        mine = [batch for one in first.attempt.updates for batch in one.batches]
        short = sum(batch.loader_pass == taken.loader_pass for batch in mine)
        has_ended = any(batch.loader_pass > taken.loader_pass for batch in mine)
        length = f"; this epoch has {short} batches" if has_ended else ""
        return replace(
            found,
            text="the resumed epoch is right, and the next one begins at another batch",
            evidence=text + length,
            cure="Skip in the epoch that is resumed only: set the offset back to 0 when it is over",
        )
    if first.right_resumes:
        cure = (
            "The first resume is right: what is saved after it counts from there. Save the position from the beginning "
            "of the epoch: what was skipped, and what was taken since"
        )
        return replace(found, cure=cure)
    if not taken.loader_pass:
        return replace(found, cure="Save where the data was (an index, the stream's state_dict), and continue from it")
    return found


def seen_twice(resumed: Sequence[Resumption], whole: AttemptLog) -> Iterator[LikelyCause]:
    """Yield why the rest of an epoch, after a resume, has samples that were taken before it.

    The uninterrupted run says only how many updates an epoch has, and that it takes each sample once.
    """
    epochs = [one.batches[-1].loader_pass if one.batches else 0 for one in whole.updates]
    for one in resumed:
        if not one.start or one.start >= len(epochs) or not one.attempt.updates or not epochs[one.start]:
            continue
        epoch = epochs[one.start]
        every = [
            sample for update, at in zip(whole.updates, epochs, strict=True) if at == epoch for sample in _of(update)
        ]
        begin, end = epochs.index(epoch), len(epochs) - epochs[::-1].index(epoch)
        before = one.way[begin : one.start]
        after = [sample for update in one.attempt.updates[: end - one.start] for sample in _of(update)]
        again = set(after) & {sample for update in before for sample in _of(update)}
        if len(set(every)) < len(every) or not again:
            continue
        where = f"attempt {one.attempt.number}, from update {one.start + 1} on"
        text = f"{where}: {len(again)} of {len(after)} samples of the rest of epoch {epoch} had been taken in it before"
        if one.attempt.updates[0].samples in [update.samples for update in before]:
            yield finding("sampler-position", text)
        else:
            yield finding("rng" if _sampler(whole, epoch) == "RandomSampler" else "sampler-epoch", text)
        return


def _of(update: ScriptUpdate) -> list[str]:
    return [sample for batch in update.batches for sample in batch.samples]


def _sampler(whole: AttemptLog, number: int) -> str | None:
    passes = (event.fields for event in whole.named(updates.PASS))
    return next((one["sampler"] for one in passes if one["number"] == number), None)


def first_saved_apart(logs: Sequence[tuple[AttemptLog, int]], until: int | None) -> Iterator[LikelyCause]:
    """Yield the saved values that differ between saves after one update: of each attempt, with where it began.

    The first log is what the others are compared with, as far as it goes, and then those before. `until`: the first
    update that differs, after which all do.
    """
    known: dict[tuple[str, int, str], set[object]] = {}
    kinds: dict[tuple[str, str], str | None] = {}
    reported = set()
    for log, start in logs:
        mine: dict[tuple[str, int, str], set[object]] = {}
        for event in log.named(updates.SAVES):
            update, name = start + event.update, name_of(event.fields["path"])
            if event.update and (until is None or update < until):
                for key, digest in event.fields["content"].items():
                    mine.setdefault((name, update, key), set()).add(digest)
                    kind = final_states.kind_of(name, (key,), is_tensor=key in event.fields["tensors"])
                    kinds[name, key] = OF_STATES.get(kind)
        for (name, update, key), digests in mine.items():
            # A script may save twice after one update, and the first attempt have been killed in between.
            expected = known.setdefault((re.sub(r"\d+", "#", name), update, key), digests)
            code = kinds[name, key]
            if code and code not in reported and not digests & expected:
                reported.add(code)
                text = f"{name}: {key!r} is another after update {update}, which attempt {log.number} saved"
                yield finding(code, text)


def lost_counts(whole: AttemptLog, logs: Sequence[tuple[AttemptLog, int]]) -> Iterator[LikelyCause]:
    """Yield a saved count that grows by one an update when nothing interrupts, and is another in an attempt."""
    ahead: dict[str, set[int]] = {}
    for event in whole.named(updates.SAVES):
        for key, value in event.fields["content"].items():
            if type(value) is int:
                ahead.setdefault(key, set()).add(value - event.update)
    saved = {event.update for event in whole.named(updates.SAVES)}
    steady = {key: next(iter(found)) for key, found in ahead.items() if len(found) == 1 and len(saved) > 1}
    for log, start in logs:
        for event in log.named(updates.SAVES):
            for key, offset in steady.items():
                value, update = event.fields["content"].get(key), start + event.update
                if type(value) is int and value != update + offset:
                    name = name_of(event.fields["path"])
                    text = f"{name}: {key!r} is {value} after update {update}, uninterrupted {update + offset}"
                    yield finding("step-counter", f"{text} (attempt {log.number})")
                    return
