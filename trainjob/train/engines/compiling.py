"""Models that train faster: compiled by torch.compile, or with images and convolutions stored channels last."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

import torch

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.records.own import open_own
from trainjob.records.software import OLDEST_FOR_COMPILE, is_older
from trainjob.train.world import World

# A rank that holds the lock may wait for another one, if the user's model communicates in its forward pass.
_LONGEST_WAIT_S = 300.0


def compile_modules(modules: Iterable[torch.nn.Module], world: World) -> None:
    """Have each module compiled when it is first called in training. Evaluation, whose batches differ, runs as it was.

    Raises UserError if this torch can't.
    """
    compiler: Any = getattr(torch, "compile", None)
    if compiler is None or is_older(torch.__version__, OLDEST_FOR_COMPILE):
        raise UserError(
            "--compile needs torch %s or newer, and this is torch %s" % (OLDEST_FOR_COMPILE, torch.__version__),
            "Use a newer torch, or leave out --compile",
        )
    # The same numbers for dropout: compiled code would draw otherwise than torch's layers do from the same generator.
    inductor: Any = importlib.import_module("torch._inductor.config")
    inductor.fallback_random = True
    functorch: Any = importlib.import_module("torch._functorch.config")
    if hasattr(functorch, "force_non_lazy_backward_lowering"):
        # Otherwise the backward pass is compiled later, by all ranks at once.
        functorch.force_non_lazy_backward_lowering = True
    for module in modules:
        # In place of the method, so that names of parameters and hooks stay as they are.
        module.forward = _Compiled(module, compiler(module.forward), world)


class _Compiled:
    """The forward pass of a module: compiled while it trains, and as it was while it is evaluated."""

    def __init__(self, module: torch.nn.Module, compiled: Callable[..., Any], world: World) -> None:
        self._module = module
        self._plain = module.forward
        self._compiled = compiled
        self._world = world
        self._is_first = True

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if not self._module.training:
            return self._plain(*inputs, **named)
        if not self._is_first:
            return self._compiled(*inputs, **named)
        self._is_first = False
        together = any(isinstance(one, torch.nn.SyncBatchNorm) for one in self._module.modules())
        with contextlib.nullcontext() if together else _alone_on_this_host(self._world):
            return self._compiled(*inputs, **named)


@contextlib.contextmanager
def _alone_on_this_host(world: World) -> Iterator[None]:
    """Let one rank of this host after another compile: the first fills torch's cache, from which the others take."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir()
    try:
        os.makedirs(folder, exist_ok=True)
        lock = open_own(Path(folder) / ("trainjob-compiling-%d.lock" % os.getuid()))
    except OSError:  # without a cache each compiles for itself
        yield
        return
    world.waits = True
    end = clock.monotonic() + _LONGEST_WAIT_S
    while clock.monotonic() < end:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            clock.sleep(0.05)
    world.waits = False
    try:
        yield
    finally:
        os.close(lock)


def store_channels_last(model: torch.nn.Module) -> None:
    """Store the weights of convolutions channels last."""
    for weight in model.parameters():
        weight.data = channels_last(weight.data)


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of four dimensions stored channels last, and any other as it is."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
