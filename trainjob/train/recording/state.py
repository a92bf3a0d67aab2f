"""Model and optimizer state as plain tensors by name, and back.

With engine fsdp, each instance holds some rows of a tensor, as torch's DTensor: it is sharded. Others are whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Sequence

import torch

from trainjob.contract.errors import UserError

if TYPE_CHECKING:
    from typing import TypeGuard

    from torch.distributed.tensor import DTensor

Tensors = Dict[str, torch.Tensor]

# Adam counts its steps in a tensor since torch 1.12, and in a plain number before.
_STEPS_ARE_TENSORS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (1, 12)
# Names of what is no parameter's, and of what is a plain number.
_GROUP, _NUMBER = "group ", "number "
# Values of a parameter group that follow from the job and the task, and are no state.
_SET_BY_US = ("lr", "weight_decay", "adapted")


class State(NamedTuple):
    """All that training changes. The tensors belong to the engine: copy them before the next block."""

    model: Tensors
    optimizer: Tensors  # "parameter:what" → tensor
    precision: Tensors  # the gradient scaler's, if there is one
    average: Tensors = {}  # noqa: RUF012 - never changed; the moving average of the weights, if the run keeps one


class Rows(NamedTuple):
    """The rows of a tensor, along its first dimension, that this instance holds."""

    start: int
    end: int


def is_sharded(tensor: object) -> TypeGuard[DTensor]:
    """Return whether this instance may hold only some rows of `tensor`."""
    return any(placement.is_shard() for placement in getattr(tensor, "placements", ()))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return all of `tensor`. If it is sharded, all instances must call this together."""
    full: torch.Tensor = getattr(tensor, "full_tensor", lambda: tensor)()
    return full


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return what this instance holds of `tensor`, sharing its memory."""
    held: torch.Tensor = getattr(tensor, "to_local", lambda: tensor)()
    return held


def norms(held: Sequence[torch.Tensor], like: torch.Tensor) -> List[torch.Tensor]:
    """Return the norm of each tensor of which `held` has this instance's rows, sharded as the tensor `like`.

    If they are sharded, all instances must call this together: it is one sum over those that hold the other rows.
    """
    if not is_sharded(like):
        return [one.norm() for one in held]
    mesh = like.device_mesh
    squares = torch.stack([one.norm().square() for one in held]).to(mesh.device_type)
    torch.distributed.all_reduce(squares, group=mesh.get_group(mesh.ndim - 1))
    return list(squares.sqrt().to(held[0].device).unbind())


def rows_of(tensor: DTensor) -> Rows:
    """Return the rows of a sharded tensor that this instance holds: the last instances may have fewer, or none."""
    mesh, rows = tensor.device_mesh, tensor.shape[0]
    each = -(-rows // mesh.size(mesh.ndim - 1))
    start = min(mesh.get_local_rank(mesh.ndim - 1) * each, rows)
    return Rows(start, min(start + each, rows))


def part_of(value: torch.Tensor, like: DTensor) -> torch.Tensor:
    """Return a copy of a whole tensor, which may be stored, that is sharded as the tensor `like` of the same shape."""
    from torch.distributed.tensor import DTensor

    rows = rows_of(like)
    held = value[rows.start : rows.end].to(local(like).device, copy=True)
    shape, stride = like.shape, like.stride()
    return DTensor.from_local(held, like.device_mesh, like.placements, run_check=False, shape=shape, stride=stride)


def model_tensors(model: torch.nn.Module) -> Tensors:
    """Return weights and buffers by name, sharing their memory."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> Tensors:
    """Return the optimizer's state as "parameter:what" → tensor, and what its groups have changed.

    Raises UserError for state that is neither a tensor nor a number: a resumed run would not have it.
    """
    tensors: Tensors = {}

    def keep(prefix: str, what: object, value: object) -> None:
        if isinstance(value, torch.Tensor):
            tensors["%s:%s" % (prefix, what)] = value
        elif isinstance(value, (int, float)):
            dtype = torch.int64 if isinstance(value, int) else torch.float64
            tensors["%s:%s%s" % (prefix, _NUMBER, what)] = torch.tensor(value, dtype=dtype)
        else:
            raise UserError(
                "optimizer %s keeps %s as %s, which checkpoints can't hold: they hold tensors and numbers"
                % (type(optimizer).__name__, what, type(value).__name__),
                "Choose another optimizer, or keep it as a tensor",
            )

    for name, parameter in model.named_parameters():
        for what, value in optimizer.state.get(parameter, {}).items():
            if what == "step" and not isinstance(value, torch.Tensor):
                tensors["%s:step" % name] = torch.tensor(float(value))
            elif value is not None:
                keep(name, what, value)
    for number, group in enumerate(optimizer.param_groups):
        for what, value in group.items():
            if what in _SET_BY_US or not isinstance(value, (torch.Tensor, int, float)):
                continue
            default = optimizer.defaults.get(what)
            if default is not value and not (type(default) is type(value) and bool(default == value)):
                keep("%s%d" % (_GROUP, number), what, value)
    return tensors


