"""Evaluation on IPUs: the device gives outputs of whole calls, and those of padding are dropped on the host."""

from __future__ import annotations

import copy
from typing import Any, Callable, List

import torch

from trainjob.train import nested
from trainjob.train.engines.base import Parts
from trainjob.train.engines.ipu_options import Ipus, evaluation_options


class Evaluation:
    """An inference model beside the training; one of them holds the device."""

    def __init__(self, ipus: Ipus, wrapped: Any, parts: Parts) -> None:
        self._parts = parts
        # Compiled in its own mode, whatever becomes of the model that trains; the weights are shared.
        self._wrapped = _sharing_weights(wrapped).eval()
        options = evaluation_options(ipus)
        self.batch = parts.settings.micro_batch * ipus.replicas * max(1, parts.settings.ipus_per_replica)
        self._inference = ipus.poptorch.inferenceModel(self._wrapped, options)

    def compile(self, as_sent: Callable[[Any], Any]) -> None:
        """Compile without running."""
        self._inference.compile(as_sent(_filled(self._parts.trial[0], self.batch)))

    def values(self, inputs: Any, targets: Any, metric_names: List[str]) -> List[float]:
        """Return loss and metrics, means over at most `batch` samples; what fills up the call is not counted."""
        samples = nested.count(inputs)
        # In 32 bits: the host takes the loss of them, and computes little in 16.
        outputs = nested.convert(_widened, nested.rows(self._inference(_filled(inputs, self.batch)), 0, samples))
        with torch.no_grad():
            loss = self._parts.task.loss(outputs, targets)
            metrics = self._parts.task.metrics(outputs, targets)
        shown = float(loss) / samples if self._parts.settings.loss_is_summed else float(loss)
        return [shown, *[float(metrics[name]) for name in metric_names]]

    def weights_changed(self) -> None:
        """Give the device the weights that the host has now."""
        if self._inference.isCompiled():
            if not self._inference.isAttachedToDevice():
                self._inference.attachToDevice()
            self._inference.copyWeightsToDevice()

    def let_go(self) -> None:
        """Leave the device to the training."""
        if self._inference.isCompiled() and self._inference.isAttachedToDevice():
            self._inference.detachFromDevice()


def _sharing_weights(module: Any) -> Any:
    """Return a copy of a module whose parameters and buffers are the same tensors."""
    tensors = [*module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})


def _filled(inputs: Any, size: int) -> Any:
    """Return inputs filled up to `size` samples with the first one again and again."""

    def fill(tensor: Any) -> Any:
        missing = size - tensor.shape[0]
        return torch.cat([tensor, tensor[:1].expand(missing, *tensor.shape[1:])]) if missing > 0 else tensor

    return nested.convert(fill, inputs)


def _widened(tensor: Any) -> Any:
    return tensor.float() if tensor.dtype is torch.float16 else tensor
