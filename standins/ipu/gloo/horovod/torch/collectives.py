"""The collectives. All processes call the same ones in the same order; names are taken and not needed."""

from __future__ import annotations

import io
import pickle
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

import torch

from horovod.torch.world import world


class Op(NamedTuple):
    """The operation that makes one tensor of those of several processes."""

    name: str


Average, Sum, Adasum = Op("Average"), Op("Sum"), Op("Adasum")
Min, Max, Product = Op("Min"), Op("Max"), Op("Product")
_GLOO = {Average: "SUM", Sum: "SUM", Min: "MIN", Max: "MAX", Product: "PRODUCT"}
global_process_set: Any = None


class Compression:
    """Horovod's ways to send less: here everything goes as it is."""

    none: Any = None
    fp16: Any = None


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: object = Compression.none,  # noqa: ARG001 - everything goes as it is
    op: Optional[Op] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = global_process_set,  # noqa: ARG001 - all processes are the only set
) -> Any:
    """Return the mean over all processes, or what `op` says."""
    return allreduce_(tensor.clone(), average, name, op, prescale_factor, postscale_factor)


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,  # noqa: ARG001 - Horovod's form
    op: Optional[Op] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = global_process_set,  # noqa: ARG001
) -> Any:
    """Put the mean over all processes, or what `op` says, into `tensor`, and return it. Raises NotImplementedError."""
    chosen = _chosen(average, op)
    with torch.no_grad():
        # gloo adds float16 in float16: 32 bits on the way, as for means that are shown.
        half = tensor.dtype in (torch.float16, torch.bfloat16)
        values = (tensor.to(torch.float32) if half else tensor.contiguous().clone()) * prescale_factor
        values = values.to(torch.float32 if half else tensor.dtype)
        world().group.reduce(values, _GLOO[chosen])
        if chosen is Average:
            values = values / world().size if tensor.is_floating_point() else values // world().size
        tensor.copy_(values * postscale_factor)
    return tensor


def grouped_allreduce(
    tensors: Iterable[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: object = Compression.none,  # noqa: ARG001
    op: Optional[Op] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = global_process_set,  # noqa: ARG001
) -> List[Any]:
    """Return a list: `allreduce` of each tensor."""
    scales = (prescale_factor, postscale_factor)
    return [allreduce_(tensor.clone(), average, name, op, *scales) for tensor in tensors]


def grouped_allreduce_(tensors: Iterable[torch.Tensor], average: Optional[bool] = None, **more: Any) -> List[Any]:
    """Return the tensors, each after `allreduce_`."""
    return [allreduce_(tensor, average, **more) for tensor in tensors]


def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: object = None) -> Any:
    """Return the tensor that process `root_rank` has."""
    return broadcast_(tensor.clone(), root_rank, name, process_set)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: object = None) -> Any:  # noqa: ARG001
    """Give `tensor` the values that it has on process `root_rank`, and return it."""
    with torch.no_grad():
        values = tensor.contiguous().clone()
        world().group.broadcast(values, root_rank)
        tensor.copy_(values)
    return tensor


def broadcast_parameters(params: Any, root_rank: int, process_set: object = None) -> None:
    """Give a model's state_dict, or named parameters, the values that they have on process `root_rank`."""
    named: Iterable[Tuple[str, Any]] = params.items() if isinstance(params, dict) else params
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        if isinstance(tensor, torch.Tensor):
            broadcast_(tensor, root_rank, name, process_set)


def broadcast_object(
    obj: object = None,
    root_rank: int = 0,
    name: Optional[str] = None,  # noqa: ARG001
    process_set: object = None,  # noqa: ARG001
) -> Any:
    """Return the object that process `root_rank` has."""
    mine = _pickled(obj) if world().rank == root_rank else torch.empty(0, dtype=torch.uint8)
    length = broadcast(torch.tensor([len(mine)]), root_rank)
    received = mine if world().rank == root_rank else torch.empty(int(length.item()), dtype=torch.uint8)
    return _unpickled(broadcast(received, root_rank))


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: object = None,  # noqa: ARG001
    process_set: object = None,  # noqa: ARG001
) -> None:
    """Give an optimizer the state that it has on process `root_rank`."""
    state: Dict[str, Any] = broadcast_object(optimizer.state_dict(), root_rank)
    if world().rank != root_rank:
        optimizer.load_state_dict(state)


def allgather(tensor: torch.Tensor, name: Optional[str] = None, process_set: object = None) -> Any:  # noqa: ARG001 - as above
    """Return the tensors of all processes joined along the first dimension, which may differ in length."""
    tensor = tensor.contiguous()
    lengths = [int(found.item()) for found in world().group.gather(torch.tensor([tensor.shape[0]]))]
    padded = tensor.new_zeros((max(lengths), *tensor.shape[1:]))
    padded[: tensor.shape[0]] = tensor
    return torch.cat([part[:length] for part, length in zip(world().group.gather(padded), lengths)])


def allgather_object(obj: object, name: Optional[str] = None, process_set: object = None) -> List[Any]:  # noqa: ARG001
    """Return the objects of all processes, in order."""
    mine = _pickled(obj)
    lengths = allgather(torch.tensor([len(mine)])).tolist()
    return [_unpickled(part) for part in allgather(mine).split(lengths)]


def barrier(process_set: object = None) -> None:  # noqa: ARG001
    """Wait until all processes are here."""
    allreduce_(torch.zeros(1), op=Sum)


def synchronize(handle: object) -> Any:
    """Return what an asynchronous collective gave: each is over when it returns its handle."""
    return handle


def poll(handle: object) -> bool:  # noqa: ARG001 - Horovod's form
    """Return True."""
    return True


# Done at once, in the order of the calls, which is the same on all processes.
allreduce_async, allreduce_async_ = allreduce, allreduce_
grouped_allreduce_async, grouped_allreduce_async_ = grouped_allreduce, grouped_allreduce_
broadcast_async, broadcast_async_, allgather_async = broadcast, broadcast_, allgather


def _chosen(average: Optional[bool], op: Optional[Op]) -> Op:
    if average is not None and op is not None:
        raise ValueError("give average= or op=, and not both")
    chosen = op if op is not None else (Sum if average is False else Average)
    if chosen not in _GLOO:
        raise NotImplementedError("the stand-in for Horovod has no %s" % chosen.name)
    return chosen


def _pickled(value: object) -> Any:
    written = io.BytesIO()
    pickle.dump(value, written)
    return torch.tensor(list(written.getvalue()), dtype=torch.uint8)


def _unpickled(data: torch.Tensor) -> Any:
    return pickle.loads(bytes(data.tolist()))  # noqa: S301 - what another process of this very run has sent
