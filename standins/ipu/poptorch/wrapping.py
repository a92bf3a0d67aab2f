"""Makes a user's model one that runs on the device."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch
from trainjob_standins.announce import warn

from poptorch import cache
from poptorch.enums import ConnectionType
from poptorch.errors import Error
from poptorch.executor import PoplarExecutor
from poptorch.options import Options


def trainingModel(model: Any, options: Optional[Options] = None, optimizer: Any = None) -> PoplarExecutor:
    """Return `model` as one that trains on the device; no optimizer means SGD with a learning rate of 0.01."""
    model = model.model if isinstance(model, PoplarExecutor) else model
    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return PoplarExecutor(model, options, True, optimizer)


def inferenceModel(model: Any, options: Optional[Options] = None) -> PoplarExecutor:
    """Return `model` as one that gives results on the device."""
    model = model.model if isinstance(model, PoplarExecutor) else model
    if model.training:
        warn("the model of an inferenceModel is in training mode: call model.eval() before it is wrapped")
    return PoplarExecutor(model, options, False)


def load(filename: str, edit_opts_fn: Optional[Callable[[Options], None]] = None) -> PoplarExecutor:
    """Return the model that `save` wrote with its weights to `filename`, compiled and on a device. Raises Error."""
    kept = cache.read(filename)
    if kept["model"] is None:
        raise Error("%s holds no model: it was written with export_model=False" % filename)
    # An offline target was there to compile; what is loaded is there to run.
    options = kept["options"].clone().connectionType(ConnectionType.Always)
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    for module, mode in zip(kept["model"].modules(), kept["modes"]):
        module.training = mode
    make = trainingModel if kept["training"] else inferenceModel
    more = {"optimizer": kept["optimizer"]} if kept["training"] else {}
    loaded: PoplarExecutor = make(kept["model"], options, **more)
    loaded.loadExecutable(filename)
    return loaded
