"""How instances of engine ipu meet: through popdist if poprun started them, and Horovod for means on the host."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Mapping, Optional

from trainjob.contract import environment
from trainjob.contract.errors import UserError
from trainjob.train.engines import horovod_world
from trainjob.train.world import Place, World


def join(place: Place, environ: Mapping[str, str], timeout_seconds: float) -> World:
    """Return the world of the instances that poprun started; without poprun, of this one alone. Raises UserError."""
    if environ.get(environment.COMPILE_ONLY):
        return World(place._replace(rank=0, local_rank=0, size=1))
    popdist = under_poprun()
    if popdist is None:
        _refuse_without_poprun(place)
        return World(place)
    if hasattr(popdist, "init"):  # since SDK 3.0
        popdist.init()
    _refuse_other_place(place, popdist.getInstanceIndex(), popdist.getNumInstances())
    return horovod_world.join(place, environ, timeout_seconds)


def under_poprun() -> Optional[Any]:
    """Return the module popdist if poprun started this process, else None."""
    if importlib.util.find_spec("popdist") is None:
        return None
    popdist = importlib.import_module("popdist")
    return popdist if popdist.isPopdistEnvSet() else None


def _refuse_without_poprun(place: Place) -> None:
    if place.size != 1:
        raise UserError(
            "%d instances of engine ipu were started without poprun, and several processes need poprun and popdist"
            % place.size,
            "start them with poprun, or drive several replicas by one process (--replicas with --instances 1)",
        )


def _refuse_other_place(place: Place, instance: int, instances: int) -> None:
    if (instance, instances) != (place.rank, place.size):
        raise UserError(
            ("poprun takes this process for instance %d of %d and the launcher for rank %d of %d")
            % (instance, instances, place.rank, place.size),
            "start the instances with the job script only",
        )
