"""Operations to use within a model. What only tells the compiler something hands on what it is given."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence, Union

import torch

from poptorch import overlap
from poptorch.blocks import is_compiling
from poptorch.enums import MatMulSerializationMode, MultiConvPlanType, OverlapMode
from poptorch.errors import Error

_running: List[bool] = []


@contextlib.contextmanager
def on_ipu() -> Iterator[None]:
    """Say while it lasts that the IPU runs the model."""
    _running.append(True)
    try:
        yield
    finally:
        _running.pop()


def isRunningOnIpu() -> bool:
    """Return whether the model is run by a stand-in for an IPU; False for what runs on the host."""
    return bool(_running)


def recomputationCheckpoint(*tensors: Any) -> Any:
    """Return the tensors: one as it is, several as a tuple, a list or tuple as it came."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        return type(tensors[0])(tensors[0])
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise ValueError("All inputs must be tensors")
    return tensors[0] if len(tensors) == 1 else tensors


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> Any:  # noqa: ARG001 - poptorch's form
    """Return the tensor."""
    return _a_tensor("set_available_memory", tensor)


def set_overlap_for_input(input_tensor: torch.Tensor, mode: OverlapMode) -> Any:
    """Return the tensor: copying beside computing is for hardware. What may be marked is checked when compiling."""
    return overlap.marked("input", input_tensor, mode)


def set_overlap_for_output(output_tensor: torch.Tensor, mode: OverlapMode) -> Any:
    """Return the tensor, as `set_overlap_for_input` does."""
    return overlap.marked("output", output_tensor, mode)


def nop(tensor: torch.Tensor) -> Any:
    """Return the tensor."""
    return _a_tensor("nop", tensor)


def _a_tensor(name: str, value: object) -> Any:
    """Return what the operation `name` was given. Raises Error unless it is a tensor."""
    if not isinstance(value, torch.Tensor):
        raise Error("%s must take a torch.tensor argument. %s is not supported." % (name, type(value)))
    return value


def ipu_print_tensor(tensor: torch.Tensor, title: str = "", *_more: object) -> Any:
    """Write the tensor to standard error, each time it is computed; in the backward pass its gradient. Return it."""
    _print(title or "print tensor", _a_tensor("ipu_print_tensor", tensor))
    if not tensor.requires_grad:
        return tensor
    printed = tensor.clone()
    printed.register_hook(lambda gradient: _print("%s_gradient" % (title or "print tensor"), gradient))
    return printed


def _print(title: str, tensor: torch.Tensor) -> None:
    sys.stderr.write("%s: %s\n" % (title, tensor.detach()))
    sys.stderr.flush()


def for_loop(count: int, body: Callable[..., object], inputs: List[torch.Tensor]) -> Any:
    """Return what `body` makes of the list `inputs` when it is applied `count` times; the inputs stay as they are."""
    if not isinstance(inputs, list):
        raise ValueError("poptorch.for_loop expects a list of tensors. (Object is not list)")  # noqa: TRY004 - poptorch's own
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(  # noqa: TRY004 - poptorch's own
                "poptorch.for_loop expects a list of tensors. (Object in list at index %d is not torch.tensor)" % index
            )
    outputs: List[Any] = [tensor.clone() for tensor in inputs]
    for _ in range(count):
        made: Any = body(*outputs)
        outputs = [tensor.clone() for tensor in (made if isinstance(made, (list, tuple)) else [made])]
    return outputs


def cond(
    condition: torch.Tensor,
    then_body: Callable[..., Sequence[torch.Tensor]],
    then_inputs: List[torch.Tensor],
    else_body: Callable[..., Sequence[torch.Tensor]],
    else_inputs: List[torch.Tensor],
) -> List[Any]:
    """Return what one of two bodies makes of its inputs, by a condition of one element."""
    if condition.numel() != 1:
        raise ValueError("the condition of poptorch.cond has one element, and not %d" % condition.numel())
    made = then_body(*then_inputs) if bool(condition) else else_body(*else_inputs)
    return list(made) if isinstance(made, (list, tuple)) else [made]


