"""From a run directory to all that the loop works with, in the order in which things can go wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, NamedTuple, Optional, Tuple

from trainjob.contract import exits
from trainjob.contract.job import TrainSettings
from trainjob.contract.paths import RunPaths
from trainjob.contract.trace import NUDGED, SAMPLES
from trainjob.train import engines, resuming, setup
from trainjob.train.arithmetic import Arithmetic
from trainjob.train.batches import trial_inputs
from trainjob.train.checkpoint import CheckpointWriter, remove_left_behind
from trainjob.train.choosing import as_source
from trainjob.train.engines.base import Engine, Parts
from trainjob.train.loop import Stage
from trainjob.train.metrics import Recorder
from trainjob.train.progress import Progress
from trainjob.train.schedules import Schedule
from trainjob.train.sources import Source
from trainjob.train.stalling import Watch
from trainjob.train.stopping import Requests
from trainjob.train.streams import StreamSource, length_of
from trainjob.train.tasks.base import Task, TaskData
from trainjob.train.tasks.loading import load
from trainjob.train.trace import Trace, nudge
from trainjob.train.world import World


class Run(NamedTuple):
    """What one rank knows before it has opened anything."""

    paths: RunPaths
    settings: TrainSettings
    attempt: int
    world: World
    environ: Mapping[str, str]
    watch: Watch


class Opened(NamedTuple):
    """The task with its data, and the arithmetic that follows from both."""

    task: Task
    data: TaskData
    train: Source
    held_out: Optional[Source]
    counts: Arithmetic
    planned: int  # updates
    schedule: Schedule


def open_stage(run: Run) -> Tuple[Stage, int]:
    """Return all that the loop works with, and the number of updates already made. Raises UserError."""
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
    """Compile for the devices of engine ipu, with no device and no other instance; return the exit code."""
    if run.settings.engine == "ipu":
        engine: Any = build_engine(run, open_task(run))
        engine.compile()
    return exits.DONE


def open_task(run: Run) -> Opened:
    """Return the task that the settings name, its data, and what follows from them; equal on every rank."""
    settings = run.settings
    task = load(settings.entry, settings.task_options, run.paths.project)
    data = setup.open_data(task, settings, run.environ, run.world.local_rank)
    train = as_source(data.train, settings.samples)
    held_out = None if data.held_out is None else as_source(data.held_out, length_of(data.held_out))
    setup.agree_on_data(run.world, data, len(train))
    counts = setup.count(settings, train)
    planned = setup.planned_updates(settings, counts)
    return Opened(task, data, train, held_out, counts, planned, Schedule(settings, planned))


def build_engine(run: Run, opened: Opened) -> Engine:
    """Return the engine that the settings name, holding the task's model with its first weights."""
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
    return Stage(
        paths=run.paths,
        settings=run.settings,
        attempt=run.attempt,
        counts=opened.counts,
        end=end,
        world=run.world,
        engine=engine,
        train=opened.train,
        # A trace is for comparing updates: evaluating would take most of the time of a few of them.
        held_out=None if run.settings.trace else opened.held_out,
        schedule=opened.schedule,
        requests=requests,
        writer=CheckpointWriter(run.paths, run.settings.keep_checkpoints, requests.refuse_stale, progress.say),
        recorder=Recorder(run.paths, run.attempt, leads, progress.say),
        progress=progress,
        watch=run.watch,
    )


def _resume(run: Run, stage: Stage) -> int:
    if run.world.rank == 0:
        stage.requests.refuse_stale()
        remove_left_behind(run.paths)
    start = resuming.resume(run.paths, stage.engine, run.settings, stage.counts, run.world, stage.progress.say)
    stage.progress.begin(stage.counts.epoch_of(start), start)
    if start == 0 and run.settings.init_from is not None:
        run.watch.doing("reading the first weights", 0)
        resuming.initialise(stage.engine, run.settings, Path(run.settings.init_from).expanduser())
    if start == 0 and run.settings.trace == NUDGED:
        nudge(stage.engine.state().model)
    if run.world.rank == 0:
        stage.progress.say(_first_line(run, start, stage.end))
    return start


def _first_line(run: Run, start: int, end: int) -> str:
    first = " with the weights of %s" % run.settings.init_from if run.settings.init_from else ""
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
