"""Packages with their own CUDA kernels: nothing here can run those, so their import says so."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
from types import ModuleType

# top-level module -> what it is
PACKAGES = {
    "flash_attn": "flash-attn",
    "flash_attn_2_cuda": "flash-attn",
    "apex": "apex",
    "apex_C": "apex",
    "amp_C": "apex",
    "bitsandbytes": "bitsandbytes",
    "triton": "triton",
    "xformers": "xformers",
    "transformer_engine": "transformer-engine",
    "deepspeed": "DeepSpeed",
    "cupy": "CuPy",
    "pycuda": "PyCUDA",
}


def refusal(module: str) -> "importlib.machinery.ModuleSpec | None":
    """Return a spec whose import raises ImportError, for a package with its own CUDA kernels; None for any other."""
    name = PACKAGES.get(module)
    return None if name is None else importlib.machinery.ModuleSpec(module, Refusing(name))


class Refusing(importlib.abc.Loader):
    """Loads nothing, and says why."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Raise ModuleNotFoundError, which libraries that can do without expect."""
        raise ModuleNotFoundError(
            "%s brings CUDA kernels of its own, which stand-in GPUs can't run: rehearse without it (most scripts have "
            "a switch, or fall back on torch's own operators), and try it on a real GPU" % self._name,
            name=spec.name,
        )

    def exec_module(self, module: ModuleType) -> None:
        """Never called."""


def hide() -> None:
    """Let importlib.util.find_spec say that these packages are absent: libraries ask it before they import one."""
    find_spec = importlib.util.find_spec

    def find(name: str, package: "str | None" = None) -> "importlib.machinery.ModuleSpec | None":
        return None if name in PACKAGES else find_spec(name, package)

    importlib.util.find_spec = find
