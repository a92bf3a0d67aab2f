"""Older ways to several GPUs: DataParallel's copies within one process, and torch.cuda.FloatTensor and its kind."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

_TYPES = {
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "LongTensor": "int64",
    "IntTensor": "int32",
    "ShortTensor": "int16",
    "CharTensor": "int8",
    "ByteTensor": "uint8",
    "BoolTensor": "bool",
}


def put_into_torch(torch: Any) -> None:
    """Give torch what a CPU build lacks of both."""
    copies = Copies(torch)
    for name in ("broadcast", "broadcast_out", "broadcast_coalesced", "scatter", "scatter_out", "gather", "gather_out"):
        setattr(torch._C, "_" + name, getattr(copies, name))
    types = {name: LegacyType(torch, name, getattr(torch, dtype)) for name, dtype in _TYPES.items()}
    for name, kind in types.items():
        setattr(torch.cuda, name, kind)
    _let_tensors_be_of(torch, {"torch.cuda." + name: kind for name, kind in types.items()})


class Copies:
    """The functions that torch.nn.parallel.comm calls."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def _to(self, tensor: Any, device: int) -> Any:
        target = self._torch.device("cpu") if device < 0 else self._torch.device("cuda", device)
        return tensor.to(target, copy=tensor.device != target)

    def broadcast(self, tensor: Any, devices: Sequence[int]) -> Tuple[Any, ...]:
        """Return a copy on each GPU; the first is the tensor itself."""
        return tuple(self._to(tensor, device) for device in devices)

    def broadcast_out(self, tensor: Any, out: Sequence[Any]) -> Tuple[Any, ...]:
        """Copy to tensors that exist."""
        return tuple(one.copy_(tensor) for one in out)

    def broadcast_coalesced(self, tensors: Sequence[Any], devices: Sequence[int], _bytes: int) -> List[List[Any]]:
        """Return copies of all tensors, GPU by GPU."""
        return [[self._to(tensor, device) for tensor in tensors] for device in devices]

    def scatter(
        self, tensor: Any, devices: Sequence[int], sizes: Optional[Sequence[int]], dim: int, _streams: Any
    ) -> Tuple[Any, ...]:
        """Return a part on each GPU."""
        parts = tensor.split(list(sizes), dim) if sizes is not None else tensor.chunk(len(devices), dim)
        return tuple(self._to(part, device) for part, device in zip(parts, devices))

    def scatter_out(self, tensor: Any, out: Sequence[Any], dim: int, _streams: Any) -> Tuple[Any, ...]:
        """Copy parts to tensors that exist."""
        parts = tensor.split([one.size(dim) for one in out], dim)
        return tuple(one.copy_(part) for one, part in zip(out, parts))

    def gather(self, tensors: Sequence[Any], dim: int, device: Optional[int]) -> Any:
        """Return all parts as one tensor, on one GPU or (-1) the CPU."""
        target = self._torch.cuda.current_device() if device is None else device
        return self._torch.cat([self._to(tensor, target) for tensor in tensors], dim)

    def gather_out(self, tensors: Sequence[Any], out: Any, dim: int) -> Any:
        """Copy all parts to a tensor that exists."""
        return out.copy_(self._torch.cat([tensor.to(out.device) for tensor in tensors], dim))


class LegacyType:
    """One of torch.cuda's tensor types: it makes tensors, and tensors are instances of it."""

    is_cuda = True

    def __init__(self, torch: Any, name: str, dtype: Any) -> None:
        self._torch, self.__name__, self.dtype = torch, name, dtype

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        """Return a tensor of the given sizes, or of the given values."""
        torch, options = self._torch, {"dtype": self.dtype, "device": "cuda"}
        if not arguments:
            return torch.empty(0, **options)
        if isinstance(arguments[0], (int, torch.Size)):
            sizes = arguments if isinstance(arguments[0], int) else arguments[0]
            return torch.empty(*sizes, **options)
        return torch.as_tensor(arguments[0], **options)

    def __instancecheck__(self, value: Any) -> bool:
        """Return whether a value is a GPU's tensor of this type."""
        return isinstance(value, self._torch.Tensor) and value.is_cuda and value.dtype == self.dtype

    def __repr__(self) -> str:
        """Return what torch prints of its own types."""
        return "<class 'torch.cuda.%s'>" % self.__name__


def _let_tensors_be_of(torch: Any, types: Dict[str, LegacyType]) -> None:
    tensor_type, set_default = torch.Tensor.type, torch.set_default_tensor_type

    def type_(self: Any, dtype: Any = None, *arguments: Any, **options: Any) -> Any:
        kind = types.get(dtype) if isinstance(dtype, str) else dtype
        if isinstance(kind, LegacyType):
            return self.to(device=self.device if self.is_cuda else "cuda", dtype=kind.dtype)
        return tensor_type(self, *(() if dtype is None else (dtype,)), *arguments, **options)

    def set_default_tensor_type(t: Any, /) -> None:
        kind = types.get(t) if isinstance(t, str) else t
        if not isinstance(kind, LegacyType):
            torch.set_default_device(None)
            set_default(t)
            return
        torch.set_default_dtype(kind.dtype)
        torch.set_default_device("cuda")

    torch.Tensor.type, torch.set_default_tensor_type = type_, set_default_tensor_type
