"""From job.json to all that the loop works with: settings, task, data, arithmetic, engine."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Mapping, Optional

import torch

from trainjob.contract import environment
from trainjob.contract.errors import UserError
from trainjob.contract.job import TrainSettings
from trainjob.contract.paths import RunPaths
from trainjob.train import arithmetic
from trainjob.train.arithmetic import Arithmetic
from trainjob.train.draws import WEIGHTS, key
from trainjob.train.sources import Source
from trainjob.train.tasks.base import DataPlace, Task, TaskData
from trainjob.train.world import World


def open_data(task: Task, settings: TrainSettings, environ: Mapping[str, str], local_rank: int) -> TaskData:
    """Return the task's data, whatever form the task gives it in."""
    folder = environment.redirect(environ, "TRAINJOB_DATA_DIR")
    place = DataPlace(settings.data, Path(folder) if folder else None, settings.seed, local_rank == 0, settings.samples)
    given: Any = task.open_data(place)
    if isinstance(given, TaskData):
        return given
    if isinstance(given, tuple):
        return TaskData(*given)
    return TaskData(given)


def count(settings: TrainSettings, train: Source) -> Arithmetic:
    """Return the arithmetic of the run. Raises UserError where the data is not what the plan counted with."""
    samples = len(train)
    if settings.samples is not None and settings.samples != samples:
        raise UserError(
            "the plan counted with %d training samples and the task's data has %d: submit again with --samples %d"
            % (settings.samples, samples, samples)
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


def planned_updates(settings: TrainSettings, counts: Arithmetic) -> int:
    """Return the weight updates of the whole run, as planned: the learning rate follows from it."""
    if settings.updates is not None:
        return settings.updates
    return (settings.epochs or 1) * counts.updates_per_epoch


def end_of_run(planned: int, device_iterations: int, environ: Mapping[str, str]) -> int:
    """Return the update to end after: as planned, unless TRAINJOB_MAX_UPDATES ends a rehearsal sooner.

    Either way it is the end of a block: a device takes whole ones.
    """
    wanted = _wanted(planned, environ)
    return -(-wanted // device_iterations) * device_iterations


def _wanted(planned: int, environ: Mapping[str, str]) -> int:
    most = environment.redirect(environ, "TRAINJOB_MAX_UPDATES")
    if most is None:
        return planned
    if not most.isdigit() or int(most) < 1:
        raise UserError("TRAINJOB_MAX_UPDATES must be a whole number above 0, and is %r" % most)
    return min(planned, int(most))


def build_model(task: Task, seed: int) -> torch.nn.Module:
    """Return the task's model, with the same first weights on every instance."""
    torch.manual_seed(key(seed, WEIGHTS) >> 1)
    model: Optional[Any] = task.build_model()
    if not isinstance(model, torch.nn.Module):
        raise UserError("the task's build_model must return a torch.nn.Module, and returned %s" % type(model).__name__)
    return model


def agree_on_data(world: World, data: TaskData, samples: int) -> None:
    """Raise UserError on every instance where any of them has other data than the first."""
    mine = hashlib.sha256(("%s %d" % (data.identity, samples)).encode()).digest()
    words = world.gather(mine)
    differing = [rank for rank, word in enumerate(words) if word != words[0]]
    if differing:
        raise UserError(
            "rank %d has other training data than rank 0 (its manifest's checksum or its number of samples differs; "
            "this rank, %d, has %d samples): prepare the same data set on every host"
            % (differing[0], world.rank, samples)
        )


def refuse_other_world(settings: TrainSettings, world: World, paths: RunPaths) -> None:
    """Raise UserError where other ranks were started than the plan counts with."""
    if settings.instances != world.size:
        raise UserError(
            "%s plans %d instances and %d ranks were started: start as many as planned"
            % (paths.job, settings.instances, world.size)
        )
    if settings.replicas != settings.instances and settings.engine != "ipu":
        raise UserError(
            "engine %s has one replica an instance: %d replicas on %d instances"
            % (settings.engine, settings.replicas, settings.instances)
        )
