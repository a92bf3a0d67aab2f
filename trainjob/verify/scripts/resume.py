"""Whether a script of the user's own resumes: interrupted ≡ uninterrupted, and what was lost where it does not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import updates
from trainjob.requests.workbench import Workbench
from trainjob.verify.scripts import final_states, update_log
from trainjob.verify.scripts.final_states import Apart, Compared
from trainjob.verify.scripts.interruptions import (
    KILL,
    MARGIN_S,
    PREEMPTION,
    TIME_LIMIT,
    Interrupted,
    ScriptInterruption,
    interrupted,
    recorded,
)
from trainjob.verify.scripts.update_log import AttemptLog, ScriptUpdate, starts_at
from trainjob.verify.tasks.diagnosis import NOISE, UNSEEN, DiagnosedVerdict, LikelyCause

# A script that looks at its flag every few updates may finish those; one that looks between epochs makes many more.
_SOON = 3

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
    "unknown": (
        "weights, optimizer, samples, rates and random numbers are the same before this update, and its result is not",
        "Look for what else the script keeps from update to update: gradients that it accumulates, clipping, a cache",
    ),
    NOISE: (
        "the script differs from itself even when nothing interrupts it, so the comparison shows nothing",
        "",
    ),
    UNSEEN: (
        "nothing could be compared: no update and no saved state was seen",
        "Save below the working folder, with torch.save, safetensors or torch.distributed.checkpoint",
    ),
}
_OF_STATES = {
    final_states.WEIGHTS: "weights",
    final_states.OPTIMIZER: "optimizer",
    final_states.SCHEDULER: "scheduler",
    final_states.SCALER: "scaler",
    final_states.AVERAGE: "ema",
    final_states.COUNTER: "step-counter",
}
_NOISE_CURES = {
    "seed": "Seed before the model is made: torch.manual_seed, random.seed, numpy.random.seed",
    "order": "Give the loader a seeded generator, or the sampler a seed; workers that share a queue have no order",
    "random": "Seed each rank's random numbers once, before the first update",
    "operations": "Call torch.use_deterministic_algorithms(True), and keep the number of threads",
}


@dataclass(frozen=True, kw_only=True)
class ScriptVerdict(DiagnosedVerdict):
    """Whether the interrupted script ended as the uninterrupted one. `notes`: what is no fault, or can't be judged."""

    updates: int = 0
    interruptions: Sequence[ScriptInterruption] = ()
    compared: Compared | None = None
    notes: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for `--json`."""
        values = super().as_json()
        compared = values.pop("compared") or {"files": [], "values": 0, "apart": []}
        return {**values, **{name: compared[name] for name in ("files", "values", "apart")}}


def verify_script(
    workbench: Workbench, *, instances: int, interruptions: int, ways: Sequence[str], seed: int
) -> ScriptVerdict:
    """Return whether the job's command resumes. Raises UserError when it fails although nothing interrupts it."""
    request = recorded(workbench, instances=instances)
    whole = workbench.run(request)
    logs = update_log.read(whole)
    saved = [str(event.fields["path"]) for log in logs for event in log[0].named(updates.SAVED) if event.fields["path"]]
    if strays := final_states.stray(whole, saved):
        raise UserError(
            f"the script saves {strays[0]}, outside of its run, where an interrupted run would meet an uninterrupted "
            "one's files",
            "Have it save below its working folder, or in $TRAINJOB_RUN_DIR",
        )
    if not logs or not logs[0][0].updates:
        blind = [str(event.fields["why"]) for log in logs for event in log[0].named(updates.BLIND)]
        why = blind[0] if blind else "the ranks' Python made no step of a torch optimizer"
        return ScriptVerdict(findings=[_finding(UNSEEN, why)], runs=[whole])
    broken = interrupted(workbench, request, logs[0], most=interruptions, ways=ways, seed=seed)
    evidence = ResumeEvidence(whole, broken, logs, update_log.read(broken.paths))
    compared = None if broken.crashed else final_states.compare(whole, broken.paths)
    found = list(evidence.findings())
    found += by_states(compared, evidence, found)
    notes = [*evidence.notes(), *_notes_of_states(compared, explained=bool(found))]
    runs = [whole, broken.paths]
    if any(one.code not in _OF_SIGNALS for one in found):
        workbench.say("  they differ: does the script differ from itself when nothing interrupts it?")
        control = workbench.run(request)
        runs.append(control)
        noise = _noise(whole, control, logs, update_log.read(control))
        if noise is not None:
            found = [one for one in found if one.code in _OF_SIGNALS] or [noise]
    return ScriptVerdict(
        updates=len(logs[0][0].updates),
        interruptions=evidence.interruptions(),
        compared=compared,
        findings=found,
        notes=notes,
        runs=runs,
    )


