"""Tensors of which each instance holds some rows: torch's DTensor, as engine fsdp uses it. Other tensors are whole."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Sequence

import torch


class Rows(NamedTuple):
    """The rows of a tensor, along its first dimension, that this instance holds."""

    start: int
    end: int


def is_sharded(tensor: Any) -> bool:
    """Return whether this instance may hold only some rows of `tensor`."""
    return any(placement.is_shard() for placement in getattr(tensor, "placements", ()))


def whole(tensor: Any) -> torch.Tensor:
    """Return all of `tensor`. If it is sharded, all instances must call this together."""
    full: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full


def local(tensor: Any) -> torch.Tensor:
    """Return what this instance holds of `tensor`, sharing its memory."""
    held: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return held


def norms(held: Sequence[torch.Tensor], like: Any) -> List[torch.Tensor]:
    """Return the norm of each tensor of which `held` has this instance's rows, sharded as the tensor `like`.

    If they are sharded, all instances must call this together: it is one sum over those that hold the other rows.
    """
    if not is_sharded(like):
        return [one.norm() for one in held]
    mesh = like.device_mesh
    squares = torch.stack([one.norm().square() for one in held]).to(mesh.device_type)
    torch.distributed.all_reduce(squares, group=mesh.get_group(mesh.ndim - 1))
    return list(squares.sqrt().to(held[0].device).unbind())


def rows_of(tensor: Any) -> Rows:
    """Return the rows of a sharded tensor that this instance holds: the last instances may have fewer, or none."""
    mesh, rows = tensor.device_mesh, tensor.shape[0]
    each = -(-rows // mesh.size(mesh.ndim - 1))
    start = min(mesh.get_local_rank(mesh.ndim - 1) * each, rows)
    return Rows(start, min(start + each, rows))


def part_of(whole_tensor: Any, like: Any) -> Any:
    """Return a copy of a tensor, which may be stored, that is sharded as the tensor `like` of the same shape."""
    from torch.distributed.tensor import DTensor

    rows = rows_of(like)
    held = whole_tensor[rows.start : rows.end].to(local(like).device, copy=True)
    return DTensor.from_local(
        held, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
