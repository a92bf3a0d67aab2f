"""One process, one copy of the model: no collective is called."""

from __future__ import annotations

from trainjob.contract.errors import UserError
from trainjob.train.engines.base import Engine, Parts
from trainjob.train.engines.step import TorchEngine


def build(parts: Parts) -> Engine:
    """Return the engine. Raises UserError in a world of several processes, which would each train alone."""
    if parts.world.size != 1:
        raise UserError("engine single is for one instance, and %d were started: use ddp" % parts.world.size)
    return TorchEngine(parts)