def dynamic_slice(tensor: torch.Tensor, dim: int, start: Union[int, torch.Tensor], size: int, step: int) -> Any:
    """Return `size` elements of a dimension from `start` on, which is computed, in steps of `step`."""
    _a_tensor("dynamic_slice", tensor)
    if not isinstance(start, torch.Tensor):
        raise Error("Slice start argument to dynamic_slice must be a torch.tensor. %s is not supported." % type(start))
    begin = _begin_of_slice(start, size, tensor.shape[dim])
    if _running and tensor.shape[dim] % size:
        raise Error(
            "The size of the slice (%d) must be a factor of the slicing dimension (%d)." % (size, tensor.shape[dim])
        )
    return tensor.narrow(dim, begin, size).index_select(dim, torch.arange(0, size, step))


def dynamic_update(input: torch.Tensor, src: torch.Tensor, dim: int, start: Union[int, torch.Tensor], size: int) -> Any:
    """Return `input` with `size` elements of a dimension, from `start` on, taken from `src`."""
    for name, value in (("input", input), ("src", src)):
        if not isinstance(value, torch.Tensor):
            raise Error("dynamic_update must take a torch.tensor %s. %s is not supported." % (name, type(value)))
    if input.dim() != src.dim():
        raise Error("input and src tensors must have same dimensionality. (%d) vs (%d)" % (input.dim(), src.dim()))
    if input.dtype != src.dtype:
        raise Error("input and src tensor must have same dtype. (%s vs %s)" % (_on_device(input), _on_device(src)))
    updated = input.clone()
    updated.narrow(dim, _begin_of_slice(start, size, input.shape[dim]), size).copy_(src)
    return updated


def _begin_of_slice(start: Union[int, torch.Tensor], size: int, length: int) -> int:
    """Return where the slice begins. While it is compiled, `start` is an example, which may lie outside."""
    if size == 0:
        raise Error("The start and end of a slice must be different.")
    if size < 0:
        raise Error("Taking a slice of a tensor with the end less than the start is not supported.")
    return max(0, min(int(start), length - size)) if is_compiling() else int(start)


def _on_device(tensor: torch.Tensor) -> torch.dtype:
    return torch.int32 if tensor.dtype is torch.int64 else tensor.dtype


def serializedMatMul(
    lhs: torch.Tensor, rhs: torch.Tensor, mode: Any, factor: object = 0, keep_precision: object = False
) -> Any:
    """Return the matrix product: in parts only to save an IPU's memory."""
    assert isinstance(keep_precision, bool) and isinstance(factor, int)  # noqa: S101, PT018 - poptorch's own
    assert isinstance(mode, MatMulSerializationMode)  # noqa: S101 - as above
    split = {"input_channels": lhs.shape[-2], "reducing_dim": lhs.shape[-1], "output_channels": rhs.shape[-1]}
    if factor and mode.value in split and split[mode.value] % factor:
        raise Error("serializedMatMul: %d does not divide by the factor %d" % (split[mode.value], factor))
    return torch.matmul(lhs, rhs)


