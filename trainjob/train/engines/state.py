"""Model and optimizer state as plain tensors by name, and back."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Set

import torch

from trainjob.contract.errors import UserError

# Adam counts its steps in a tensor since torch 1.12, in a plain number before.
_STEPS_ARE_TENSORS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (1, 12)


def model_tensors(model: torch.nn.Module) -> Dict[str, Any]:
    """Return weights and buffers by name, sharing their memory."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> Dict[str, Any]:
    """Return the optimizer's state as "parameter:what" → tensor."""
    found: Dict[str, Any] = {}
    for name, parameter in model.named_parameters():
        for what, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                is_tensor = isinstance(value, torch.Tensor)
                found["%s:%s" % (name, what)] = value if is_tensor else torch.tensor(float(value))
    return found


def load_optimizer(optimizer: torch.optim.Optimizer, model: torch.nn.Module, tensors: Dict[str, Any]) -> None:
    """Give the optimizer the state in `tensors`, as `optimizer_tensors` names it."""
    parameters = dict(model.named_parameters())
    fused = bool(optimizer.param_groups[0].get("fused"))
    optimizer.state.clear()
    for key, value in tensors.items():
        name, _, what = key.rpartition(":")
        parameter = parameters[name]
        optimizer.state.setdefault(parameter, {})[what] = _taken_up(what, value, parameter, fused)


def _taken_up(what: str, value: Any, parameter: Any, fused: bool) -> Any:
    if what == "step" and not fused:  # a fused optimizer keeps it beside the parameter
        return value.clone() if _STEPS_ARE_TENSORS else int(value.item())
    return value.to(parameter.device, copy=True)


def load_model(model: torch.nn.Module, tensors: Dict[str, Any]) -> None:
    """Give the model the weights and buffers in `tensors`. Raises UserError where names or shapes differ."""
    told = differences(model_tensors(model), tensors)
    if told:
        raise UserError(
            "the checkpoint is of another model: %s. Resume with the task and options it was made with" % told
        )
    model.load_state_dict(tensors, strict=False)  # the names were compared above


def differences(own: Dict[str, Any], given: Dict[str, Any]) -> str:
    """Return in which names and shapes `given` is not a model's `own` tensors, as clauses; empty where it is."""
    return "; ".join(filter(None, [*_other_names(set(own), set(given)), _other_shapes(own, given)]))


def _other_names(own: Set[str], given: Set[str]) -> Iterator[str]:
    for what, names in (("it lacks", own - given), ("the model does not have", given - own)):
        if names:
            yield "%s %s" % (what, _some(sorted(names)))


def _other_shapes(own: Dict[str, Any], given: Dict[str, Any]) -> str:
    told = [
        "%s is %s there and %s here" % (name, tuple(given[name].shape), tuple(own[name].shape))
        for name in sorted(set(own) & set(given))
        if given[name].shape != own[name].shape
    ]
    return _some(told) if told else ""


def _some(names: List[str]) -> str:
    return ", ".join(names[:8]) + (" and %d more" % (len(names) - 8) if len(names) > 8 else "")
