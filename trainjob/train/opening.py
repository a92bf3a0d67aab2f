"""Opens a run, from its directory to everything the loop works with, and checks that all ranks agree on it."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Optional, Tuple

import torch

from trainjob.contract import environment, exits
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, with_home
from trainjob.records import checkpoints
from trainjob.records import job as jobs
from trainjob.records.job import TrainSettings
from trainjob.records.trace import NUDGED, SAMPLES
from trainjob.train import engines, resuming
from trainjob.train.engines.base import Engine, EngineParts
from trainjob.train.loop import LoopContext
from trainjob.train.recording.checkpoint import CheckpointWriter, ShardGroup, remove_left_behind
from trainjob.train.recording.metrics import Recorder, Times
from trainjob.train.recording.profile import profiler
from trainjob.train.recording.progress import ProgressWriter
from trainjob.train.recording.startup import Startup
from trainjob.train.recording.trace import TraceWriter, nudge
from trainjob.train.samples import arithmetic
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import trial_inputs
from trainjob.train.samples.draws import WEIGHTS, key
from trainjob.train.samples.sources import Source
from trainjob.train.samples.streams import StreamSource, as_source, length_of
from trainjob.train.schedule import Schedule
from trainjob.train.stalling import Watch
from trainjob.train.stopping import Requests
from trainjob.train.tasks.base import DataPlace, Task, TaskData
from trainjob.train.tasks.loading import load
from trainjob.train.world import World

_TOO_CLOSE = (
    "WARNING: the checkpoint of update %d took %.0f s until it was on disk, and this job is told to stop %.0f s before "
    "its time limit: its last checkpoint may come too late. Set time_limit_signal.margin_s to %d in the cluster file. "
    "If it states none, `trainjob resume` sets that for this run"
)


class RankRun(NamedTuple):
    """A rank of a run, before it opens anything."""

    paths: RunPaths
    settings: TrainSettings
    attempt: int
    world: World
    environ: Mapping[str, str]
    watch: Watch
    startup: Startup


class Opened(NamedTuple):
    """The task with its data, and the arithmetic that follows from them."""

    task: Task
    data: TaskData
    train: Source
    held_out: Optional[Source]
    counts: Arithmetic
    planned: int  # updates
    schedule: Schedule


def task_settings(paths: RunPaths) -> TrainSettings:
    """Return the settings of the run's task. Raises UserError, also for a run of a command."""
    settings = jobs.read(paths.job).train
    if settings is None:
        raise UserError(
            "%s describes a command and no task, so there is nothing to train" % paths.job, "start it by its job script"
        )
    return settings


def open_context(run: RankRun) -> Tuple[LoopContext, int]:
    """Return everything the loop works with, and the number of updates already made. Raises UserError."""
    run = run._replace(settings=of_range(run.settings, run.world.size))
    refuse_other_world(run.settings, run.world, run.paths)
    run.watch.doing("opening the task and its data", 0)
    opened = open_task(run)
    run.startup.end("data")
    run.watch.doing("building the model", 0)
    engine = build_engine(run, opened)
    context = _context(run, opened, engine)
    run.watch.doing("looking for a checkpoint", 0)
    start = _resume(run, context)
    run.startup.end("model")
    return context, start


def compile_only(run: RankRun) -> int:
    """Compile for engine ipu, without a device or other instances; return the exit code."""
    if run.settings.engine == "ipu":
        engine: Any = build_engine(run, open_task(run))
        engine.compile()
    return exits.DONE


def open_task(run: RankRun) -> Opened:
    """Return the task that the settings name, its data, and what follows from them; the same on every rank."""
    settings = run.settings
    task = load(settings.entry, settings.task_options, run.paths.project)
    data = open_data(task, settings, run.environ, run.world.local_rank)
    train = as_source(data.train, settings.samples)
    held_out = None if data.held_out is None else as_source(data.held_out, length_of(data.held_out))
    agree_on_data(run.world, data, len(train))
    counts = count(settings, train)
    planned = settings.updates
    if planned is None:
        planned = (settings.epochs or 1) * counts.updates_per_epoch
    schedule = Schedule(settings, planned, counts.updates_per_epoch)
    return Opened(task, data, train, held_out, counts, planned, schedule)


