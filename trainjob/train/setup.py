"""What a run is opened with: data, arithmetic, model, and the checks that all ranks agree on them."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any, Mapping, Optional

import torch

from trainjob.contract import environment
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records.job import TrainSettings
from trainjob.train.samples import arithmetic
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.draws import WEIGHTS, key
from trainjob.train.samples.sources import Source
from trainjob.train.tasks.base import DataPlace, Task, TaskData
from trainjob.train.world import World


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


def planned_updates(settings: TrainSettings, counts: Arithmetic) -> int:
    """Return the planned weight updates of the whole run, from which the learning rate follows."""
    if settings.updates is not None:
        return settings.updates
    return (settings.epochs or 1) * counts.updates_per_epoch


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
    mine = hashlib.sha256(("%s %d" % (data.identity, samples)).encode()).digest()
    words = world.gather(mine)
    differing = [rank for rank, word in enumerate(words) if word != words[0]]
    if differing:
        raise UserError(
            (
                "rank %d has other training data than rank 0 (the manifest's checksum or the number "
                "of samples differs; this rank, %d, has %d samples)"
            )
            % (differing[0], world.rank, samples),
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
