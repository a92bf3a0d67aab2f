"""Where a run goes on: the newest checkpoint that is whole, and whether it is of this job at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, Optional

from trainjob.contract import checkpoints
from trainjob.contract.checkpoints import Checkpoint
from trainjob.contract.errors import UserError
from trainjob.contract.job import CONTRACT, TrainSettings
from trainjob.contract.paths import RunPaths
from trainjob.train import safetensors
from trainjob.train.arithmetic import Arithmetic
from trainjob.train.checkpoint import PRECISION
from trainjob.train.engines.base import Engine, State
from trainjob.train.engines.state import differences
from trainjob.train.world import World

_NONE = -1
# What the order of samples and the meaning of an update follow from: equal, or the run is another.
_SAME = ("task", "global_batch", "micro_batch", "seed", "samples", "remainder", "device_iterations")


def facts(settings: TrainSettings, counts: Arithmetic, update: int, attempt: int) -> Dict[str, Any]:
    """Return what index.json says of a checkpoint, without its files."""
    epoch, within = counts.place(update)
    return {
        "contract": CONTRACT,
        "update": update,
        "epoch": epoch,
        "update_in_epoch": within,
        "attempt": attempt,
        "task": settings.task,
        "global_batch": counts.global_batch,
        "micro_batch": counts.micro_batch,
        "samples": counts.samples,
        "seed": settings.seed,
        "remainder": settings.remainder,
        "device_iterations": settings.device_iterations,
        "instances": counts.instances,
        "engine": settings.engine,
        "optimizer": settings.optimizer,
        "precision": settings.precision,
        "task_options": settings.task_options,
    }


def resume(
    paths: RunPaths,
    engine: Engine,
    settings: TrainSettings,
    counts: Arithmetic,
    world: World,
    warn: Callable[[str], None],
) -> int:
    """Return the number of updates already made, after loading the checkpoint that holds them; 0 where there is none.

    Rank 0 chooses, so that all ranks go on from the same one. Raises UserError for a checkpoint of another job.
    """
    chosen = _NONE
    if world.rank == 0:
        newest = checkpoints.newest_sound(paths.checkpoints, warn)
        chosen = _NONE if newest is None else newest.update
    update = world.from_first(chosen)
    if update == _NONE:
        return 0
    checkpoint = checkpoints.read(paths.checkpoint(update))
    check_fits(checkpoint, settings, counts)
    load(checkpoint, engine, settings, warn)
    return update


def check_fits(checkpoint: Checkpoint, settings: TrainSettings, counts: Arithmetic) -> None:
    """Raise UserError where the checkpoint was made under settings that give its updates another meaning."""
    mine = facts(settings, counts, checkpoint.update, 0)
    for name in _SAME:
        if checkpoint.facts.get(name) != mine[name]:
            raise UserError(
                "checkpoint %s was made with %s %s and this job has %s: resume with the same, or start a new run"
                % (checkpoint.folder, name.replace("_", " "), checkpoint.facts.get(name), mine[name])
            )


def load(checkpoint: Checkpoint, engine: Engine, settings: TrainSettings, warn: Callable[[str], None]) -> None:
    """Give the engine the checkpoint's weights, and its optimizer state where the optimizer is the same."""
    training = safetensors.load(checkpoint.training)
    cut = len(PRECISION)
    precision = {name[cut:]: tensor for name, tensor in training.items() if name.startswith(PRECISION)}
    optimizer = {name: tensor for name, tensor in training.items() if not name.startswith(PRECISION)}
    if "ipu" in (settings.engine, checkpoint.facts.get("engine")):
        warn(
            "an IPU keeps its optimizer's state to itself: after checkpoint %s (engine %s) the optimizer of engine %s "
            "starts afresh" % (checkpoint.folder, checkpoint.facts.get("engine"), settings.engine)
        )
        optimizer = {}
    elif _optimizer_differs(checkpoint, settings):
        warn(
            "checkpoint %s has the state of optimizer %s and this job uses %s: the optimizer starts afresh"
            % (checkpoint.folder, checkpoint.facts.get("optimizer"), settings.optimizer)
        )
        optimizer = {}
    engine.load(State(safetensors.load(checkpoint.model), optimizer, precision))


def initialise(engine: Engine, settings: TrainSettings, path: Path) -> None:
    """Give the engine the first weights in `path`. Raises UserError that lists which names and shapes differ."""
    try:
        tensors = safetensors.load(path)
    except OSError as error:
        raise UserError("--init-from %s can't be read: %s" % (path, error.strerror)) from None
    told = differences(engine.state().model, tensors)
    if told:
        raise UserError(
            "--init-from %s holds weights of another model than task %s builds: %s. Options of the task (--set) may "
            "make them fit" % (path, settings.task, told)
        )
    engine.load(State(tensors, {}, {}))


def _optimizer_differs(checkpoint: Checkpoint, settings: TrainSettings) -> Optional[bool]:
    return bool(checkpoint.facts.get("optimizer") != settings.optimizer)