def load_optimizer(optimizer: torch.optim.Optimizer, model: torch.nn.Module, tensors: Tensors) -> None:
    """Give the optimizer the state in `tensors`, as named by `optimizer_tensors`."""
    parameters = dict(model.named_parameters())
    fused = bool(optimizer.param_groups[0].get("fused"))
    optimizer.state.clear()
    for key, value in tensors.items():
        name, _, what = key.rpartition(":")
        if name.startswith(_GROUP):
            group = optimizer.param_groups[int(name[len(_GROUP) :])]
            group[what.replace(_NUMBER, "", 1)] = _as_kept(what, value, group["params"][0], fused)
            continue
        parameter = parameters[name]
        state = optimizer.state.setdefault(parameter, {})
        state[what.replace(_NUMBER, "", 1)] = _as_kept(what, value, parameter, fused)


def _as_kept(what: str, value: torch.Tensor, parameter: torch.Tensor, fused: bool) -> Any:
    if what.startswith(_NUMBER):
        return value.item()
    if is_sharded(parameter) and value.shape == parameter.shape:
        return part_of(value, parameter)
    value = value[...]  # of one that is stored in parts, all
    if what == "step" and not fused:  # a fused optimizer keeps it on the parameter's device
        return value.clone() if _STEPS_ARE_TENSORS else int(value.item())
    return value.to(parameter.device, copy=True)


def load_model(model: torch.nn.Module, tensors: Tensors) -> None:
    """Give the model the weights and buffers in `tensors`. Raises UserError if names or shapes differ."""
    mismatch = differences(model_tensors(model), tensors)
    if mismatch:
        raise UserError(
            "the checkpoint belongs to another model: %s" % mismatch,
            "Resume with the task and options that it was made with",
        )
    own = model_tensors(model)
    if not any(map(is_sharded, own.values())):
        model.load_state_dict(tensors, strict=False)  # the names were compared above
        return
    copy_into(own, tensors)


@torch.no_grad()
def copy_into(tensors: Tensors, values: Tensors) -> None:
    """Give the `tensors`, of which each instance may hold some rows, the `values` of the same names.

    Values are whole, which may be stored ones, or sharded as the tensors are.
    """
    for name, tensor in tensors.items():
        value = values[name]
        if is_sharded(tensor) and not is_sharded(value):
            value = part_of(value, tensor)
        local(tensor).copy_(local(value) if is_sharded(value) else value[...])


def differences(own: Tensors, loaded: Tensors) -> str:
    """Return how names and shapes of `loaded` differ from a model's `own` tensors, as clauses; empty if they don't."""

    def some(names: List[str]) -> str:
        return ", ".join(names[:8]) + (" and %d more" % (len(names) - 8) if len(names) > 8 else "")

    clauses = []
    for what, names in (
        ("it lacks", own.keys() - loaded.keys()),
        ("the model does not have", loaded.keys() - own.keys()),
    ):
        if names:
            clauses.append("%s %s" % (what, some(sorted(names))))
    shapes = [
        "%s is %s in the file and %s in the model" % (name, tuple(loaded[name].shape), tuple(own[name].shape))
        for name in sorted(own.keys() & loaded.keys())
        if loaded[name].shape != own[name].shape
    ]
    return "; ".join([*clauses, some(shapes)] if shapes else clauses)
