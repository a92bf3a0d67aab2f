"""Attributes of modules that are neither weights nor buffers. A graph is traced once: they are constants of it."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple

import torch
from torch import nn


class _Held(NamedTuple):
    attributes: Dict[str, Any]
    name: str
    values: Any
    version: int


class Constants:
    """The attributes of a model's modules as they are before it runs."""

    def __init__(self, model: nn.Module) -> None:
        self._attributes = {module: _plain_attributes(module) for module in model.modules()}
        self._held: List[_Held] = [
            _Held(attributes, name, value.detach().clone(), value._version)
            for attributes in self._attributes.values()
            for name, value in attributes.items()
            if isinstance(value, torch.Tensor)
        ]

    def restore(self) -> None:
        """Undo what forward has set, and what it has done in place: it never counts on from call to call."""
        for number, (attributes, name, values, version) in enumerate(self._held):
            if attributes[name]._version != version:
                # Another tensor: the one that was changed may be among the outputs.
                attributes[name] = values.clone()
                self._held[number] = _Held(attributes, name, values, attributes[name]._version)
        for module, attributes in self._attributes.items():
            module.__dict__.update(attributes)


def _plain_attributes(module: nn.Module) -> Dict[str, Any]:
    """Return the attributes of a module that hold neither weights, buffers nor modules."""
    return {name: value for name, value in module.__dict__.items() if not name.startswith("_") and name != "training"}
