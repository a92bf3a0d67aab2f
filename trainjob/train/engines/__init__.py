"""Engines: how instances train one model together. Chosen by the plan, never by probing what can be imported."""

from __future__ import annotations

import importlib
from typing import Dict, Mapping

from trainjob.contract.errors import UserError
from trainjob.train.engines.base import Engine, Parts
from trainjob.train.world import Place, World

# A new engine is a module with `build(parts) -> Engine`, and a row.
MODULES: Dict[str, str] = {
    "single": "trainjob.train.engines.single",
    "ddp": "trainjob.train.engines.ddp",
    "naive": "trainjob.train.engines.naive",
    "horovod": "trainjob.train.engines.horovod",
    "parameter-averaging": "trainjob.train.engines.parameter_averaging",
    "ipu": "trainjob.train.engines.ipu",
}

# Engines whose ranks meet otherwise than by torch.distributed: modules with `join`, as trainjob.train.world has it.
WORLDS: Dict[str, str] = {
    "horovod": "trainjob.train.engines.horovod_world",
    "ipu": "trainjob.train.engines.ipu_world",
}


def join(engine: str, here: Place, environ: Mapping[str, str], timeout_seconds: float) -> World:
    """Return the world in which instances of `engine` train, once all of it is there. Raises UserError."""
    module = importlib.import_module(WORLDS.get(engine, "trainjob.train.world"))
    world: World = module.join(here, environ, timeout_seconds)
    return world


def build(parts: Parts) -> Engine:
    """Return the engine that the settings name, holding the model. Raises UserError."""
    name = parts.settings.engine
    if name not in MODULES:
        raise UserError("there is no engine %s: known are %s" % (name, ", ".join(sorted(MODULES))))
    engine: Engine = importlib.import_module(MODULES[name]).build(parts)
    return engine