def fps(src: torch.Tensor, ptr: List[int], ratio: float = 0.5, random_start: bool = False) -> Any:
    """Return the indices of points, sample by sample, each the farthest from those that were chosen before."""
    chosen: List[int] = []
    for begin, end in zip(ptr[:-1], ptr[1:]):
        points = src[begin:end].reshape(end - begin, -1).float()
        picked = [int(torch.randint(end - begin, ())) if random_start else 0]
        distance = (points - points[picked[0]]).pow(2).sum(1)
        while len(picked) < -(-(end - begin) * ratio // 1):
            picked.append(int(distance.argmax()))
            distance = torch.minimum(distance, (points - points[picked[-1]]).pow(2).sum(1))
        chosen += [begin + index for index in picked]
    return torch.tensor(chosen)


def nearest(
    x: torch.Tensor, y: torch.Tensor, batch_x: Optional[torch.Tensor] = None, batch_y: Optional[torch.Tensor] = None
) -> Any:
    """Return for each row of `x` the number of the nearest row of `y`, of the same sample where samples are given."""
    distance = torch.cdist(x.reshape(len(x), -1).float(), y.reshape(len(y), -1).float())
    if batch_x is not None and batch_y is not None:
        other = torch.as_tensor(batch_x).view(-1, 1) != torch.as_tensor(batch_y).view(1, -1)
        distance = distance.masked_fill(other, float("inf"))
    return distance.argmin(1)


def custom_op(
    inputs: List[torch.Tensor],  # noqa: ARG001 - poptorch's form
    name: str,
    domain: str,
    domain_version: int,  # noqa: ARG001
    example_outputs: object,  # noqa: ARG001
    attributes: Optional[Dict[str, object]] = None,  # noqa: ARG001
) -> NoReturn:
    """Raise Error: it runs C++ that was compiled against Poplar."""
    raise Error(
        "custom_op %s.%s runs C++ that is compiled for the IPU, which a stand-in can't. Where "
        "poptorch.isRunningOnIpu() is true, compute the same by torch's operations to rehearse it" % (domain, name)
    )


class CPU:
    """A layer that runs on the host, inside a model on the IPU; no gradient passes it."""

    def __init__(self, layer_to_call: Callable[..., object], ID: str) -> None:
        self._layer_to_call, self._ID = layer_to_call, ID

    def __call__(self, *input: torch.Tensor, **kwargs: Any) -> Any:
        """Return what the layer makes of its inputs."""
        with torch.no_grad():
            return self._layer_to_call(*input, **kwargs)


def _recorded(name: str, kind: Any) -> Any:
    """Return a method that records a setting of convolutions, one for all or one each, of this kind."""
    return lambda convolutions, value: convolutions._set(name, value, kind)


class MultiConv:
    """Convolutions inside this context are one to an IPU. Its settings are recorded."""

    def __init__(self) -> None:
        self._settings: Dict[str, Any] = {}

    availableMemoryProportions = _recorded("available memory proportion", float)
    perConvReservedTiles = _recorded("reserved tiles", int)
    cycleBackOff = _recorded("cycle back off", float)

    def planType(self, value: MultiConvPlanType) -> MultiConv:
        """Record whether convolutions run at the same time."""
        assert isinstance(value, MultiConvPlanType), "Invalid plan type!"  # noqa: S101 - poptorch's own
        return self._set("plan type", value, MultiConvPlanType)

    def partialsTypes(self, value: object) -> MultiConv:
        """Record the types of partial results."""
        types = value if isinstance(value, (list, tuple)) else (value,)
        if not all(one in (torch.float, torch.half) for one in types):
            raise ValueError("Invalid partials types. Expecting torch.float or torch.half")
        return self._set("partials types", types, torch.dtype)

    def enableConvDithering(self, value: object) -> MultiConv:
        """Record it, one for all or one each."""
        if not all(isinstance(one, bool) for one in (value if isinstance(value, (list, tuple)) else (value,))):
            raise ValueError("value must be bool or list of bools")
        return self._set("dithering", value, bool)

    def _set(self, name: str, value: object, kind: Any) -> MultiConv:
        several = value if isinstance(value, (list, tuple)) and value else (value,)
        assert all(isinstance(one, kind) for one in several), "Invalid %s!" % name  # noqa: S101 - poptorch's own
        self._settings[name] = value
        return self

    def __enter__(self) -> MultiConv:
        return self

    def __exit__(self, *_error: object) -> None:
        """End the context."""


class Attribute:
    """Attributes of the operations within: a stand-in has nobody to read them."""

    def __init__(self, **attributes: object) -> None:
        self._attributes = attributes

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, *_error: object) -> None:
        """End."""


class NameScope:
    """Operations inside have names that begin with `name`: a compiler's names, which nothing here shows."""

    def __init__(self, name: str) -> None:
        assert isinstance(name, str), "Parameter to NameScope must be a string"  # noqa: S101 - poptorch's own
        self.name = name

    def __enter__(self) -> NameScope:
        return self

    def __exit__(self, *_error: object) -> None:
        """End the scope."""
