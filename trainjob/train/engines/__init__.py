"""Engines: how instances train one model together. Chosen by the plan, never by probing what can be imported."""

from __future__ import annotations

import importlib
from typing import Dict

from trainjob.contract.errors import UserError
from trainjob.train.engines.base import Engine, Parts

# A new engine is a module with `build(parts) -> Engine`, and a row.
MODULES: Dict[str, str] = {
    "single": "trainjob.train.engines.single",
    "ddp": "trainjob.train.engines.ddp",
    "naive": "trainjob.train.engines.naive",
    "parameter-averaging": "trainjob.train.engines.parameter_averaging",
}


def build(parts: Parts) -> Engine:
    """Return the engine that the settings name, holding the model. Raises UserError."""
    name = parts.settings.engine
    if name not in MODULES:
        raise UserError("there is no engine %s: known are %s" % (name, ", ".join(sorted(MODULES))))
    engine: Engine = importlib.import_module(MODULES[name]).build(parts)
    return engine
