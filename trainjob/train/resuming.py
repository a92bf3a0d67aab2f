"""Resumes a run from its newest sound checkpoint, provided that this belongs to the same job."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List

from trainjob.contract.errors import UserError
from trainjob.contract.paths import CONTRACT, RunPaths
from trainjob.records import checkpoints
from trainjob.records.checkpoints import Checkpoint
from trainjob.records.files import DamagedError
from trainjob.records.job import TrainSettings
from trainjob.train.engines.base import Engine
from trainjob.train.recording import safetensors
from trainjob.train.recording.checkpoint import PRECISION
from trainjob.train.recording.state import State, differences
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.world import World

_NONE, _ALL_DAMAGED = -1, -2
# The order of samples and the meaning of an update follow from these: if one differs, it is another run.
_SAME = ("task", "global_batch", "micro_batch", "seed", "samples", "remainder", "device_iterations")


def facts(settings: TrainSettings, counts: Arithmetic, update: int, attempt: int) -> Dict[str, Any]:
    """Return the content of a checkpoint's index.json, except for its files."""
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
    """Load the newest sound checkpoint and return the number of updates it holds; 0 if there is none.

    Rank 0 chooses, so that all ranks resume from the same one. Raises UserError for a checkpoint of another job, and if
    there are checkpoints and none of them is sound: starting over is for the user to decide.
    """
    chosen = _NONE
    if world.rank == 0:
        newest = checkpoints.newest_sound(paths.checkpoints, warn)
        if newest is not None:
            chosen = newest.update
        elif checkpoints.folders(paths.checkpoints):
            chosen = _ALL_DAMAGED
    update = world.from_first(chosen)
    if update == _ALL_DAMAGED:
        text = "every checkpoint in %s is damaged" % paths.checkpoints
        raise UserError(text, checkpoints.FROM_SCRATCH, checkpoints.DAMAGED)
    if update == _NONE:
        return 0
    checkpoint = checkpoints.read(paths.checkpoint(update))
    check_fits(checkpoint, settings, counts)
    load(checkpoint, engine, settings, warn)
    return update


def check_fits(checkpoint: Checkpoint, settings: TrainSettings, counts: Arithmetic) -> None:
    """Raise UserError if the checkpoint was made with settings that give its updates another meaning."""
    mine = facts(settings, counts, checkpoint.update, 0)
    for name in _SAME:
        if checkpoint.facts.get(name) != mine[name]:
            raise UserError(
                "checkpoint %s was made with %s %s and this job has %s"
                % (checkpoint.folder, name.replace("_", " "), checkpoint.facts.get(name), mine[name]),
                "resume with the same value, or start a new run",
            )


def load(checkpoint: Checkpoint, engine: Engine, settings: TrainSettings, warn: Callable[[str], None]) -> None:
    """Restore the weights, and the optimizer state if optimizer and kind of device are the same."""
    training = _tensors(checkpoint.training, engine.shards)
    cut = len(PRECISION)
    precision = {name[cut:]: tensor[...] for name, tensor in training.items() if name.startswith(PRECISION)}
    optimizer = {name: tensor for name, tensor in training.items() if not name.startswith(PRECISION)}
    saved = checkpoint.facts
    engines = (settings.engine, saved.get("engine"))
    if "ipu" in engines and (engines[0] != engines[1] or not optimizer):
        warn(
            "checkpoint %s has no optimizer state that engine %s can use (it was made by engine %s): this run restores "
            "the weights and its position in the data, and momentum restarts from zero"
            % (checkpoint.folder, settings.engine, saved.get("engine"))
        )
        optimizer = {}
    elif saved.get("optimizer") != settings.optimizer:
        warn(
            "checkpoint %s holds the state of optimizer %s and this job uses %s: the optimizer restarts from zero"
            % (checkpoint.folder, saved.get("optimizer"), settings.optimizer)
        )
        optimizer = {}
    average = _tensors(checkpoint.averaged, engine.shards) if checkpoint.averaged else {}
    engine.load(State(_tensors(checkpoint.model, engine.shards), optimizer, precision, average))


def _tensors(paths: List[Path], shards: bool) -> Any:
    """Return the tensors in `paths` by name; if each instance holds a part, it reads that alone, when it needs it."""
    try:
        tensors = safetensors.stored(paths)
        return tensors if shards else {name: tensor[...] for name, tensor in tensors.items()}
    except (OSError, DamagedError) as error:
        raise UserError(
            "%s can't be read: %s" % (paths[0], getattr(error, "strerror", None) or error),
            "Resume once it can be read, or remove that checkpoint: the one before it is taken then",
        ) from None


def initialise(engine: Engine, settings: TrainSettings, path: Path) -> None:
    """Load the initial weights in `path`. Raises UserError that lists the names and shapes that differ."""
    try:
        tensors = safetensors.load(path)
    except (OSError, DamagedError) as error:
        text = "--init-from %s can't be read: %s" % (path, getattr(error, "strerror", None) or error)
        raise UserError(text, "Give a safetensors file that the ranks can read") from None
    mismatch = differences(engine.state().model, tensors)
    if mismatch:
        raise UserError(
            "--init-from %s holds the weights of another model than task %s builds: %s"
            % (path, settings.task, mismatch),
            "Options of the task (--set) may make them fit",
        )
    engine.load(State(tensors, {}, {}))
