"""Writes down every update for `trainjob verify`: whose samples, which gradients, which weights."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, Dict, Iterator, List, Tuple

import torch

from trainjob.contract.files import append_json_line, write_json
from trainjob.contract.paths import RunPaths
from trainjob.contract.trace import BUFFER, GRADIENT, PARAMETER, TracePaths
from trainjob.train import nested, safetensors

_DIGEST_BYTES = 8


class Trace:
    """One rank's part of the trace. An engine tells it what it does, in the order in which it does it."""

    def __init__(self, paths: RunPaths, rank: int, attempt: int, *, stream: bool = False, full: bool = True) -> None:
        self._files = TracePaths(paths)
        self._rank = rank
        self._attempt = attempt
        self._stream = stream  # the data set is iterable
        self._full = full  # gradients and weights as well, which of a large model take long to write
        self._samples: Dict[int, List[str]] = {}
        self._gradients: Dict[str, Any] = {}
        self._files.folder.mkdir(exist_ok=True)

    def model(self, model: torch.nn.Module, repeatable: bool, reads_buffers: bool) -> None:
        """Note the kinds of layer, and what a second forward pass with the same seed has shown.

        `repeatable`: it gave the same outputs; `reads_buffers`: not so with the buffers that the first pass left.
        """
        if self._rank == 0:
            kinds = sorted({type(layer).__name__ for layer in model.modules()})
            buffers = [name for name, _ in model.named_buffers()]
            noted = {
                "layers": kinds,
                "buffers": buffers,
                "repeatable": repeatable,
                "reads_buffers": reads_buffers,
                "stream": self._stream,
            }
            write_json(self._files.model, noted)

    def micro_batch(self, number: int, inputs: Any, targets: Any) -> None:
        """Note the samples of micro batch `number` of the global batch, as they come from the loader."""
        self._samples[number] = list(_sample_digests(inputs, targets))

    def gradients(self, model: torch.nn.Module) -> None:
        """Note the gradients that the optimizer is about to use."""
        if self._full:
            self._gradients = {name: _copy(weight.grad) for name, weight in _with_gradient(model)}

    def weights(self, update: int, model: torch.nn.Module) -> None:
        """Note the weights after update `update`, counted from 1, and write all that was noted of it."""
        samples = {str(number): digests for number, digests in self._samples.items()}
        line: Dict[str, Any] = {"attempt": self._attempt, "update": update, "samples": samples}
        if self._full:
            parameters = dict(model.named_parameters())
            line.update(gradients=_digest(self._gradients), parameters=_digest(parameters))
        append_json_line(self._files.rank(self._rank), line)
        if self._full and self._rank == 0:
            safetensors.save(self._files.update(update), dict(self._tensors(model)))
        self._samples = {}

    def _tensors(self, model: torch.nn.Module) -> Iterator[Tuple[str, Any]]:
        for name, gradient in self._gradients.items():
            yield GRADIENT + name, gradient
        for name, weight in model.named_parameters():
            yield PARAMETER + name, _copy(weight)
        for name, buffer in model.named_buffers():
            yield BUFFER + name, _copy(buffer)


def nudge(tensors: Dict[str, Any]) -> None:
    """Move every number by its last bit or two: what a training makes of that is what it makes of rounding."""
    for tensor in tensors.values():
        if tensor.is_floating_point():
            tensor.mul_(1.0 + torch.finfo(tensor.dtype).eps)


def _with_gradient(model: torch.nn.Module) -> Iterator[Tuple[str, Any]]:
    return ((name, weight) for name, weight in model.named_parameters() if weight.grad is not None)


def _copy(tensor: Any) -> Any:
    return tensor.detach().to("cpu", copy=True)


def _sample_digests(inputs: Any, targets: Any) -> Iterator[str]:
    parts = list(nested.tensors((inputs, targets)))
    for number in range(nested.count((inputs, targets))):
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for part in parts:
            digest.update(_bytes(part[number]))
        yield digest.hexdigest()


def _digest(tensors: Dict[str, Any]) -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(_bytes(tensors[name]))
    return digest.hexdigest()


def _bytes(tensor: Any) -> bytes:
    values = tensor.detach().cpu().contiguous()
    # Straight from the tensor's memory, whatever its type: numpy has no bfloat16.
    return ctypes.string_at(values.data_ptr(), values.numel() * values.element_size())
