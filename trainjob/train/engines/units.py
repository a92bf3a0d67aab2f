"""The units of a model: modules that are gathered, recomputed and freed as one, most often its repeated blocks."""

from __future__ import annotations

import fnmatch
import functools
from typing import Any, Dict, List

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainjob.contract.errors import UserError
from trainjob.train.tasks.base import Task

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_CURE = 'Name them in the task: shard_units = ["blocks.*"], the names of modules as model.named_modules() has them'


def units_of(task: Task, model: nn.Module) -> List[str]:
    """Return the names of the model's units: those of the task's `shard_units`, or else its repeated blocks.

    Raises UserError if there are none.
    """
    stated: Any = getattr(task, "shard_units", None)
    if stated is not None:
        return _named([stated] if isinstance(stated, str) else list(stated), model)
    names = _repeated(model, "", leaves=False) or _repeated(model, "", leaves=True)
    if not names:
        raise UserError(
            "the model has no units to shard or recompute: a unit is a module that occurs at least twice beside its "
            "like, and none of the %d modules does" % sum(1 for _ in model.modules()),
            _CURE,
        )
    return names


def _named(patterns: List[str], model: nn.Module) -> List[str]:
    parts = {name: name.split(".") for name, module in model.named_modules() if name and _has_weights(module)}
    names: List[str] = []
    for pattern in patterns:
        wanted = pattern.split(".")  # a star stands for a part, or some of it, without a dot
        matching = [
            name
            for name, own in parts.items()
            if len(own) == len(wanted) and all(map(fnmatch.fnmatchcase, own, wanted))
        ]
        if not matching:
            shown = ", ".join(list(parts)[:8]) + (" and %d more" % (len(parts) - 8) if len(parts) > 8 else "")
            raise UserError(
                "shard_units of the task names %s, and no module with parameters has that name; there are: %s"
                % (pattern, shown),
                _CURE,
            )
        names += [name for name in matching if name not in names]
    return names


def _repeated(module: nn.Module, prefix: str, leaves: bool) -> List[str]:
    """Return the outermost modules below `module` that occur at least twice beside their like.

    Containers are never units: they only hold them. `leaves`: modules without children count.
    """
    alike: Dict[type, int] = {}
    for child in module.children():
        alike[type(child)] = alike.get(type(child), 0) + 1
    names: List[str] = []
    for name, child in module.named_children():
        is_block = not isinstance(child, _CONTAINERS) and (leaves or any(True for _ in child.children()))
        if is_block and alike[type(child)] > 1 and _has_weights(child):
            names.append(prefix + name)
        else:
            names += _repeated(child, "%s%s." % (prefix, name), leaves)
    return names


def _has_weights(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


def recompute(model: nn.Module, names: List[str]) -> None:
    """Let each unit keep only its inputs, and compute the rest again during the backward pass."""
    if not hasattr(torch.autograd.graph, "saved_tensors_hooks"):
        raise UserError(
            "--recompute needs torch 2.0 or newer, and this is torch %s" % torch.__version__, "leave it out"
        )
    modules = dict(model.named_modules())
    for name in names:
        module: Any = modules[name]
        # In place of the method, so that names of parameters and hooks stay as they are.
        module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
