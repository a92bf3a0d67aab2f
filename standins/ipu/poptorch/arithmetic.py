"""Types of numbers. The IPU has no float64 and no int64, and PyTorch on a CPU computes little in float16.

float16: each operation that has a float16 argument computes in float32 and its result is rounded to float16, where a
value beyond ±65,504 saturates, as on an IPU whose floating-point exceptions are off. Whole numbers of 64 bits are
wrapped to 32, held in 64 (torch's own functions ask for that), and come back as int32.
TRAINJOB_STANDIN_ARITHMETIC=float64 lets everything that is float32 be float64: no IPU can, but a proof needs it.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import torch
from trainjob_standins.announce import warn

from poptorch import values
from poptorch.errors import Error

ARITHMETIC = "TRAINJOB_STANDIN_ARITHMETIC"
LARGEST_HALF = 65504.0
# As they are before `device_types` puts others in their place.
_half: Any = torch.Tensor.half
_float: Any = torch.Tensor.float
_to: Any = torch.Tensor.to
_type: Any = torch.Tensor.type
# Products, and layers with weights: what they give is of the type of what goes in.
_OF_FIRST = (
    *("addmm", "baddbmm", "bmm", "linear", "matmul", "mm", "__matmul__"),
    *("conv%s%dd" % (kind, dims) for kind in ("", "_transpose") for dims in (1, 2, 3)),
    *("batch_norm", "group_norm", "instance_norm", "layer_norm", "gru", "lstm", "prelu", "rnn_relu", "rnn_tanh"),
)
# What the model that runs was compiled with: whether float32 beside float16 becomes float16, and exceptions are raised.
_modes: List["device_types"] = []


def computing_type() -> torch.dtype:
    """Return the type that computes: float32, or float64 where a proof asks for it."""
    return torch.float64 if os.environ.get(ARITHMETIC) == "float64" else torch.float32


def to_half(tensor: torch.Tensor) -> Any:
    """Return `tensor` as float16, saturated; not a number stays so."""
    # torch 1.10 clamps no float16 on a CPU.
    wide = _to(tensor, torch.float32) if tensor.dtype == torch.float16 else tensor
    return _to(wide.clamp(-LARGEST_HALF, LARGEST_HALF), torch.float16)


def rounded(tensor: torch.Tensor) -> Any:
    """Return `tensor` with values that float16 can hold; gradients pass as if nothing was done."""
    if _modes and _modes[-1].raises and bool((tensor.detach().abs() > LARGEST_HALF).any()):
        raise floating_point_exception("a float16 overflow")
    apply: Any = _Round.apply
    return apply(tensor)


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, tensor: torch.Tensor) -> Any:  # noqa: ARG004 - torch's form
        """Return it rounded, of the type that computes."""
        return _to(to_half(tensor), computing_type())

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> Any:  # noqa: ARG004
        """Return the gradient as it is."""
        return gradient


class Half(torch.Tensor):
    """A float16 tensor of the device: its values are those of float16, held in the type that computes."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: object, args: Tuple[object, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        """Compute in 32 bits, and round what comes out."""
        named = kwargs or {}
        # A tensor that is written to must stay the one that it is.
        name = getattr(func, "__name__", "")
        is_written = (name.endswith("_") and not name.endswith("__")) or "out" in named
        if not is_written:
            args, named = values.convert(held_as_half, (args, named))
        with torch._C.DisableTorchFunction():
            result = func(*args, **named)
        if isinstance(result, torch.dtype):
            return torch.float16 if result is computing_type() else result
        if isinstance(result, torch.Size):
            return result
        wider = (torch.float32, torch.float64)
        if func is torch.Tensor.double or any(
            value in wider for value in (*args, *named.values()) if type(value) is torch.dtype
        ):
            return values.convert(as_float, result)
        if _modes and not _modes[-1].downcasts and not is_written and _has_float32(args, named):
            return values.convert(as_half, result) if name in _OF_FIRST and isinstance(args[0], Half) else result
        return values.convert(as_half, result)


def _has_float32(args: Tuple[object, ...], named: Dict[str, object]) -> bool:
    tensors = values.flat((args, named))
    return any(type(one) is not Half and one.is_floating_point() and one.dim() for one in tensors)


def as_half(tensor: torch.Tensor) -> Any:
    """Return a floating tensor as one of the device's float16; any other as it is."""
    with torch._C.DisableTorchFunction():
        if not tensor.is_floating_point():
            return tensor
        if isinstance(tensor, Half):  # of an operation in place
            with torch.no_grad():
                tensor.data.copy_(to_half(tensor))
            return tensor
        if tensor.dtype is not computing_type():
            tensor = _to(tensor, computing_type())
        # A view of what is rounded already must stay one.
        return (tensor if tensor._is_view() else rounded(tensor)).as_subclass(Half)


