"""The training loop: a block, its outcome, a checkpoint, an evaluation, the next block."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Iterator, NamedTuple, Optional

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import attempts, checkpoints
from trainjob.records.job import TrainSettings
from trainjob.train import evaluation
from trainjob.train.due import Due
from trainjob.train.engines.base import Engine, Flags, Outcome, Pending
from trainjob.train.recording.checkpoint import CheckpointWriter
from trainjob.train.recording.metrics import Phases, Recorder, accuracy_text
from trainjob.train.recording.profile import Profiler
from trainjob.train.recording.progress import Progress
from trainjob.train.recording.resuming import facts
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import Block
from trainjob.train.samples.sources import Source
from trainjob.train.schedule import Schedule
from trainjob.train.stalling import Watch
from trainjob.train.stopping import Requests, StaleAttemptError
from trainjob.train.world import World

COMPLETED, STOPPED = "completed", "stopped"
_AFTER_NAN = "Use a smaller learning rate, or look at the samples of that update"


class Stage(NamedTuple):
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
    progress: Progress
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

    def __init__(self, stage: Stage, start: int) -> None:
        self.stage = stage
        self.update = start  # updates made
        self._read = start  # updates whose outcome has been read
        self._pending: Optional[Pending] = None
        self._flags = Flags()
        self._saved_at: Optional[int] = None
        self._due = Due(stage.settings, stage.world, start)
        self._logged = start  # updates up to which metrics.jsonl has lines
        self._timed = start  # updates whose time is in those lines: an outcome is read one block later
        self._epoch_clock = (start, 0.0)  # updates and training seconds when the epoch began
        self.phases = Phases(lambda: stage.engine.communication_seconds)

    def run(self) -> str:
        """Train to the end or to a requested stop; return COMPLETED or STOPPED. Raises UserError, StaleAttemptError."""
        self.stage.recorder.begin_line(self.stage.counts.epoch_of(self.update), self.update)
        # Closed even if an update fails: a thread may be preparing the next blocks.
        blocks = self.stage.engine.blocks(self.stage.train, self.update, self.stage.end)
        with contextlib.closing(blocks) as upcoming:
            return self._run(upcoming)

    def _run(self, upcoming: Iterator[Block]) -> str:
        while self.update < self.stage.end:
            block = self._next(upcoming)
            self._train(block)
            if self._flags.stop or self._flags.stale:
                return self._stop()
            if self.update < self.stage.end and self._due.at(self.update):
                self._settle()
                began = time.perf_counter()
                self._save()
                self._plan_next_checkpoint(time.perf_counter() - began)
            if self._at_epoch_end():
                self._settle()
                self._end_of_epoch()
        return self._complete()

    # -- one block -----------------------------------------------------------------------------

    def _next(self, upcoming: Iterator[Block]) -> Block:
        start = time.perf_counter()
        self.stage.watch.doing("waiting for samples of", self.update + 1)
        block = next(upcoming)
        self.phases.data += time.perf_counter() - start
        return block

    def _train(self, block: Block) -> None:
        """Start a block, then read the outcome of the previous one, which had a whole block's time to be reduced."""
        self.stage.watch.doing("computing", self.update + 1)
        if self.stage.profiler is not None:
            self.stage.profiler.before(self.update + 1)
        before = self._pending
        self._pending = self.stage.engine.train(block, Flags(*self.stage.requests.now()))
        self.update += block.updates
        if before is not None:
            self._note(before.read())
        if self.stage.profiler is not None:
            self.stage.profiler.after(self.update)
        self.stage.progress.at(self.stage.counts.epoch_of(self.update), self.update)

    def _note(self, outcome: Outcome) -> None:
        for number, loss in enumerate(outcome.loss):
            if not math.isfinite(loss):
                raise self._not_finite(self._read + number + 1, loss)
        self._read += len(outcome.loss)
        self._flags = Flags(self._flags.stop or outcome.flags.stop, self._flags.stale or outcome.flags.stale)
        self.stage.recorder.note(outcome.loss, outcome.metrics)
        if self._read // self.stage.settings.log_every > self._logged // self.stage.settings.log_every:
            self._log()

    def _settle(self) -> None:
        """Read the outcome of the last block, waiting for it."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._note(pending.read())

    def _log(self) -> None:
        if not self.stage.recorder.interval.updates or self.stage.requests.now().stale:
            return
        samples = (self.update - self._timed) * self.stage.counts.global_batch
        epoch = self.stage.counts.epoch_of(self._read)
        rate = self.stage.schedule(self._read - 1)
        self.stage.recorder.train_line(epoch, self._read, samples, rate, self.phases.close())
        self._logged, self._timed = self._read, self.update

    # -- between blocks ------------------------------------------------------------------------

    def _at_epoch_end(self) -> bool:
        return self.update % self.stage.counts.updates_per_epoch == 0 and self.update < self.stage.end

    def _plan_next_checkpoint(self, stood_still_s: float) -> None:
        training_s = self.phases.training_seconds_until_now() - stood_still_s
        line = self._due.saved(self.update, training_s, stood_still_s, self.stage.writer.durable_s)
        if line:
            self._say(line)

    def _save(self) -> None:
        """Start writing a checkpoint of the current weights."""
        stage, start = self.stage, time.perf_counter()
        stage.watch.doing("writing the checkpoint of", self.update)
        if not stage.engine.is_finite():
            raise UserError(
                "the weights are infinite or not a number after update %d: %s" % (self.update, self._newest_kept()),
                _AFTER_NAN,
            )
        if stage.engine.shards or stage.world.rank == 0:
            stage.writer.save(
                self.update, stage.engine.state(), facts(stage.settings, stage.counts, self.update, stage.attempt)
            )
        self._saved_at = self.update
        self.phases.checkpoint += time.perf_counter() - start

    def _save_durably(self) -> None:
        """Write a checkpoint and return once it is on disk. Raises UserError if it can't be written."""
        if self._saved_at != self.update:
            self._save()
        start = time.perf_counter()
        durable = self.stage.world.from_first(int(self._durable()))
        self.phases.checkpoint += time.perf_counter() - start
        if durable < 0:
            raise StaleAttemptError("attempt %d" % self.stage.attempt)
        if not durable:
            raise UserError(
                "the checkpoint of update %d could not be written" % self.update,
                "free some space on the disk of %s, then resume" % self.stage.paths.checkpoints,
            )

    def _durable(self) -> int:
        """Return 1 if the last checkpoint is on disk, 0 if it is not, −1 if this attempt may no longer write."""
        try:
            return int(self.stage.writer.finish())
        except StaleAttemptError:
            return -1

    def _end_of_epoch(self) -> None:
        self._report_epoch()
        stage = self.stage
        epochs, per_epoch = self.update // stage.counts.updates_per_epoch, stage.counts.updates_per_epoch
        samples = per_epoch * stage.counts.global_batch
        if stage.held_out is not None and evaluation.is_due(epochs, samples, len(stage.held_out)):
            self._evaluate()

    def _evaluate(self) -> None:
        stage = self.stage
        if stage.held_out is None:
            return
        start = time.perf_counter()
        stage.watch.doing("evaluating after", self.update)
        result = evaluation.evaluate(stage.engine, stage.held_out, stage.world, self._beat)
        averaged = "" if stage.settings.average_decay is None else "  averaged weights"
        epoch = self.stage.counts.epoch_of(self.update)
        stage.recorder.evaluation_line(epoch, self.update, result.loss, result.metrics, result.samples, result.seconds)
        self._say(
            "update %d  held-out loss %.4f%s%s"
            % (self.update, result.loss, accuracy_text(result.metrics.get("accuracy")), averaged)
        )
        self.phases.aside += time.perf_counter() - start

    def _beat(self) -> None:
        self.stage.progress.beat()
        self.stage.watch.beat()

    def _report_epoch(self) -> None:
        means = self.stage.recorder.end_epoch().columns()
        (began, before), now = self._epoch_clock, self.phases.training_seconds_until_now()
        rate = (self.update - began) * self.stage.counts.global_batch / (now - before)
        self._epoch_clock = (self.update, now)
        epoch = self.stage.counts.epoch_of(self.update)
        accuracy = accuracy_text(means["accuracy"])
        self._say(
            "epoch %d  update %d  loss %.4f%s  %.0f samples/s" % (epoch, self.update, means["loss"], accuracy, rate)
        )

    def _say(self, line: str) -> None:
        if self.stage.world.rank == 0:
            self.stage.progress.say(line)

    # -- the end -------------------------------------------------------------------------------

    def _stop(self) -> str:
        """Write a checkpoint and, once it is durable, leave the marker that job scripts look for."""
        self._settle()
        if self._flags.stale:
            raise StaleAttemptError("attempt %d" % self.stage.attempt)
        if self.update >= self.stage.end:
            return self._complete()
        self._log()
        self.stage.recorder.ended()
        self._save_durably()
        if self.stage.world.rank == 0:
            self.stage.recorder.stop_line(self.stage.counts.epoch_of(self.update), self.update)
            attempts.ask_to_requeue(self.stage.paths, self.update)
        self._say("stopped on request after update %d of %d; its checkpoint is written" % (self.update, self.stage.end))
        return STOPPED

    def _complete(self) -> str:
        self._settle()
        self._log()
        if self._flags.stale:
            raise StaleAttemptError("attempt %d" % self.stage.attempt)
        self._save_durably()
        if self.stage.recorder.epoch.updates:
            self._report_epoch()
        self._evaluate()
        self.phases.close()
        self.stage.recorder.ended()
        self.stage.recorder.end_line(self.stage.counts.epoch_of(self.update), self.update, self.phases.training_seconds)
        return COMPLETED

    def _not_finite(self, update: int, loss: float) -> UserError:
        # All ranks know the same loss, and whichever reports first must name the newest checkpoint.
        self.stage.world.from_first(int(self._durable()))
        return UserError("the loss of update %d is %s: %s" % (update, loss, self._newest_kept()), _AFTER_NAN)

    def _newest_kept(self) -> str:
        newest = checkpoints.newest(self.stage.paths)
        return "there is no checkpoint yet" if newest is None else "the last good checkpoint is %s" % newest
