"""Steps in when torch is imported: the library before it, CUDA's own functions before `torch.cuda`, checks after it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import warnings
from types import ModuleType
from typing import Callable, Dict, Optional, Sequence

from trainjob_gpu import refusals

Step = Callable[[], None]


def install() -> None:
    """Watch the imports of this process."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
        refusals.hide()


class Finder(importlib.abc.MetaPathFinder):
    """Finds modules as usual, and wraps the loaders of those that are stepped into."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """Return the module's own spec, with our steps around its loading; None for a module that is none of ours."""
        refused = refusals.refusal(name)
        if refused is not None:
            return refused
        if name not in BEFORE and name not in AFTER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader, BEFORE.get(name), AFTER.get(name))
        return spec


class Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, with a step before and one after."""

    def __init__(self, own: importlib.abc.Loader, before: Optional[Step], after: Optional[Step]) -> None:
        self._own, self._before, self._after = own, before, after

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Optional[ModuleType]:
        """Return what the module's own loader creates."""
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module between the two steps."""
        if self._before is not None:
            self._before()
        self._own.exec_module(module)
        if self._after is not None:
            self._after()


def _before_torch() -> None:
    from trainjob_gpu import device

    device.load()
    # Of the CPU's kernels of losses, which are given the mean as their output. No GPU's kernel says this.
    warnings.filterwarnings("ignore", r"An output with one or more elements was resized since it had shape \[\]")


def _before_cuda() -> None:
    from trainjob_gpu import device, functions, streams

    functions.put_into_torch(device.loaded())
    streams.put_into_torch()


def _before_distributed() -> None:
    from trainjob_gpu import collectives

    collectives.put_into_torch()


def _after_distributed() -> None:
    from trainjob_gpu import collectives

    collectives.split_by_new_groups(sys.modules["torch.distributed.distributed_c10d"])


def _after_torch() -> None:
    from trainjob_gpu import patches

    patches.apply()


def _after_tensor() -> None:
    from trainjob_gpu import attention

    attention.shard_like_gpus()


def _after_numa() -> None:
    from trainjob_gpu import patches

    patches.bind_to_no_node()


def _after_sampler() -> None:
    from trainjob_gpu import notes

    notes.watch_sampler(sys.modules["torch.utils.data.distributed"])


def _after_nvml() -> None:
    from trainjob_gpu import patches

    patches.refuse_nvml()


BEFORE: Dict[str, Step] = {
    "torch": _before_torch,
    "torch.cuda": _before_cuda,
    "torch.distributed.distributed_c10d": _before_distributed,
}
AFTER: Dict[str, Step] = {
    "torch": _after_torch,
    "torch.distributed.distributed_c10d": _after_distributed,
    "torch.distributed.tensor": _after_tensor,
    "torch.numa.binding": _after_numa,
    "torch.utils.data.distributed": _after_sampler,
    "pynvml": _after_nvml,
}
