"""Engines: how instances train one model together. The plan chooses one; nothing probes what can be imported."""

from __future__ import annotations

import importlib
from typing import Dict, Mapping

from trainjob.contract.errors import UserError
from trainjob.train.engines.base import Engine, EngineParts
from trainjob.train.world import RankPlace, World

# A new engine is a module with `build(parts) -> Engine`, and a row here.
MODULES: Dict[str, str] = {
    "single": "trainjob.train.engines.plain",
    "ddp": "trainjob.train.engines.ddp",
    "fsdp": "trainjob.train.engines.fsdp",
    "naive": "trainjob.train.engines.plain",
    "horovod": "trainjob.train.engines.horovod",
    "parameter-averaging": "trainjob.train.engines.plain",
    "ipu": "trainjob.train.engines.ipu.engine",
}

# What trains in the place of any engine that takes --sum-order fixed.
FIXED_ORDER = "trainjob.train.engines.fixed_order"

# Modules with a `join` of their own, for engines whose ranks don't meet through torch.distributed.
WORLDS: Dict[str, str] = {
    "horovod": "trainjob.train.engines.horovod_world",
    "ipu": "trainjob.train.engines.ipu.options",
}


def join(engine: str, place: RankPlace, environ: Mapping[str, str], timeout_seconds: float) -> World:
    """Return the world in which instances of `engine` train, once all ranks have joined. Raises UserError."""
    module = importlib.import_module(WORLDS.get(engine, "trainjob.train.world"))
    world: World = module.join(place, environ, timeout_seconds)
    return world


def build(parts: EngineParts) -> Engine:
    """Return the engine that the settings name, with its model. Raises UserError."""
    name = parts.settings.engine
    if name not in MODULES:
        raise UserError("there is no engine %s" % name, "choose one of %s" % ", ".join(sorted(MODULES)))
    module = FIXED_ORDER if parts.settings.sum_order == "fixed" else MODULES[name]
    engine: Engine = importlib.import_module(module).build(parts)
    return engine