# Findings that no noise can cause.
_OF_SIGNALS = ("torn-checkpoint", "crashed", "between-epochs", "nothing-saved", "workers-killed", "no-checkpoint")


_finding = partial(LikelyCause.of, _CAUSES)


@dataclass(frozen=True)
class _FirstApart:
    """The first update that differs. `expected` is that of the uninterrupted run; None: it had ended before."""

    attempt: AttemptLog
    index: int  # of the update within its attempt
    update: int  # counted from 1, as the uninterrupted run does
    ours: ScriptUpdate
    expected: ScriptUpdate | None

    @property
    def where(self) -> str:
        """The words that say which update it is."""
        again = f", number {self.index + 1} of attempt {self.attempt.number}" if self.attempt.number > 1 else ""
        return f"update {self.update}{again}"


class ResumeEvidence:
    """What the two runs recorded, and what follows from it."""

    def __init__(
        self,
        whole: RunPaths,
        broken: Interrupted,
        expected: Sequence[Sequence[AttemptLog]],
        found: Sequence[Sequence[AttemptLog]],
    ) -> None:
        self._whole_run, self._broken = whole, broken
        self._whole = expected[0][0]
        self._all, self._found = expected, found
        self._attempts = found[0] if found else []
        self._starts = {one.number: starts_at(one, self._whole) for one in self._attempts}
        self.first = first_apart(self._whole, self._attempts)

    def interruptions(self) -> list[ScriptInterruption]:
        """Return the interruptions, each with the update after which the script continued."""
        return [replace(one, continued_at=self._starts.get(one.attempt + 1)) for one in self._broken.interruptions]

    def findings(self) -> Iterator[LikelyCause]:
        """Yield what was lost, the most telling first."""
        yield from self._crash()
        if not any(event.update < len(self._whole.updates) for event in self._whole.named(updates.SAVED)):
            total = len(self._whole.updates)
            yield _finding("no-checkpoint", f"{total} updates, and nothing saved before the last")
            return
        yield from self._not_resumed()
        shards = list(self._shards())
        yield from shards
        if self.first is not None and not shards:
            yield from lost(self.first, self._whole, longer=self._is_longer())
        elif self.first is None and not self._broken.crashed and not shards:
            yield from self._too_short()
        yield from self._of_signals()

    def _crash(self) -> Iterator[LikelyCause]:
        crashed = self._broken.crashed
        if crashed is None:
            return
        tail = crashed.failure.tail[-6:] if crashed.failure else []
        last = "\n  | ".join([f"attempt {crashed.attempt} is {crashed.state}", *tail])
        torn = final_states.torn(self._broken.paths)
        before = self._broken.interruptions[-1] if self._broken.interruptions else None
        if before is not None and before.attempt == crashed.attempt - 1 and before.moment == updates.AT_SAVE:
            named = [f"{state.path.name} {why}" for state, why in torn[:1]] or ["some of its files are missing"]
            yield _finding("torn-checkpoint", f"killed while it saved: {named[0]}\n  | {last}")
        elif torn:
            yield _finding("torn-checkpoint", f"{torn[0][0].path.name} {torn[0][1]}\n  | {last}")
        elif self.first is None:
            yield _finding("crashed", last)

    def _not_resumed(self) -> Iterator[LikelyCause]:
        saved = 0
        for attempt in self._attempts:
            start = self._starts[attempt.number]
            if start == 0 and saved > 0 and len(self._whole.updates) > 0:
                yield _finding("not-resumed", f"attempt {attempt.number} began at update 1; {saved} updates were saved")
                return
            saved = max([saved, *((start or 0) + event.update for event in attempt.named(updates.SAVED))])

    def _shards(self) -> Iterator[LikelyCause]:
        """Look at what the other ranks of a sharded model began with."""
        savers = {rank for rank, log in enumerate(self._found) for one in log if one.named(updates.SAVED)}
        if savers != {0}:
            return
        for rank, (log, whole) in enumerate(zip(self._found, self._all, strict=False)):
            for attempt in log[1:]:
                ours, first = starts_at(attempt, whole[0]), self._starts.get(attempt.number)
                if rank and attempt.updates and first is not None and ours != first:
                    yield _finding(
                        "rank-0-only",
                        f"attempt {attempt.number}: rank 0 began as after update {first}, and rank {rank} did not",
                    )
                    return

    def _is_longer(self) -> bool:
        ends = [(self._starts[one.number] or 0) + len(one.updates) for one in self._attempts]
        return max(ends, default=0) > len(self._whole.updates)

    def _too_short(self) -> Iterator[LikelyCause]:
        total = len(self._whole.updates)
        ends = [start + len(one.updates) for one in self._attempts if (start := self._starts[one.number]) is not None]
        if max(ends, default=0) < total:
            yield _finding("fewer-updates", f"{max(ends, default=0)} of {total} updates")

    def _of_signals(self) -> Iterator[LikelyCause]:
        """Look at what the script did between each signal and its end."""
        logs = {one.number: one for one in self._attempts}
        for one in self._broken.interruptions:
            log = logs.get(one.attempt)
            if one.way == KILL or log is None or not log.updates or not one.handles:
                continue
            saved = log.after_wait(updates.SAVED)
            last = saved[0].update if saved else len(log.updates)
            more = last - one.after
            if one.way == PREEMPTION:
                if not saved and (line := self._death_of_worker(one.attempt)):
                    yield _finding("workers-killed", f"attempt {one.attempt}, TERM after update {one.after}: {line}")
            elif "USR1" in one.handles and more > _SOON and self._ends_pass(log, last):
                yield _finding(
                    "between-epochs",
                    f"attempt {one.attempt}: USR1 after update {one.after}, and {more} more updates, to the end of the "
                    "epoch, before it saved",
                )
            elif "USR1" in one.handles and not saved:
                made = f"{more} more updates" if more else "none of its files was written"
                yield _finding(
                    "nothing-saved",
                    f"attempt {one.attempt}: USR1 after update {one.after}, {MARGIN_S:.0f} s until TERM, and {made}",
                )

    def _ends_pass(self, log: AttemptLog, update: int) -> bool:
        """Return whether a pass over the data ended with this update of an attempt, or after the interruption."""
        if any(event.update <= update for event in log.after_wait(updates.PASS_ENDED)):
            return True
        # Lightning counts batches, and asks for none after the last.
        around = self._whole.updates[(self._starts[log.number] or 0) + update - 1 :][:2]
        passes = {one.batches[-1].loader_pass for one in around if one.batches}
        return len(passes) == 2

    def _death_of_worker(self, attempt: int) -> str | None:
        for line in self._log_lines(attempt):
            if "DataLoader worker" in line and ("killed by signal" in line or "exited unexpectedly" in line):
                return line.strip()
        return None

    def _log_lines(self, attempt: int) -> list[str]:
        try:
            text = self._broken.paths.rank_log(0).read_text(errors="replace")
        except OSError:
            return []
        _, _, mine = text.partition(f"--- attempt {attempt} ")
        return mine.partition(f"--- attempt {attempt + 1} ")[0].splitlines()

    def notes(self) -> Iterator[str]:
        """Yield what a reader should know and is no fault."""
        saved = 0
        for attempt in self._attempts:
            start = self._starts[attempt.number]
            if start is not None and 0 < start < saved:
                yield (
                    f"attempt {attempt.number} resumed from an older checkpoint: from update {start}, though files "
                    f"were written after update {saved}"
                )
            saved = max([saved, *((start or 0) + event.update for event in attempt.named(updates.SAVED))])
        for one in self._broken.interruptions:
            if one.state == states.COMPLETED:
                yield (
                    f"attempt {one.attempt} ended with 0 after {one.way}, which means that the run is complete: leave "
                    "the marker $TRAINJOB_RUN_DIR/requeue to be started again"
                )
            if one.way == TIME_LIMIT and "USR1" not in one.handles and one.moment != updates.AT_START:
                yield f"attempt {one.attempt}: the script does not handle USR1, and saves nothing before the limit"
        if any(log[0].named(updates.BLIND) for log in self._all):
            yield "the hook in the ranks failed, so not every update was seen"


