"""Model and optimizer state as plain tensors by name, and back."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, NamedTuple, Set

import torch

from trainjob.contract.errors import UserError
from trainjob.train.recording.sharded import is_sharded, local, part_of

Tensors = Dict[str, torch.Tensor]

# Adam counts its steps in a tensor since torch 1.12, and in a plain number before.
_STEPS_ARE_TENSORS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (1, 12)


class State(NamedTuple):
    """All that training changes. The tensors belong to the engine: copy them before the next block."""

    model: Tensors
    optimizer: Tensors  # "parameter:what" → tensor
    precision: Tensors  # the gradient scaler's, if there is one
    average: Tensors = {}  # noqa: RUF012 - never changed; the moving average of the weights, if the run keeps one


def model_tensors(model: torch.nn.Module) -> Tensors:
    """Return weights and buffers by name, sharing their memory."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> Tensors:
    """Return the optimizer's state as "parameter:what" → tensor, and what its groups have changed.

    Raises UserError for state that is neither a tensor nor a number: a resumed run would not have it.
    """
    tensors: Tensors = {}
    for name, parameter in model.named_parameters():
        for what, value in optimizer.state.get(parameter, {}).items():
            if what == "step" and not isinstance(value, torch.Tensor):
                tensors["%s:step" % name] = torch.tensor(float(value))
            elif value is not None:
                tensors["%s:%s" % (name, _named(what, value))] = _as_tensor(optimizer, what, value)
    for number, group in enumerate(optimizer.param_groups):
        for what, value in group.items():
            is_value = isinstance(value, (torch.Tensor, int, float))
            if is_value and what not in _SET_BY_US and not _equal(value, optimizer.defaults.get(what)):
                tensors["%s%d:%s" % (_GROUP, number, _named(what, value))] = _as_tensor(optimizer, what, value)
    return tensors


# Names of what is no parameter's, and of what is a plain number.
_GROUP, _NUMBER = "group ", "number "
# Values of a parameter group that follow from the job and the task, and are no state.
_SET_BY_US = ("lr", "weight_decay", "adapted")


def _equal(value: Any, default: Any) -> bool:
    return default is value or (type(default) is type(value) and bool(default == value))


def _named(what: Any, value: Any) -> str:
    return str(what) if isinstance(value, torch.Tensor) else _NUMBER + str(what)


def _as_tensor(optimizer: torch.optim.Optimizer, what: Any, value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, int):
        return torch.tensor(value, dtype=torch.int64)
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    raise UserError(
        "optimizer %s keeps %s as %s, which checkpoints can't hold: they hold tensors and numbers"
        % (type(optimizer).__name__, what, type(value).__name__),
        "Choose another optimizer, or keep it as a tensor",
    )


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
    return "; ".join(filter(None, [*_other_names(set(own), set(loaded)), _other_shapes(own, loaded)]))


def _other_names(own: Set[str], loaded: Set[str]) -> Iterator[str]:
    for what, names in (("it lacks", own - loaded), ("the model does not have", loaded - own)):
        if names:
            yield "%s %s" % (what, _some(sorted(names)))


def _other_shapes(own: Tensors, loaded: Tensors) -> str:
    clauses = [
        "%s is %s in the file and %s in the model" % (name, tuple(loaded[name].shape), tuple(own[name].shape))
        for name in sorted(set(own) & set(loaded))
        if loaded[name].shape != own[name].shape
    ]
    return _some(clauses) if clauses else ""


def _some(names: List[str]) -> str:
    return ", ".join(names[:8]) + (" and %d more" % (len(names) - 8) if len(names) > 8 else "")
