"""Leaves torch's compiler, torch._dynamo, on disk until something compiles.

Building an optimizer or DistributedDataParallel imports it, which takes a second of each rank's start, only to keep the
compiler out of the optimizer's functions and to ask for a setting. Here their import gets a module with what they use.
While nothing compiles it does what torch's own does (read in torch 2.13). Whatever else is asked of it imports the
real one in its place.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # not from typing: each Python of a rank reads this file, and most of them need none of it
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import FrameType, ModuleType
    from typing import Any, Optional
else:
    ModuleType = type(sys)

_NAME = "torch._dynamo"
_KEPT = "__dynamo_disable"  # the attribute in which torch._compile keeps what it was given
_DDP = "torch.nn.parallel.distributed"
_ASKED_BY = (_DDP, "torch._compile", "torch.optim.optimizer")  # anybody else wants the compiler


def spec() -> Optional[ModuleSpec]:
    """Return the module's source, if the importer needs little of it."""
    if _asked_by() not in _ASKED_BY:
        return None
    from importlib.machinery import ModuleSpec

    # Not as a package: a submodule is looked for in the real one.
    return ModuleSpec(_NAME, _Loader)  # type: ignore[arg-type]  # a class, which has what a loader has


def as_loaded(name: str) -> ModuleSpec:
    """Return a spec that gives the module that is there, and executes nothing: two of it would not agree."""
    from importlib.machinery import ModuleSpec

    return ModuleSpec(name, _Loaded(sys.modules[name]))  # type: ignore[arg-type]  # has what a loader has


class _Loaded:
    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, getattr(module, "__spec__", None)

    def create_module(self, _spec: ModuleSpec) -> ModuleType:
        """Return the module that is there."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Leave it as it is."""
        try:  # noqa: SIM105 - a rank's Python loads nothing for it
            module.__spec__ = self._spec
        except AttributeError:
            pass  # torch's modules of settings take none: it was not replaced


class _Loader:
    @staticmethod
    def create_module(_spec: ModuleSpec) -> None:
        """Leave it to the interpreter."""

    @staticmethod
    def exec_module(module: Any) -> None:
        """Make it ours only now: the interpreter has looked for attributes of its own."""
        module.kept_out_of = {}
        module.__class__ = _Later


class _Later(ModuleType):
    @staticmethod
    def graph_break(*_args: Any, **_kwargs: Any) -> None:
        """Do nothing, as torch's own does where nothing is being compiled."""

    def disable(self, *args: Any, **kwargs: Any) -> Any:
        if sys.modules.get(_NAME) is not self or _asked_by() != "torch._compile":
            return self.__getattr__("disable")(*args, **kwargs)
        # By function: older releases ask at each call.
        self.kept_out_of[args[0]] = (args, kwargs)
        return args[0]

    def __getattr__(self, name: str) -> Any:
        import importlib

        asked_first = sys.modules.get(_NAME) is self
        # Who goes through all modules, as inspect does for their files, wants no compiler.
        if asked_first and name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if asked_first and name == "utils" and _asked_by() == _DDP:
            return _Utils
        if asked_first:
            sys.modules.pop(_NAME, None)
        real = importlib.import_module(_NAME)
        while asked_first and self.kept_out_of:
            function, (args, kwargs) = self.kept_out_of.popitem()
            if getattr(function, _KEPT, None) is function:
                setattr(function, _KEPT, real.disable(*args, **kwargs))
        return getattr(real, name)


class _Utils:
    @staticmethod
    def get_optimize_ddp_mode() -> str:
        """Return torch's default: who sets another one has imported the real module."""
        return "ddp_optimizer"


def _asked_by() -> str:
    """Return the module whose code is at work, apart from this one and from what imports."""
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name not in (__package__, __name__, "torch", "importlib") and not name.startswith("importlib."):
            return name
        frame = frame.f_back
    return ""
