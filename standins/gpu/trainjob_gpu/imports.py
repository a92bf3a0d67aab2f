"""Steps in when torch is imported: the library before it, CUDA's own functions before `torch.cuda`, checks after it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Callable, Optional, Sequence

from trainjob_gpu import refusals


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
            spec.loader = Loader(spec.loader, name)
        return spec


class Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, with a step before and one after."""

    def __init__(self, own: importlib.abc.Loader, name: str) -> None:
        self._own, self._name = own, name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Optional[ModuleType]:
        """Return what the module's own loader creates."""
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module between the two steps."""
        if self._name in BEFORE:
            _step(*BEFORE[self._name])()
        self._own.exec_module(module)
        if self._name in AFTER:
            _step(*AFTER[self._name])(module)


def _step(module: str, function: str) -> Callable[..., None]:
    step: Callable[..., None] = getattr(importlib.import_module("trainjob_gpu." + module), function)
    return step


# What is called before a module runs, and after it with the module: a module of ours and its function.
BEFORE = {
    "torch": ("device", "load"),
    "torch.cuda": ("functions", "put_into_torch"),
    "torch.distributed.distributed_c10d": ("collectives", "put_into_torch"),
}
AFTER = {
    "torch": ("patches", "apply"),
    "torch.distributed.distributed_c10d": ("collectives", "split_by_new_groups"),
    "torch.distributed.tensor": ("attention", "shard_like_gpus"),
    "torch.numa.binding": ("patches", "bind_to_no_node"),
    "torch.utils.data.distributed": ("notes", "watch_sampler"),
    "pynvml": ("patches", "refuse_nvml"),
}