def open_data(task: Task, settings: TrainSettings, environ: Mapping[str, str], local_rank: int) -> TaskData:
    """Return the task's data, in whichever form the task provides it.

    Raises UserError if the job names a data set and the user's own task never reads that name.
    """
    folder = environment.redirect(environ, "TRAINJOB_DATA_DIR")
    place = DataPlace(settings.data, Path(folder) if folder else None, settings.seed, local_rank == 0, settings.samples)
    opened: Any = task.open_data(place)
    if settings.data is not None and ":" in settings.task and not place.is_used:
        raise UserError(
            "--data %s has no effect: open_data of task %s takes its data from elsewhere."
            % (settings.data, settings.task),
            "Leave out --data, or call place.data_set() there",
        )
    if isinstance(opened, TaskData):
        return opened
    if isinstance(opened, tuple):
        return TaskData(*opened)
    return TaskData(opened)


def count(settings: TrainSettings, train: Source) -> Arithmetic:
    """Return the arithmetic of the run. Raises UserError if the data has another size than the plan assumed."""
    samples = len(train)
    if settings.samples is not None and settings.samples != samples:
        raise UserError(
            "the plan assumed %d training samples and the task's data has %d" % (settings.samples, samples),
            "submit again with --samples %d" % samples,
        )
    return arithmetic.check(
        Arithmetic(
            samples=samples,
            micro_batch=settings.micro_batch,
            micro_batches=settings.accumulation * settings.replicas,
            instances=settings.instances,
            device_iterations=settings.device_iterations,
            remainder=settings.remainder,
            seed=settings.seed,
        )
    )


