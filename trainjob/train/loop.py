"""The training, in the order it happens: a block, what it gave, a checkpoint, an evaluation, the next block."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any, Generator, Iterator, NamedTuple, Optional

from trainjob.contract.errors import UserError
from trainjob.contract.files import write_atomically
from trainjob.contract.job import TrainSettings
from trainjob.contract.paths import RunPaths
from trainjob.train import evaluation
from trainjob.train.arithmetic import Arithmetic
from trainjob.train.batches import Block
from trainjob.train.checkpoint import CheckpointWriter
from trainjob.train.engines.base import Engine, Flags, Outcome, Pending
from trainjob.train.metrics import Phases, Recorder, accuracy_text
from trainjob.train.progress import Progress
from trainjob.train.resuming import facts
from trainjob.train.schedules import Schedule
from trainjob.train.sources import Source
from trainjob.train.stalling import Watch
from trainjob.train.stopping import Requests, StaleAttemptError
from trainjob.train.world import World

COMPLETED, STOPPED = "completed", "stopped"


class Stage(NamedTuple):
    """All that the loop works with."""

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

    def close(self) -> None:
        """Bring what is being written to its end."""
        self.writer.close()
        self.recorder.close()
        self.progress.close()


class Loop:
    """One attempt, from update `start` on."""

    def __init__(self, stage: Stage, start: int) -> None:
        self.stage = stage
        self.update = start  # updates made
        self._read = start  # updates whose outcome is known
        self._pending: Optional[Pending] = None
        self._flags = Flags()
        self._saved_at: Optional[int] = None
        self._evaluated_at = start
        self._logged = start  # updates up to which metrics.jsonl has lines
        self._timed = start  # updates whose time is in those lines: outcomes follow a block later than times
        self._epoch_clock = (start, 0.0)  # updates and training seconds when the epoch began
        self.phases = Phases(lambda: stage.engine.communication_seconds)

    def run(self) -> str:
        """Train until the end or until asked to stop; return which. Raises UserError, StaleAttemptError."""
        # Closed even where an update fails: a thread may be making the next blocks.
        with contextlib.closing(self._blocks()) as upcoming:
            return self._run(upcoming)

    def _run(self, upcoming: Iterator[Block]) -> str:
        while self.update < self.stage.end:
            block = self._next(upcoming)
            self._train(block)
            if self._flags.stop or self._flags.stale:
                return self._stop()
            if self._checkpoint_is_due():
                self._settle()
                self._save()
            if self._at_epoch_end():
                self._settle()
                self._end_of_epoch()
        return self._complete()

    # -- one block -----------------------------------------------------------------------------

    def _blocks(self) -> Generator[Block, None, None]:
        stage = self.stage
        return stage.engine.blocks(stage.train, self.update, stage.end)

    def _next(self, upcoming: Iterator[Block]) -> Block:
        start = time.perf_counter()
        self.stage.watch.doing("waiting for samples of", self.update + 1)
        block = next(upcoming)
        self.phases.data += time.perf_counter() - start
        return block

    def _train(self, block: Block) -> None:
        """Start a block, then read what the one before it gave: its agreement had a whole block's time."""
        self.stage.watch.doing("computing", self.update + 1)
        before = self._pending
        self._pending = self.stage.engine.train(block, Flags(*self.stage.requests.now()))
        self.update += block.updates
        if before is not None:
            self._note(before.read())
        self.stage.progress.at(self.stage.counts.epoch_of(self.update), self.update)

    def _note(self, outcome: Outcome) -> None:
        for number, loss in enumerate(outcome.loss):
            if not math.isfinite(loss):
                raise self._not_finite(self._read + number + 1, loss)
        self._read += len(outcome.loss)
        self._flags = Flags(self._flags.stop or outcome.flags.stop, self._flags.stale or outcome.flags.stale)
        self.stage.recorder.note(outcome)
        if self._read // self.stage.settings.log_every > self._logged // self.stage.settings.log_every:
            self._log()

    def _settle(self) -> None:
        """Wait for the outcome of the last block."""
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

    def _checkpoint_is_due(self) -> bool:
        """Return whether the block that was just made crossed a multiple of `checkpoint_every`."""
        every, step = self.stage.settings.checkpoint_every, self.stage.settings.device_iterations
        return bool(every) and self.update // every > (self.update - step) // every and self.update < self.stage.end

    def _save(self) -> None:
        """Begin to write a checkpoint of the weights as they are now."""
        stage, start = self.stage, time.perf_counter()
        stage.watch.doing("writing the checkpoint of", self.update)
        if not stage.engine.is_finite():
            raise UserError(
                "the weights are infinite or not a number after update %d: %s" % (self.update, self._advice())
            )
        if stage.world.rank == 0:
            stage.writer.save(
                self.update, stage.engine.state(), facts(stage.settings, stage.counts, self.update, stage.attempt)
            )
        self._saved_at = self.update
        self.phases.checkpoint += time.perf_counter() - start

    def _save_durably(self) -> None:
        """Write a checkpoint, and return when it is on the disk of rank 0. Raises UserError where it could not be."""
        if self._saved_at != self.update:
            self._save()
        start = time.perf_counter()
        durable = self.stage.world.from_first(int(self._durable()))
        self.phases.checkpoint += time.perf_counter() - start
        if durable < 0:
            raise StaleAttemptError("attempt %d" % self.stage.attempt)
        if not durable:
            raise UserError(
                "the checkpoint of update %d could not be written: make room on the disk of %s, then resume the run"
                % (self.update, self.stage.paths.checkpoints)
            )

    def _durable(self) -> int:
        """Return 1 where the last checkpoint is on the disk, 0 where not, −1 where this attempt may not write."""
        try:
            return int(self.stage.writer.finish())
        except StaleAttemptError:
            return -1

    def _end_of_epoch(self) -> None:
        self._say_epoch()
        stage = self.stage
        trained = (self.update - self._evaluated_at) * stage.counts.global_batch
        if stage.held_out is not None and evaluation.is_due(trained, len(stage.held_out)):
            self._evaluate()

    def _evaluate(self) -> None:
        stage = self.stage
        if stage.held_out is None:
            return
        start = time.perf_counter()
        stage.watch.doing("evaluating after", self.update)
        found = evaluation.evaluate(stage.engine, stage.held_out, stage.world, self._beat)
        self._evaluated_at = self.update
        epoch = self.stage.counts.epoch_of(self.update)
        stage.recorder.evaluation_line(epoch, self.update, found.loss, found.metrics, found.samples, found.seconds)
        self._say(
            "update %d  held-out loss %.4f%s" % (self.update, found.loss, accuracy_text(found.metrics.get("accuracy")))
        )
        self.phases.aside += time.perf_counter() - start

    def _beat(self) -> None:
        self.stage.progress.beat()
        self.stage.watch.beat()

    def _say_epoch(self) -> None:
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
        """Checkpoint, and leave the marker that scripts look for: only once the checkpoint is durable."""
        self._settle()
        if self._flags.stale:
            raise StaleAttemptError("attempt %d" % self.stage.attempt)
        if self.update >= self.stage.end:
            return self._complete()
        self._log()
        self._save_durably()
        if self.stage.world.rank == 0:
            write_atomically(self.stage.paths.requeue, "%d\n" % self.update)
        self._say("stopped as asked after update %d of %d; the checkpoint is written" % (self.update, self.stage.end))
        return STOPPED

    def _complete(self) -> str:
        self._settle()
        self._log()
        if self._flags.stale:
            raise StaleAttemptError("attempt %d" % self.stage.attempt)
        self._save_durably()
        if self.stage.recorder.epoch.updates:
            self._say_epoch()
        self._evaluate()
        self.phases.close()
        self.stage.recorder.end_line(self.stage.counts.epoch_of(self.update), self.update, self.phases.training_seconds)
        return COMPLETED

    def _not_finite(self, update: int, loss: float) -> UserError:
        return UserError("the loss of update %d is %s: %s" % (update, loss, self._advice()))

    def _advice(self) -> Any:
        return (
            "the last good checkpoint stays in %s. Take a smaller learning rate, or look at the samples of that update"
            % self.stage.paths.checkpoints
        )
