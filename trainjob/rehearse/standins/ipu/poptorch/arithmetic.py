"""Types of numbers. The IPU has no float64 and no int64, and PyTorch on a CPU computes little in float16.

float16: parameters, inputs and outputs are rounded to it, and computation is in float32. Whole numbers of 64 bits are
wrapped to 32, held in 64 (torch's own functions ask for that), and come back as int32.
TRAINJOB_STANDIN_ARITHMETIC=float64 lets everything that is float32 be float64: no IPU can, but a proof needs it.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Optional

import torch
from trainjob_standins.announce import warn

ARITHMETIC = "TRAINJOB_STANDIN_ARITHMETIC"
# As they are before `device_types` puts others in their place.
_half: Any = torch.Tensor.half
_float: Any = torch.Tensor.float
_to: Any = torch.Tensor.to
_type: Any = torch.Tensor.type


def computing_type() -> torch.dtype:
    """Return the type that computes: float32, or float64 where a proof asks for it."""
    return torch.float64 if os.environ.get(ARITHMETIC) == "float64" else torch.float32


def rounded(tensor: Any) -> Any:
    """Return `tensor` with values that float16 can hold; gradients pass as if nothing was done."""
    apply: Any = _Round.apply
    return apply(tensor)


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Any:  # noqa: ARG004 - torch's form
        """Return it rounded, of the type that computes."""
        return _to(_to(tensor, torch.float16), computing_type())

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # noqa: ARG004
        """Return the gradient as it is."""
        return gradient


def as_input(tensor: Any) -> Any:
    """Return an input as the device computes with it; warns once of types that the IPU does not have."""
    if tensor.dtype is torch.int64:
        warn("Tensors of type int64 become int32 on the IPU: values beyond 32 bits wrap around")
        return tensor.to(torch.int32).to(torch.int64)
    if tensor.dtype is torch.int32:
        return tensor.to(torch.int64)
    if tensor.dtype is torch.float64 and computing_type() is torch.float32:
        warn("Tensors of type float64 become float32 on the IPU")
    return tensor.to(computing_type()) if tensor.is_floating_point() else tensor


def as_output(tensor: Any, half: bool) -> Any:
    """Return a result as it comes back; `half`: of a model in float16."""
    tensor = tensor.detach()
    if tensor.dtype is torch.int64:
        return tensor.to(torch.int32)
    return _to(tensor, torch.float16) if half and tensor.is_floating_point() else tensor


def stored(tensor: Any, dtype: torch.dtype) -> Any:
    """Return optimizer state as it is after being stored in `dtype`, in place."""
    if dtype is torch.float16:
        tensor.copy_(tensor.to(torch.float16))
    return tensor


class device_types:  # noqa: N801 - used as a context, like a function
    """While it lasts, a model that asks for float16 gets rounded values of the type that computes, and so on."""

    def __enter__(self) -> None:
        patched: Any = torch.Tensor
        self._before = patched.half, patched.float, patched.to, patched.type
        patched.half = _by_type(_half, torch.float16)
        patched.float = _by_type(_float, torch.float32)
        patched.to, patched.type = _by_type(_to), _by_type(_type)

    def __exit__(self, *_error: Any) -> None:
        patched: Any = torch.Tensor
        patched.half, patched.float, patched.to, patched.type = self._before


def _by_type(method: Callable[..., Any], always: Optional[torch.dtype] = None) -> Callable[..., Any]:
    mine, computing = threading.get_ident(), computing_type()

    def convert(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != mine:  # a loader's thread makes real float16 meanwhile
            return method(tensor, *args, **kwargs)
        asked = always or _asked(*args, *kwargs.values())
        if asked is torch.float16:
            return rounded(_to(tensor, computing))
        return _to(tensor, computing) if asked is torch.float32 else method(tensor, *args, **kwargs)

    return convert


def _asked(*values: Any) -> Optional[torch.dtype]:
    """Return the floating type that a conversion is asked for."""
    for value in values:
        if value is torch.float16 or value is torch.HalfTensor or (isinstance(value, str) and "Half" in value):
            return torch.float16
        if value is torch.float32 or value is torch.FloatTensor or (isinstance(value, str) and "Float" in value):
            return torch.float32
    return None
