"""The training loop: a block, its outcome, a checkpoint, an evaluation, the next block."""

from __future__ import annotations

import contextlib
import math
from typing import Iterator, NamedTuple, Optional

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import attempts, checkpoints, metrics
from trainjob.records.job import TrainSettings
from trainjob.train import evaluation
from trainjob.train.due import Due
from trainjob.train.engines.base import BlockOutcome, Engine, Pending
from trainjob.train.recording.checkpoint import CheckpointWriter
from trainjob.train.recording.metrics import Phases, Recorder, accuracy_text
from trainjob.train.recording.profile import Profiler
from trainjob.train.recording.progress import ProgressWriter
from trainjob.train.resuming import facts
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import Block
from trainjob.train.samples.sources import Source
from trainjob.train.schedule import Schedule
from trainjob.train.stalling import Watch
from trainjob.train.stopping import Flags, Requests, StaleAttemptError
from trainjob.train.world import World

COMPLETED, STOPPED = "completed", "stopped"


class LoopContext(NamedTuple):
    """Everything the loop works with."""

    paths: RunPaths
    settings: TrainSettings
    attempt: int
    counts: Arithmetic
    end: int  # updates of the whole run
    world: World
    engine: Engine
    train: Source
    held_out: Optional[Source]
    schedule: Schedule
    requests: Requests
    writer: CheckpointWriter
    recorder: Recorder
    progress: ProgressWriter
    watch: Watch
    profiler: Optional[Profiler] = None

    def close(self) -> None:
        """Finish writing whatever is being written."""
        if self.profiler is not None:
            self.profiler.close()
        self.writer.close()
        self.recorder.close()
        self.progress.close()


