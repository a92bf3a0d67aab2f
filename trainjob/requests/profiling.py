"""A few seconds of a job on this machine, for a prediction where no earlier run tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainjob.contract import job as jobs
from trainjob.contract.errors import UserError
from trainjob.predict.observed import Observation, observe
from trainjob.requests.workbench import Workbench

_FIRST_UPDATES = 8  # of which the first warm up
_MEASURED_S = 3.0
_MOST_UPDATES = 2000


def profile(workbench: Workbench, numbers: Sequence[int], cores: int) -> Iterator[Observation]:
    """Yield what short runs show, for as few numbers of instances as the model needs to tell of `numbers`.

    Raises Refusal for a number that can't be planned, UserError when a run fails.
    """
    workbench.refuse_command()
    most = max(numbers)
    # Two numbers above 1 tell latency and bandwidth apart.
    wanted = {min(numbers), *([2, min(most, max(2, cores))] if most > 1 else [])}
    for number in sorted(wanted):
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
    shown = observe(paths, jobs.read(paths.job))
    if shown is None:
        raise UserError(f"run {paths.id} recorded nothing to predict from", f"see why: trainjob logs {paths.folder}")
    workbench.discard(paths)
    return shown
