"""trainjob: one training job from a laptop to a cluster, proved on the way.

>>> import trainjob
>>> job = trainjob.plan(cluster="pod64", instances=8)
>>> run = trainjob.submit(cluster="local", instances=2)

`trainjob.requests.interface` documents what there is. Every run carries this file, and its ranks import it: nothing is
loaded before it is used, and Python 3.8 reads it.
"""

import sys
from types import ModuleType

__version__ = "0.1.0"

_INTERFACE = "trainjob.requests.interface"
_PUBLIC = ("PlannedJob", "Run", "UserError", "plan", "run", "runs", "submit")


def _public(name: str) -> object:
    from importlib import import_module

    return getattr(import_module(_INTERFACE), name)


class _Callable(ModuleType):
    """A package that is a function as well: trainjob.plan, trainjob.submit and trainjob.runs."""

    def __call__(self, *arguments: object, **named: object) -> object:
        return _public(self.__name__.rpartition(".")[2])(*arguments, **named)


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # Importing trainjob.plan.… binds that package here, in the place of the function of the same name.
        if name in _PUBLIC and isinstance(value, ModuleType):
            value.__class__ = _Callable
        super().__setattr__(name, value)


def __getattr__(name: str) -> object:
    if name in _PUBLIC:
        return _public(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted([*globals(), *_PUBLIC])


sys.modules[__name__].__class__ = _Package
