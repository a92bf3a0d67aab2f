"""In torch's place for a Python that only imports a task: every name is there, and nothing computes.

Importing torch takes seconds. A test of what is said about an interpreter or a task puts this folder's parent on
PYTHONPATH instead.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


class Anything:
    """A class to derive from, a decorator, a value: whatever a module's own lines make of one of torch's names."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        """Return the function that is decorated, else something."""
        return arguments[0] if arguments and callable(arguments[0]) else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


def _any_name(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (Anything,), {}) if name[0].isupper() else Anything()


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        is_ours = name.startswith("torch.") and name != "torch.version"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_ours else None

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = _any_name  # type: ignore[method-assign]


__version__ = "2.13.0"
__getattr__ = _any_name
sys.meta_path.insert(0, _Submodules())