def end_of_run(planned: int, device_iterations: int, environ: Mapping[str, str]) -> int:
    """Return the update to end after: the planned one, or TRAINJOB_MAX_UPDATES where that ends a rehearsal sooner.

    Either is rounded up to the end of a block, because a device takes whole blocks.
    """
    last, limit = planned, environment.redirect(environ, "TRAINJOB_MAX_UPDATES")
    if limit is not None:
        if not limit.isdigit() or int(limit) < 1:
            raise UserError("TRAINJOB_MAX_UPDATES must be a whole number above 0, and is %r" % limit, "unset it")
        last = min(planned, int(limit))
    return -(-last // device_iterations) * device_iterations


def build_model(task: Task, seed: int) -> torch.nn.Module:
    """Return the task's model, with the same initial weights on every instance."""
    torch.manual_seed(key(seed, WEIGHTS) >> 1)
    model: Optional[Any] = task.build_model()
    if not isinstance(model, torch.nn.Module):
        raise UserError(
            "the task's build_model must return a torch.nn.Module, and returned %s" % type(model).__name__,
            "return the model itself",
        )
    return model


def agree_on_data(world: World, data: TaskData, samples: int) -> None:
    """Raise UserError on every instance if any of them has other data than the first."""
    digests = world.gather(hashlib.sha256(("%s %d" % (data.identity, samples)).encode()).digest())
    differing = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if differing:
        raise UserError(
            "rank %d has other training data than rank 0 (the manifest's checksum or the number of samples differs; "
            "this rank, %d, has %d samples)" % (differing[0], world.rank, samples),
            "prepare the same data set on every host",
        )


def of_range(settings: TrainSettings, instances: int) -> TrainSettings:
    """Return the settings for the number of hosts that Slurm has given, with the same global batch."""
    micro_batches = settings.accumulation * settings.replicas
    is_within = settings.least_instances is not None and settings.least_instances <= instances < settings.instances
    if not is_within or micro_batches % instances:
        return settings
    return dataclasses.replace(
        settings, instances=instances, replicas=instances, accumulation=micro_batches // instances
    )


def refuse_other_world(settings: TrainSettings, world: World, paths: RunPaths) -> None:
    """Raise UserError unless the ranks are those of the plan."""
    if settings.instances != world.size:
        raise UserError(
            "%s plans %d instances and %d ranks were started" % (paths.job, settings.instances, world.size),
            "start as many as planned",
        )
    if settings.replicas != settings.instances and settings.engine != "ipu":
        raise UserError(
            "engine %s has one replica per instance, and %d replicas on %d instances were planned"
            % (settings.engine, settings.replicas, settings.instances),
            "plan as many replicas as instances",
        )


def build_engine(run: RankRun, opened: Opened) -> Engine:
    """Return the engine that the settings name, with the task's model and its initial weights."""
    trace = None
    if run.settings.trace:
        is_stream, is_full = isinstance(opened.train, StreamSource), run.settings.trace != SAMPLES
        trace = TraceWriter(run.paths, run.world.rank, run.attempt, stream=is_stream, full=is_full)
    return engines.build(
        EngineParts(
            task=opened.task,
            model=build_model(opened.task, run.settings.seed),
            normalise=opened.data.normalise,
            settings=run.settings,
            counts=opened.counts,
            world=run.world,
            learning_rate=opened.schedule,
            trial=trial_inputs(opened.train, opened.counts),
            trace=trace,
        )
    )


def _context(run: RankRun, opened: Opened, engine: Engine) -> LoopContext:
    leads = run.world.rank == 0
    end = end_of_run(opened.planned, run.settings.device_iterations, run.environ)
    requests = Requests(run.paths, run.attempt)
    progress = ProgressWriter(run.paths, run.attempt, end, leads, requests)
    # One rank has nobody to be compared with.
    times = Times(run.paths, run.world.rank, run.attempt) if run.world.size > 1 else None
    recorder = Recorder(run.paths, run.attempt, leads, progress.line_failed, run.startup, times)

    def durable(update: int, stood_still_s: float, durable_s: float) -> None:
        progress.checkpointed(update)
        margin_s = run.settings.limit_margin_s
        if margin_s is not None and checkpoints.is_too_late(durable_s, margin_s):
            progress.limit_too_close(_TOO_CLOSE % (update, durable_s, margin_s, checkpoints.margin_for(durable_s)))
        recorder.checkpoint_line(opened.counts.epoch_of(update), update, stood_still_s, durable_s)

    group = None
    if engine.shards and run.world.size > 1:
        # The first group of instances that holds the whole model writes a checkpoint in parts.
        parts, rank = run.settings.shard_group or run.world.size, run.world.rank
        group = ShardGroup(rank, rank if rank < parts else None, parts, run.world.aside())
    return LoopContext(
        paths=run.paths,
        settings=run.settings,
        attempt=run.attempt,
        counts=opened.counts,
        end=end,
        world=run.world,
        engine=engine,
        train=opened.train,
        # A trace compares a few updates, and evaluating would take most of the time.
        held_out=None if run.settings.trace else opened.held_out,
        schedule=opened.schedule,
        requests=requests,
        writer=CheckpointWriter(
            run.paths,
            run.settings.keep_checkpoints,
            requests.refuse_stale,
            progress.checkpoint_failed,
            durable,
            group,
        ),
        recorder=recorder,
        progress=progress,
        watch=run.watch,
        profiler=profiler(run.paths, run.settings, run.world.rank, run.attempt, run.world.device),
    )


def _resume(run: RankRun, context: LoopContext) -> int:
    if run.world.rank == 0:
        context.requests.refuse_stale()
        remove_left_behind(run.paths)
    start = resuming.resume(
        run.paths, context.engine, run.settings, context.counts, run.world, context.progress.passed_over
    )
    context.progress.begin(context.counts.epoch_of(start), start)
    if start == 0 and run.settings.init_from is not None:
        run.watch.doing("reading the initial weights", 0)
        resuming.initialise(context.engine, run.settings, with_home(run.settings.init_from))
    if start == 0 and run.settings.trace == NUDGED:
        nudge(context.engine.state().model)
    if run.world.rank == 0:
        first = " with the weights in %s" % run.settings.init_from if run.settings.init_from else ""
        replicas = "%d replica%s" % (run.settings.replicas, "" if run.settings.replicas == 1 else "s")
        context.progress.say(
            "task %s, engine %s on %s, %d instance%s, %s to update %d"
            % (
                run.settings.task,
                run.settings.engine,
                replicas if run.settings.engine == "ipu" else run.world.device,
                run.world.size,
                "" if run.world.size == 1 else "s",
                "from the checkpoint of update %d" % start if start else "from the beginning" + first,
                context.end,
            )
        )
    return start
