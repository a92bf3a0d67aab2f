"""Measures what training a task holds in memory, without holding it: tensors of torch's meta device have no data.

    python -m trainjob.train.measure.memory PROJECT

Reads the settings of a job from standard input as JSON, and prints `MemoryFigures`.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from trainjob.contract.errors import UserError
from trainjob.records import typed
from trainjob.records.job import TrainSettings
from trainjob.records.measures import MemoryFigures
from trainjob.train import opening, optimizers
from trainjob.train.engines import precision
from trainjob.train.engines.units import units_of
from trainjob.train.samples import nested
from trainjob.train.samples.batches import trial_inputs
from trainjob.train.samples.nested import Nested
from trainjob.train.samples.streams import as_source
from trainjob.train.tasks.base import Task
from trainjob.train.tasks.loading import load

_META = torch.device("meta")


def main(arguments: Sequence[str]) -> int:
    """Print the figures of the job on standard input; return 0."""
    settings = typed.from_json(TrainSettings, json.load(sys.stdin))
    try:
        task = load(settings.entry, settings.task_options, Path(arguments[0]))
        print(json.dumps(typed.to_json(measure(task, settings, os.environ))))  # noqa: T201 - what it is started for
    except UserError as error:
        sys.stderr.write("%s\n" % error)
        return 1
    return 0


def measure(task: Task, settings: TrainSettings, environ: Mapping[str, str]) -> MemoryFigures:
    """Return what an instance that holds the whole model would hold, and what its units are. Raises UserError."""
    kinds = precision.types(settings.precision)
    with _META:
        model = opening.build_model(task, settings.seed).to(_META, kinds.weights)
    try:
        units = units_of(task, model)
    except UserError:
        if settings.engine == "fsdp" or settings.recompute:
            raise
        units = []
    weights = list(model.parameters())
    trained = [one for one in weights if one.requires_grad]
    sizes = {name: _bytes(module.parameters()) for name, module in model.named_modules() if name in units}
    largest = _bytes(weights) - sum(sizes.values()) + max(sizes.values(), default=0)
    figures = MemoryFigures(
        parameters=sum(one.numel() for one in weights),
        weights=_bytes(weights),
        gradients=_bytes(trained),
        optimizer=_optimizer_bytes(trained, settings) + (_bytes(weights) if settings.average_decay else 0),
        gathered=largest * torch.finfo(kinds.layers).bits // torch.finfo(kinds.weights).bits,
        units=units,
    )
    saved, why = _saved(task, model.to(kinds.layers), settings, environ, units)
    if saved is None:
        return replace(figures, why=why)
    return replace(figures, activations=saved.all(), recomputed=saved.recomputed())


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


def _optimizer_bytes(trained: List[nn.Parameter], settings: TrainSettings) -> int:
    """Return the bytes of the optimizer's state after one step."""
    copies = [nn.Parameter(torch.empty_like(one)) for one in trained]
    optimizer = optimizers.build([{"params": copies}], settings, sparse=True)
    for group in optimizer.param_groups:
        for one in group["params"]:
            one.grad = torch.empty_like(one)
    optimizer.step()
    state = [value for values in optimizer.state.values() for value in values.values()]
    return _bytes(value for value in state if isinstance(value, torch.Tensor))


class Saved:
    """The tensors that a forward pass keeps for the backward pass, by the unit that keeps them."""

    def __init__(self, model: nn.Module, units: List[str]) -> None:
        # Storages are held, so that none of them gets the number of another.
        self._storages: Dict[int, Any] = {}
        for tensor in [*model.parameters(), *model.buffers()]:
            self._is_new(tensor)
        self._inside: List[str] = [""]
        self._bytes: Dict[str, int] = {"": 0}
        self._inputs = 0
        modules = dict(model.named_modules())
        for name in units:
            modules[name].register_forward_pre_hook(lambda _module, inputs, name=name: self._enter(name, inputs))
            modules[name].register_forward_hook(lambda *_: self._leave())

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count a tensor that autograd keeps."""
        if self._is_new(tensor):
            name = self._inside[-1]
            self._bytes[name] = self._bytes.get(name, 0) + tensor.untyped_storage().nbytes()
        return tensor

    def all(self) -> int:
        """Return the bytes of all tensors."""
        return sum(self._bytes.values())

    def recomputed(self) -> int:
        """Return the bytes if units keep only their inputs: what lies outside, the inputs, and one unit at a time."""
        units = [size for name, size in self._bytes.items() if name]
        return self._bytes[""] + self._inputs + max(units, default=0)

    def _is_new(self, tensor: torch.Tensor) -> bool:
        storage: Any = tensor.untyped_storage()
        number = storage._cdata  # meta tensors have no address
        if number in self._storages:
            return False
        self._storages[number] = storage
        return True

    def _enter(self, name: str, inputs: Nested) -> None:
        self._inside.append(name)
        self._inputs += _bytes(nested.tensors(inputs))

    def _leave(self) -> None:
        self._inside.pop()


def _saved(
    task: Task, model: nn.Module, settings: TrainSettings, environ: Mapping[str, str], units: List[str]
) -> Tuple[Optional[Saved], str]:
    """Return what the forward pass of one micro batch keeps; None, and why not, if it can't be tried."""
    saved = Saved(model.train(), units)
    kind = precision.types(settings.precision).layers

    def described(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(_META, kind if tensor.is_floating_point() else tensor.dtype)

    try:
        data = opening.open_data(task, settings, environ, local_rank=1)  # which reads no more than it needs
        train = as_source(data.train, settings.samples)
        inputs, targets = trial_inputs(train, opening.count(settings, train))
        if data.normalise is not None:
            inputs = data.normalise(inputs, torch.float32)
        inputs, targets = nested.convert(described, (inputs, targets))
        with torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda tensor: tensor):
            task.loss(model(inputs), targets)
    except Exception as error:  # noqa: BLE001 - a user's task may look at values, which meta tensors lack
        return None, str(error).splitlines()[0] if str(error) else type(error).__name__
    return saved, ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
