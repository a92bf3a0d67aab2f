"""Records every update for `trainjob verify`: which samples, which gradients, which weights."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, Dict, Iterable, List, Union

import torch

from trainjob.contract.paths import RunPaths
from trainjob.records.trace import BUFFER, GRADIENT, PARAMETER, TracePaths
from trainjob.train.recording import safetensors
from trainjob.train.recording.state import Tensors, whole
from trainjob.train.samples import nested
from trainjob.train.samples.nested import Nested

_DIGEST_BYTES = 8


class TraceWriter:
    """One rank's part of the trace. The engine calls these methods in the order of an update.

    `stream`: the data set is iterable. `full`: gradients and weights are recorded as well, which takes long for a
    large model.
    """

    def __init__(self, paths: RunPaths, rank: int, attempt: int, *, stream: bool = False, full: bool = True) -> None:
        self._files = TracePaths(paths)
        self._rank = rank
        self._attempt = attempt
        self._stream = stream
        self._full = full
        self._samples: Dict[int, List[str]] = {}
        self._gradients: Tensors = {}
        self._files.folder.mkdir(exist_ok=True)

    def model(self, model: torch.nn.Module, repeatable: bool, reads_buffers: bool) -> None:
        """Record the kinds of layer, and what a second forward pass with the same seed showed.

        `repeatable`: it gave the same outputs; `reads_buffers`: not with the buffers that the first pass left.
        """
        if self._rank == 0:
            layers = sorted({type(layer).__name__ for layer in model.modules()})
            content = {
                "layers": layers,
                "buffers": [name for name, _ in model.named_buffers()],
                "repeatable": repeatable,
                "reads_buffers": reads_buffers,
                "stream": self._stream,
            }
            self._files.write_facts(content)

    def micro_batch(self, number: int, inputs: Nested, targets: Nested) -> None:
        """Record the samples of micro batch `number` of the global batch, as the loader delivers them."""
        parts = list(nested.tensors((inputs, targets)))
        samples = nested.count((inputs, targets))
        self._samples[number] = [_digest([part[sample] for part in parts]) for sample in range(samples)]

    def gradients(self, model: torch.nn.Module) -> None:
        """Record the gradients that the optimizer is about to use."""
        if self._full:
            self._gradients = {
                name: _copy(weight.grad) for name, weight in model.named_parameters() if weight.grad is not None
            }

    def weights(self, update: int, model: torch.nn.Module) -> None:
        """Record the weights after update `update`, counted from 1, and write all that was recorded of it."""
        samples = {str(number): digests for number, digests in self._samples.items()}
        line: Dict[str, Any] = {"attempt": self._attempt, "update": update, "samples": samples}
        parameters = {name: _copy(weight) for name, weight in model.named_parameters()} if self._full else {}
        if self._full:
            line.update(gradients=_digest_by_name(self._gradients), parameters=_digest_by_name(parameters))
        self._files.append(self._rank, line)
        if self._full and self._rank == 0:
            buffers = {name: _copy(buffer) for name, buffer in model.named_buffers()}
            kinds = ((GRADIENT, self._gradients), (PARAMETER, parameters), (BUFFER, buffers))
            tensors = {kind + name: tensor for kind, by_name in kinds for name, tensor in by_name.items()}
            safetensors.save(self._files.update(update), tensors)
        self._samples = {}


def nudge(tensors: Tensors) -> None:
    """Change every number by its last bit or two: how training amplifies that is how it amplifies rounding."""
    for tensor in tensors.values():
        if tensor.is_floating_point():
            tensor.mul_(1.0 + torch.finfo(tensor.dtype).eps)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return whole(tensor.detach()).to("cpu", copy=True)


def _digest_by_name(tensors: Tensors) -> str:
    return _digest([part for name in sorted(tensors) for part in (name, tensors[name])])


def _digest(parts: Iterable[Union[str, torch.Tensor]]) -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
        else:
            values = part.detach().cpu().contiguous()
            # Straight from the tensor's memory, whatever its type: numpy has no bfloat16.
            digest.update(ctypes.string_at(values.data_ptr(), values.numel() * values.element_size()))
    return digest.hexdigest()