def first_apart(whole: AttemptLog, attempts: Sequence[AttemptLog]) -> _FirstApart | None:
    """Return the first update of the attempts that differs from the uninterrupted run's."""
    reached = 0
    for attempt in attempts:
        start = starts_at(attempt, whole)
        for index, ours in enumerate(attempt.updates):
            number = (reached if start is None else start) + index
            expected = whole.updates[number] if number < len(whole.updates) else None
            if start is None or expected is None or not ours.ends_as(expected):
                return _FirstApart(attempt, index, number + 1, ours, expected)
        reached = max(reached, (start or 0) + len(attempt.updates))
    return None


def lost(first: _FirstApart, whole: AttemptLog, *, longer: bool) -> Iterator[LikelyCause]:
    """Yield what the first update that differs has lost."""
    ours, expected, where = first.ours, first.expected, first.where
    if expected is None:
        yield _finding("step-counter", f"{where}: the uninterrupted run has {len(whole.updates)} updates")
        return
    if ours.weights_before != expected.weights_before:
        yield _finding("weights", f"{where} began with other weights")
        return
    found = []
    if ours.state_before != expected.state_before:
        what = "it is empty" if not ours.state_before else "it is another"
        found.append(_finding("optimizer", f"{where}: {what}"))
    elif ours.rates != expected.rates:
        rates = f"{where}: learning rate {_shown(ours.rates)}, uninterrupted {_shown(expected.rates)}"
        found.append(_finding("step-counter" if longer else "scheduler", rates))
    if ours.scale != expected.scale:
        found.append(_finding("scaler", f"{where}: scale {ours.scale:g}, uninterrupted {expected.scale:g}"))
    found += _other_samples(first, expected, whole)
    if not found and longer:
        found.append(_finding("step-counter", f"{where}, and more updates than the uninterrupted run's"))
    if not found and (ours.random_before != expected.random_before or not ours.same_losses(expected)):
        losses = f"loss {_shown(ours.losses)}, uninterrupted {_shown(expected.losses)}"
        found.append(_finding("rng", f"{where}: the same weights and samples, and {losses}"))
    yield from found or [_finding("unknown", where)]