def held_as_half(value: Any) -> Any:
    """Return a tensor of torch's own float16, which the model has made itself, as the device's; all else as it is."""
    is_plain = type(value) is torch.Tensor and value.dtype is torch.float16
    return as_half(value) if is_plain else value


def as_float(tensor: torch.Tensor) -> Any:
    """Return a tensor of the device in the type that computes, and no longer float16."""
    with torch._C.DisableTorchFunction():
        plain = tensor.as_subclass(torch.Tensor) if isinstance(tensor, Half) else tensor
        return _to(plain, computing_type())


def as_input(tensor: torch.Tensor) -> Any:
    """Return an input as the device computes with it; warns once of what the IPU does not have."""
    if tensor.requires_grad:
        warn(
            "Input tensor has requires_grad=True set. This tensor will be detached because backward pass via inputs is "
            "not supported."
        )
        tensor = tensor.detach()
    if tensor.dtype is torch.int64:
        warn("Tensors of type int64 become int32 on the IPU: values beyond 32 bits wrap around")
        return tensor.to(torch.int32).to(torch.int64)
    if tensor.dtype is torch.int32:
        return tensor.to(torch.int64)
    if tensor.dtype is torch.float16:
        return as_half(tensor)
    if tensor.dtype is torch.float64 and computing_type() is torch.float32:
        warn("Tensors of type float64 become float32 on the IPU")
    return tensor.to(computing_type()) if tensor.is_floating_point() else tensor


def as_output(tensor: torch.Tensor) -> Any:
    """Return a result as it comes back to the host."""
    is_half = isinstance(tensor, Half)
    tensor = as_float(tensor.detach()) if is_half else tensor.detach()
    if tensor.dtype is torch.int64:
        return tensor.to(torch.int32)
    return to_half(tensor) if is_half else tensor


def stored(tensor: torch.Tensor, dtype: torch.dtype) -> Any:
    """Return optimizer state as it is after being stored in `dtype`, in place."""
    if dtype is torch.float16:
        tensor.copy_(to_half(tensor))
    return tensor


def refuse_not_finite(tensors: Iterable[torch.Tensor], where: str) -> None:
    """Raise Error for a value that is infinite or not a number, where the options ask for floating-point exceptions."""
    if _modes and _modes[-1].raises:
        for tensor in values.flat(tensors):
            if tensor.is_floating_point() and not bool(torch.isfinite(as_float(tensor.detach())).all()):
                raise floating_point_exception("a value that is infinite or not a number in %s" % where)


def floating_point_exception(what: str) -> Error:
    """Return the error of a floating-point exception."""
    return Error("floating point exception on the IPU: %s" % what, "poplar_application_runtime_error")


class device_types:  # noqa: N801 - used as a context, like a function
    """While it lasts, a model that asks for float16 gets the device's float16, and so on."""

    def __init__(self, *, downcasts: bool = True, raises: bool = False) -> None:
        self.downcasts, self.raises = downcasts, raises

    def __enter__(self) -> None:
        _modes.append(self)
        patched: Any = torch.Tensor
        self._before = patched.half, patched.float, patched.to, patched.type
        patched.half = _by_type(_half, torch.float16)
        patched.float = _by_type(_float, torch.float32)
        patched.to, patched.type = _by_type(_to), _by_type(_type)

    def __exit__(self, *_error: object) -> None:
        patched: Any = torch.Tensor
        patched.half, patched.float, patched.to, patched.type = self._before
        _modes.pop()


def _by_type(method: Callable[..., Any], always: Optional[torch.dtype] = None) -> Callable[..., Any]:
    mine = threading.get_ident()

    def convert(tensor: torch.Tensor, *args: Tuple[object, ...], **kwargs: Any) -> Any:
        if threading.get_ident() != mine:  # a loader's thread makes real float16 meanwhile
            return method(tensor, *args, **kwargs)
        wanted = always or _requested_type(*args, *kwargs.values())
        if wanted is torch.float16:
            return as_half(as_float(tensor))
        return as_float(tensor) if wanted is torch.float32 else method(tensor, *args, **kwargs)

    return convert


def _requested_type(*arguments: object) -> Optional[torch.dtype]:
    """Return the floating type that a conversion is asked for."""
    for value in arguments:
        if isinstance(value, Half):
            return torch.float16
        if value is torch.float16 or value is torch.HalfTensor or (isinstance(value, str) and "Half" in value):
            return torch.float16
        if value is torch.float32 or value is torch.FloatTensor or (isinstance(value, str) and "Float" in value):
            return torch.float32
    return None
