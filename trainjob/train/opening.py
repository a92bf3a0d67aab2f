"""Opens a run: from its directory to everything the loop works with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, NamedTuple, Optional, Tuple

from trainjob.contract import exits
from trainjob.contract.paths import RunPaths
from trainjob.records import checkpoints
from trainjob.records.job import TrainSettings
from trainjob.records.trace import NUDGED, SAMPLES
from trainjob.train import engines, setup
from trainjob.train.engines.base import Engine, Parts
from trainjob.train.loop import Stage
from trainjob.train.recording import resuming
from trainjob.train.recording.checkpoint import CheckpointWriter, Crew, remove_left_behind
from trainjob.train.recording.metrics import Recorder, Times
from trainjob.train.recording.profile import profiler
from trainjob.train.recording.progress import Progress
from trainjob.train.recording.trace import Trace, nudge
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import trial_inputs
from trainjob.train.samples.sources import Source
from trainjob.train.samples.streams import StreamSource, as_source, length_of
from trainjob.train.schedule import Schedule
from trainjob.train.stalling import Watch
from trainjob.train.stopping import Requests
from trainjob.train.tasks.base import Task, TaskData
from trainjob.train.tasks.loading import load
from trainjob.train.world import World

_TOO_CLOSE = (
    "WARNING: the checkpoint of update %d took %.0f s until it was on disk, and this job is told to stop %.0f s before "
    "its time limit: its last checkpoint may come too late. Set time_limit_signal.margin_s to %d in the cluster file. "
    "If it states none, `trainjob resume` sets that for this run"
)


class Run(NamedTuple):
    """What a rank has before it opens anything."""

    paths: RunPaths
    settings: TrainSettings
    attempt: int
    world: World
    environ: Mapping[str, str]
    watch: Watch


class Opened(NamedTuple):
    """The task with its data, and the arithmetic that follows from them."""

    task: Task
    data: TaskData
    train: Source
    held_out: Optional[Source]
    counts: Arithmetic
    planned: int  # updates
    schedule: Schedule


def open_stage(run: Run) -> Tuple[Stage, int]:
    """Return everything the loop works with, and the number of updates already made. Raises UserError."""
    run = run._replace(settings=setup.of_range(run.settings, run.world.size))
    setup.refuse_other_world(run.settings, run.world, run.paths)
    run.watch.doing("opening the task and its data", 0)
    opened = open_task(run)
    run.watch.doing("building the model", 0)
    engine = build_engine(run, opened)
    stage = _stage(run, opened, engine)
    run.watch.doing("looking for a checkpoint", 0)
    start = _resume(run, stage)
    return stage, start


def compile_only(run: Run) -> int:
    """Compile for engine ipu, without a device or other instances; return the exit code."""
    if run.settings.engine == "ipu":
        engine: Any = build_engine(run, open_task(run))
        engine.compile()
    return exits.DONE


def open_task(run: Run) -> Opened:
    """Return the task that the settings name, its data, and what follows from them; the same on every rank."""
    settings = run.settings
    task = load(settings.entry, settings.task_options, run.paths.project)
    data = setup.open_data(task, settings, run.environ, run.world.local_rank)
    train = as_source(data.train, settings.samples)
    held_out = None if data.held_out is None else as_source(data.held_out, length_of(data.held_out))
    setup.agree_on_data(run.world, data, len(train))
    counts = setup.count(settings, train)
    planned = setup.planned_updates(settings, counts)
    schedule = Schedule(settings, planned, counts.updates_per_epoch)
    return Opened(task, data, train, held_out, counts, planned, schedule)


def build_engine(run: Run, opened: Opened) -> Engine:
    """Return the engine that the settings name, with the task's model and its initial weights."""
    return engines.build(
        Parts(
            task=opened.task,
            model=setup.build_model(opened.task, run.settings.seed),
            normalise=opened.data.normalise,
            settings=run.settings,
            counts=opened.counts,
            world=run.world,
            learning_rate=opened.schedule,
            trial=trial_inputs(opened.train, opened.counts),
            trace=_trace(run, opened) if run.settings.trace else None,
        )
    )


def _trace(run: Run, opened: Opened) -> Trace:
    return Trace(
        run.paths,
        run.world.rank,
        run.attempt,
        stream=isinstance(opened.train, StreamSource),
        full=run.settings.trace != SAMPLES,
    )


def _stage(run: Run, opened: Opened, engine: Engine) -> Stage:
    leads = run.world.rank == 0
    end = setup.end_of_run(opened.planned, run.settings.device_iterations, run.environ)
    requests = Requests(run.paths, run.attempt)
    progress = Progress(run.paths, run.attempt, end, leads, requests)
    # One rank has nobody to be compared with.
    times = Times(run.paths, run.world.rank, run.attempt) if run.world.size > 1 else None
    recorder = Recorder(run.paths, run.attempt, leads, progress.line_failed, times)

    def durable(update: int, stood_still_s: float, durable_s: float) -> None:
        progress.checkpointed(update)
        _compare_with_limit(run.settings.limit_margin_s, progress, update, durable_s)
        recorder.checkpoint_line(opened.counts.epoch_of(update), update, stood_still_s, durable_s)

    return Stage(
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
            _crew(run) if engine.shards else None,
        ),
        recorder=recorder,
        progress=progress,
        watch=run.watch,
        profiler=profiler(run.paths, run.settings, run.world.rank, run.attempt, run.world.device),
    )


def _compare_with_limit(margin_s: Optional[float], progress: Progress, update: int, durable_s: float) -> None:
    if margin_s is not None and checkpoints.is_too_late(durable_s, margin_s):
        progress.limit_too_close(_TOO_CLOSE % (update, durable_s, margin_s, checkpoints.margin_for(durable_s)))


def _crew(run: Run) -> Optional[Crew]:
    """Return those who write a checkpoint in parts: the first group of instances that holds the whole model."""
    parts, rank = run.settings.shard_group or run.world.size, run.world.rank
    return Crew(rank, rank if rank < parts else None, parts, run.world.aside()) if run.world.size > 1 else None


def _resume(run: Run, stage: Stage) -> int:
    if run.world.rank == 0:
        stage.requests.refuse_stale()
        remove_left_behind(run.paths)
    start = resuming.resume(run.paths, stage.engine, run.settings, stage.counts, run.world, stage.progress.passed_over)
    stage.progress.begin(stage.counts.epoch_of(start), start)
    if start == 0 and run.settings.init_from is not None:
        run.watch.doing("reading the initial weights", 0)
        resuming.initialise(stage.engine, run.settings, Path(run.settings.init_from).expanduser())
    if start == 0 and run.settings.trace == NUDGED:
        nudge(stage.engine.state().model)
    if run.world.rank == 0:
        stage.progress.say(_first_line(run, start, stage.end))
    return start


def _first_line(run: Run, start: int, end: int) -> str:
    first = " with the weights in %s" % run.settings.init_from if run.settings.init_from else ""
    origin = "from the checkpoint of update %d" % start if start else "from the beginning" + first
    replicas = "%d replica%s" % (run.settings.replicas, "" if run.settings.replicas == 1 else "s")
    return "task %s, engine %s on %s, %d instance%s, %s to update %d" % (
        run.settings.task,
        run.settings.engine,
        replicas if run.settings.engine == "ipu" else run.world.device,
        run.world.size,
        "" if run.world.size == 1 else "s",
        origin,
        end,
    )
