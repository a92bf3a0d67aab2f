"""Predicts jobs from earlier runs, or from a few seconds of training on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from trainjob.contract.errors import UserError
from trainjob.observe.predictions import earlier, model
from trainjob.observe.predictions.model import Observation
from trainjob.records import job as jobs
from trainjob.records.prediction import Prediction
from trainjob.requests.prepared import Prepared
from trainjob.requests.workbench import Workbench, refuse_unfit, workbench

_FIRST_UPDATES = 8  # of which the first warm up
_MEASURED_S = 3.0
_MOST_UPDATES = 2000


def predictions(
    prepared: Prepared, requested: Sequence[Prepared], say: Callable[[str], None], *, measure: bool = False
) -> list[Prediction]:
    """Return a prediction for each job, from earlier runs; if those can't tell, or to `measure`, by training.

    Raises UserError for a job that can't be predicted.
    """
    if not measure:
        observations = list(earlier.earlier(earlier.record_of(prepared.request)))
        predicted = _predicted(requested, observations, earlier.basis(observations))
        if predicted:
            return predicted
        say("there is no earlier run of this job to predict from: training for a few seconds")
    if not prepared.named_cluster.cluster.trains_here:
        name = prepared.named_cluster.name
        raise UserError(
            f"no earlier run of this job on cluster {name} tells how long it takes, and training here says nothing "
            "about that cluster",
            f"Submit a short run first: trainjob submit --cluster {name} --updates 100 …",
        )
    refuse_unfit(prepared)
    numbers = [job.request.plan.topology.instances for job in requested]
    with workbench(prepared, say) as bench:
        observations = list(profile(bench, numbers, os.cpu_count() or 1))
    return _predicted(requested, observations, "short runs on this machine")


def _predicted(requested: Sequence[Prepared], observations: Sequence[Observation], basis: str) -> list[Prediction]:
    """Return a prediction for each job; none at all if the observations don't suffice for every one."""
    predicted = []
    for job in requested:
        target = earlier.target_of(job.request)
        if target is None:
            raise UserError(
                "the length of this job is not known in advance",
                "give --task, and --samples or --updates; an array is predicted element by element",
            )
        one = model.predict(observations, target, basis)
        if one is None:
            return []
        predicted.append(one)
    return predicted


def profile(workbench: Workbench, numbers: Sequence[int], cores: int) -> Iterator[Observation]:
    """Yield observations of short runs, for as few numbers of instances as the model needs to predict `numbers`.

    Raises Refusal for a number that can't be planned, and UserError if a run fails.
    """
    workbench.refuse_command()
    most = max(numbers)
    # The model needs two numbers above 1 to separate latency from bandwidth.
    needed = {min(numbers), *([2, min(most, max(2, cores))] if most > 1 else [])}
    for number in sorted(needed):
        first = _measured(workbench, number, _FIRST_UPDATES)
        accumulation = workbench.vary(instances=number).job.accumulation or 1
        updates = int(_MEASURED_S / max(1e-6, first.update_s(accumulation)))
        if updates <= _FIRST_UPDATES:
            yield first
        else:
            yield _measured(workbench, number, min(_MOST_UPDATES, updates))


def _measured(workbench: Workbench, instances: int, updates: int) -> Observation:
    request = workbench.vary(instances=instances, updates=updates, epochs=None, checkpoint_every=0, log_every=updates)
    paths = workbench.run(request)
    observation = earlier.observe(paths, jobs.read(paths.job))
    if observation is None:
        raise UserError(f"run {paths.id} recorded nothing to predict from", f"see why: trainjob logs {paths.folder}")
    workbench.discard(paths)
    return observation
