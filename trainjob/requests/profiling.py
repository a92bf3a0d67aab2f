"""Runs a job for a few seconds on this machine, to predict without earlier runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainjob.contract.errors import UserError
from trainjob.observe.predictions.observed import Observation, observe
from trainjob.records import job as jobs
from trainjob.requests.workbench import Workbench

_FIRST_UPDATES = 8  # of which the first warm up
_MEASURED_S = 3.0
_MOST_UPDATES = 2000


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
    observation = observe(paths, jobs.read(paths.job))
    if observation is None:
        raise UserError(f"run {paths.id} recorded nothing to predict from", f"see why: trainjob logs {paths.folder}")
    workbench.discard(paths)
    return observation