class Loop:
    """One attempt, from update `start` on."""

    def __init__(self, context: LoopContext, start: int) -> None:
        self.context = context
        self.update = start  # updates made
        self.phases = Phases(lambda: context.engine.communication_seconds)
        # An outcome is read while the next block computes, so the outcomes are behind the updates made.
        self._outcomes_read_until = start
        self._logged_until = start  # outcomes that metrics.jsonl has
        self._times_logged_until = start  # updates whose time is in those lines
        self._saved_at: Optional[int] = None
        self._pending: Optional[Pending] = None
        self._flags = Flags()
        self._due = Due(context.settings, context.world, start)
        self._epoch_clock = (start, 0.0)  # updates and training seconds when the epoch began

    def run(self) -> str:
        """Train to the end or to a requested stop; return COMPLETED or STOPPED. Raises UserError, StaleAttemptError."""
        context, per_epoch = self.context, self.context.counts.updates_per_epoch
        context.recorder.begin_line(context.counts.epoch_of(self.update), self.update)
        if self._was_stopped_before_evaluating():
            self._evaluate(self.update // per_epoch)
            context.recorder.startup.end("evaluation")
        # Closed even if an update fails: a thread may be preparing the next blocks.
        with contextlib.closing(context.engine.blocks(context.train, self.update, context.end)) as upcoming:
            while self.update < context.end:
                self._train(upcoming)
                if self._flags.stop or self._flags.stale:
                    return self._stop()
                if self.update < context.end and self._due.at(self.update):
                    self._read_last_outcome()
                    began = clock.monotonic()
                    self._save()
                    stood_still_s = clock.monotonic() - began
                    training_s = self.phases.training_seconds_until_now() - stood_still_s
                    self._say(self._due.saved(self.update, training_s, stood_still_s, context.writer.durable_s))
                if self.update % per_epoch == 0 and self.update < context.end:
                    self._read_last_outcome()
                    self._report_epoch()
                    self._evaluate(self.update // per_epoch)
        return self._complete()

    # -- one block -----------------------------------------------------------------------------

    def _train(self, upcoming: Iterator[Block]) -> None:
        """Start a block, then read the outcome of the previous one, which had a whole block's time to be reduced."""
        context, start = self.context, clock.monotonic()
        context.watch.doing("waiting for samples of", self.update + 1)
        block = next(upcoming)
        self.phases.data += clock.monotonic() - start
        context.recorder.startup.end("data")
        computing = clock.monotonic()
        context.watch.doing("computing", self.update + 1)
        if context.profiler is not None:
            context.profiler.before(self.update + 1)
        before = self._pending
        self._pending = context.engine.train(block, context.requests.now())
        self.update += block.updates
        if before is not None:
            self._note(before())
        if context.profiler is not None:
            context.profiler.after(self.update)
        context.progress.at(context.counts.epoch_of(self.update), self.update)
        context.recorder.block_made(context.counts.epoch_of(self.update), self.update, clock.monotonic() - computing)

    def _note(self, outcome: BlockOutcome) -> None:
        for number, loss in enumerate(outcome.loss, self._outcomes_read_until + 1):
            if not math.isfinite(loss):
                # All ranks know the same loss, and whichever reports first must name the newest checkpoint.
                self.context.world.from_first(int(self._durable()))
                raise self._not_finite("the loss of update %d is %s" % (number, loss))
        self._outcomes_read_until += len(outcome.loss)
        self._flags = Flags(self._flags.stop or outcome.flags.stop, self._flags.stale or outcome.flags.stale)
        self.context.recorder.note(outcome.loss, outcome.metrics)
        every = self.context.settings.log_every
        if self._outcomes_read_until // every > self._logged_until // every:
            self._log()

    def _read_last_outcome(self) -> None:
        """Read the outcome of the last block, waiting for it."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._note(pending())

    def _log(self) -> None:
        context, update = self.context, self._outcomes_read_until
        if not context.recorder.interval.updates or context.requests.now().stale:
            return
        samples = (self.update - self._times_logged_until) * context.counts.global_batch
        rate = context.schedule(update - 1)
        context.recorder.train_line(context.counts.epoch_of(update), update, samples, rate, self.phases.close())
        self._logged_until, self._times_logged_until = update, self.update

    # -- between blocks ------------------------------------------------------------------------

    def _save(self) -> None:
        """Start writing a checkpoint of the current weights."""
        context, start = self.context, clock.monotonic()
        context.watch.doing("writing the checkpoint of", self.update)
        if not context.engine.is_finite():
            raise self._not_finite("the weights are infinite or not a number after update %d" % self.update)
        if context.engine.shards or context.world.rank == 0:
            context.writer.save(
                self.update,
                context.engine.state(),
                facts(context.settings, context.counts, self.update, context.attempt),
            )
        self._saved_at = self.update
        self.phases.checkpoint += clock.monotonic() - start

    def _save_durably(self) -> None:
        """Write a checkpoint and return once it is on disk. Raises UserError if it can't be written."""
        if self._saved_at != self.update:
            self._save()
        start = clock.monotonic()
        durable = self.context.world.from_first(int(self._durable()))
        self.phases.checkpoint += clock.monotonic() - start
        if durable < 0:
            raise StaleAttemptError("attempt %d" % self.context.attempt)
        if not durable:
            raise UserError(
                "the checkpoint of update %d could not be written" % self.update,
                "free some space on the disk of %s, then resume" % self.context.paths.checkpoints,
            )

    def _durable(self) -> int:
        """Return 1 if the last checkpoint is on disk, 0 if it is not, −1 if this attempt may no longer write."""
        try:
            return int(self.context.writer.finish())
        except StaleAttemptError:
            return -1

    def _not_finite(self, what: str) -> UserError:
        newest = checkpoints.newest(self.context.paths)
        kept = "there is no checkpoint yet" if newest is None else "the last good checkpoint is %s" % newest
        return UserError("%s: %s" % (what, kept), "Use a smaller learning rate, or look at the samples of that update")

    def _report_epoch(self) -> None:
        means = self.context.recorder.end_epoch().columns()
        (began, before), now = self._epoch_clock, self.phases.training_seconds_until_now()
        rate = (self.update - began) * self.context.counts.global_batch / (now - before)
        self._epoch_clock = (self.update, now)
        epoch, accuracy = self.context.counts.epoch_of(self.update), accuracy_text(means["accuracy"])
        self._say(
            "epoch %d  update %d  loss %.4f%s  %.0f samples/s" % (epoch, self.update, means["loss"], accuracy, rate)
        )

    def _evaluate(self, epochs: Optional[int] = None) -> None:
        """Evaluate if that is due after `epochs` of the run; without a number, at its end."""
        context, counts = self.context, self.context.counts
        if context.held_out is None:
            return
        epoch_samples = counts.updates_per_epoch * counts.global_batch
        if epochs is not None and not evaluation.is_due(epochs, epoch_samples, len(context.held_out)):
            return
        start = clock.monotonic()
        context.watch.doing("evaluating after", self.update)

        def beat() -> None:
            context.progress.beat()
            context.watch.beat()

        result = evaluation.evaluate(context.engine, context.held_out, context.world, beat)
        epoch, accuracy = counts.epoch_of(self.update), accuracy_text(result.metrics.get("accuracy"))
        averaged = "" if context.settings.average_decay is None else "  averaged weights"
        context.recorder.evaluation_line(
            epoch, self.update, result.loss, result.metrics, result.samples, result.seconds
        )
        self._say("update %d  held-out loss %.4f%s%s" % (self.update, result.loss, accuracy, averaged))
        self.phases.aside += clock.monotonic() - start

    def _was_stopped_before_evaluating(self) -> bool:
        """Return whether the attempt before ended at the end of an epoch, after whose last update it would evaluate."""
        is_end = self.update > 0 and self.update % self.context.counts.updates_per_epoch == 0
        if not is_end or self.update >= self.context.end:
            return False
        # Rank 0's view decides: another host may see the file later.
        lines = metrics.read(self.context.paths) if self.context.world.rank == 0 else iter(())
        has_line = any(line.kind == "evaluation" and line.update == self.update for line in lines)
        return not self.context.world.from_first(int(has_line))

    def _say(self, line: str) -> None:
        if line and self.context.world.rank == 0:
            self.context.progress.say(line)

    # -- the end -------------------------------------------------------------------------------

    def _stop(self) -> str:
        """Write a checkpoint and, once it is durable, leave the marker that job scripts look for."""
        context = self.context
        self._read_last_outcome()
        if self._flags.stale:
            raise StaleAttemptError("attempt %d" % context.attempt)
        if self.update >= context.end:
            return self._complete()
        self._log()
        context.recorder.ended(context.counts.epoch_of(self.update), self.update)
        self._save_durably()
        if context.world.rank == 0:
            context.recorder.stop_line(context.counts.epoch_of(self.update), self.update)
            attempts.ask_to_requeue(context.paths, self.update)
        self._say("stopped on request after update %d of %d; its checkpoint is written" % (self.update, context.end))
        return STOPPED

    def _complete(self) -> str:
        context = self.context
        self._read_last_outcome()
        self._log()
        if self._flags.stale:
            raise StaleAttemptError("attempt %d" % context.attempt)
        self._save_durably()
        if context.recorder.epoch.updates:
            self._report_epoch()
        self._evaluate()
        self.phases.close()
        context.recorder.ended(context.counts.epoch_of(self.update), self.update)
        context.recorder.end_line(context.counts.epoch_of(self.update), self.update, self.phases.training_seconds)
        return COMPLETED
