"""How instances of the IPU engine meet: popdist first where poprun started them, then Horovod for means on the host."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Mapping, Optional

from trainjob.contract import environment
from trainjob.contract.errors import UserError
from trainjob.train.engines import horovod_world
from trainjob.train.world import Place, World


def join(here: Place, environ: Mapping[str, str], timeout_seconds: float) -> World:
    """Return the world of the instances that poprun started; alone where it did not. Raises UserError."""
    if environ.get(environment.COMPILE_ONLY):
        return World(here._replace(rank=0, local_rank=0, size=1))
    popdist = under_poprun()
    if popdist is None:
        _refuse_without_poprun(here)
        return World(here)
    if hasattr(popdist, "init"):  # since SDK 3.0
        popdist.init()
    _refuse_other_place(here, popdist.getInstanceIndex(), popdist.getNumInstances())
    return horovod_world.join(here, environ, timeout_seconds)


def under_poprun() -> Optional[Any]:
    """Return the module popdist where poprun started this process, else None."""
    if importlib.util.find_spec("popdist") is None:
        return None
    popdist = importlib.import_module("popdist")
    return popdist if popdist.isPopdistEnvSet() else None


def _refuse_without_poprun(here: Place) -> None:
    if here.size != 1:
        raise UserError(
            "%d instances of engine ipu were started, and not by poprun: one process can drive several replicas "
            "(--replicas, with --instances 1), several processes take poprun and popdist" % here.size
        )


def _refuse_other_place(here: Place, instance: int, instances: int) -> None:
    if (instance, instances) != (here.rank, here.size):
        raise UserError(
            "poprun takes this process for instance %d of %d and launch.py for rank %d of %d: start the instances by "
            "the job script alone" % (instance, instances, here.rank, here.size)
        )
