"""Operations that only tell the compiler something, or print: here they hand on what they are given."""

from __future__ import annotations

from typing import Any, Optional

from trainjob_standins.announce import once


def isRunningOnIpu() -> bool:
    """Return False: everything here runs on the CPU."""
    return False


def recomputationCheckpoint(*tensors: Any) -> Any:
    """Return the tensors."""
    return tensors[0] if len(tensors) == 1 else tensors


def set_available_memory(tensor: Any, available_memory_proportion: float) -> Any:  # noqa: ARG001 - poptorch's form
    """Return the tensor."""
    return tensor


def nop(tensor: Any) -> Any:
    """Return the tensor."""
    return tensor


def ipu_print_tensor(tensor: Any, title: str = "", *_more: Optional[Any]) -> Any:
    """Write the tensor to standard error, and return it."""
    once("%s: %s" % (title or "print tensor", tensor))
    return tensor


def for_loop(count: int, body: Any, inputs: Any) -> Any:
    """Return what `body` makes of `inputs` when it is applied `count` times."""
    for _ in range(count):
        made = body(*inputs)
        inputs = list(made) if isinstance(made, (list, tuple)) else [made]
    return inputs
