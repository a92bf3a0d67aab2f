"""poptorch.autocast and module.autocast(): recorded only. A stand-in keeps the types of the model, and says so once."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

from torch import nn
from trainjob_standins.announce import warn


class Policy:
    """The operations in float16, and those in float32."""

    def __init__(
        self,
        fp16: Optional[Sequence[object]] = None,
        fp32: Optional[Sequence[object]] = None,
        promote: Optional[Sequence[object]] = None,
        demote: Optional[Sequence[object]] = None,
    ) -> None:
        self.fp16, self.fp32 = list(fp16 or []), list(fp32 or [])
        self.promote, self.demote = list(promote or []), list(demote or [])


class autocast:  # noqa: N801 - poptorch's name
    """A context or a decorator, without an effect."""

    def __init__(self, enabled: bool = True) -> None:
        if enabled:
            warn("poptorch.autocast has no effect in a stand-in: operations keep the types that the model gives them")

    def __enter__(self) -> None:
        """Begin the context."""

    def __exit__(self, *_error: object) -> None:
        """End it."""

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as it is."""
        return function


def _of_module(module: nn.Module, enabled: bool = True) -> None:
    """Note it on the module: `model.autocast()`."""
    autocast(enabled)
    module._poptorch_autocast = enabled  # type: ignore[assignment]


# poptorch adds it to every module, too.
nn.Module.autocast = _of_module  # type: ignore[attr-defined]