def _shown(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values[:3]) or "none"


def _other_samples(first: _FirstApart, expected: ScriptUpdate, whole: AttemptLog) -> Iterator[LikelyCause]:
    ours, where = first.ours, first.where
    if not ours.batches or len(ours.batches) != len(expected.batches) or ours.samples == expected.samples:
        return
    here = expected.batches[0]
    found = [
        (number, batch)
        for number, update in enumerate(whole.updates, start=1)
        for batch in update.batches
        if batch.samples == ours.batches[0].samples
    ]
    if not found:
        yield _finding("rng", f"{where}: samples in an order that the uninterrupted run never had")
        return
    number, batch = found[0]
    text = (
        f"{where} takes the samples of update {number} (batch {batch.place + 1} of epoch {batch.loader_pass}), "
        f"uninterrupted those of batch {here.place + 1} of epoch {here.loader_pass}"
    )
    is_same_place = batch.place == here.place and batch.loader_pass != here.loader_pass
    yield _finding("sampler-epoch" if is_same_place else "sampler-position", text)


def by_states(
    compared: Compared | None, evidence: ResumeEvidence, found: Sequence[LikelyCause]
) -> Iterator[LikelyCause]:
    """Yield what only the saved states show: an average of the weights, a count."""
    if compared is None:
        return
    if evidence.first is not None:
        counts_the_same = compared.counts and not any(one.kind == final_states.COUNTER for one in compared.apart)
        steps = [one for one in compared.apart if one.kind == final_states.SCHEDULER and one.has_grown]
        if counts_the_same and steps and all(one.code != "step-counter" for one in found):
            # Trainer's count says both which samples come next and when it is over.
            yield _finding(
                "step-counter", f"every saved count is the same, and the scheduler's is not: {_described(steps)}"
            )
        return
    for kind, code in _OF_STATES.items():
        apart = [one for one in compared.apart if one.kind == kind]
        if apart:
            yield _finding(code, f"in the last {_described(apart)}")


def _described(apart: Sequence[Apart]) -> str:
    more = f", and {len(apart) - 1} more values" if len(apart) > 1 else ""
    return f"{apart[0].file}: {apart[0].name} {apart[0].difference}{more}"


def _notes_of_states(compared: Compared | None, *, explained: bool) -> Iterator[str]:
    if compared is None:
        return
    if not compared.files:
        yield "no final state was found among the files of both runs: only the updates are compared"
    yield from (f"not compared: {one}" for one in compared.unread)
    if explained:
        return
    random = [one for one in compared.apart if one.kind == final_states.RANDOM]
    if random:
        yield f"random numbers end in another state, which changed no update: {_described(random)}"
    for one in compared.apart:
        if one.kind == final_states.TRACKER:
            yield f"another run of the tracker was begun: {_described([one])}"


def _noise(
    whole: RunPaths, control: RunPaths, logs: Sequence[Sequence[AttemptLog]], others: Sequence[Sequence[AttemptLog]]
) -> LikelyCause | None:
    """Return how the script differs from itself; None if it does not."""
    first = first_apart(logs[0][0], others[0]) if others else None
    if first is None or first.expected is None:
        compared = final_states.compare(whole, control)
        apart = [one for one in compared.apart if one.kind in _OF_STATES]
        return replace(_finding(NOISE, _described(apart)), cure=_NOISE_CURES["operations"]) if apart else None
    ours, expected = first.ours, first.expected
    if first.update == 1 and ours.weights_before != expected.weights_before:
        cause, why = "seed", "the first weights differ"
    elif ours.samples != expected.samples:
        cause, why = "order", "the samples come in another order"
    elif ours.random_before != expected.random_before:
        cause, why = "random", "the random numbers differ"
    else:
        cause, why = "operations", "the same weights, samples and random numbers give another result"
    pairs = [(a, b) for a, b in zip(ours.losses, expected.losses, strict=False) if not math.isnan(a + b)]
    noise = max((abs(a - b) for a, b in pairs), default=math.nan)
    text = f"two uninterrupted runs, update {first.update}: {why}; losses {noise:.1e} apart"
    return replace(_finding(NOISE, text), cure=_NOISE_CURES[cause])
