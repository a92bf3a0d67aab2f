"""What is logged of an optimizer: its settings as the device gets them, and attributes that it takes no notice of."""

from __future__ import annotations

import inspect
from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

import torch
from trainjob_standins.announce import log

_ATTRIBUTES = {
    "accum_type",
    "bias_correction",
    "defaults",
    "first_order_momentum_accum_type",
    "loss_scaling",
    "max_grad_norm",
    "max_weight_norm",
    "param_groups",
    "second_order_momentum_accum_type",
    "state",
    "use_combined_accum",
    "use_tf_variant",
    "variable_attrs",
    "velocity_scaling",
}
_NOT_LOGGED = (
    "params",
    "amsgrad",
    "foreach",
    "maximize",
    "capturable",
    "differentiable",
    "fused",
    "decoupled_weight_decay",
)


def constant_names(optimizer: torch.optim.Optimizer) -> List[str]:
    """Return what is built into the program: of poptorch's optimizers what was not given, of torch's the defaults."""
    group, chosen = optimizer.param_groups[0], getattr(optimizer, "variable_attrs", None)
    if chosen is not None:
        return [name for name in (*group, "loss_scaling") if name != "params" and chosen.isConstant(name)]
    usual = inspect.signature(type(optimizer).__init__).parameters
    return [name for name in group if name in usual and name != "lr" and group[name] == usual[name].default]


def described(optimizer: Any, kind: str) -> List[str]:
    """Return a line about what is common to all weights, and one for each group."""
    constants = {*constant_names(optimizer), *["loss_scaling"] * (not hasattr(optimizer, "variable_attrs"))}
    scale = float(getattr(optimizer, "loss_scaling", 1.0))
    shared: List[Tuple[str, str]] = [("lossScaling", _number(scale, "loss_scaling" in constants))]
    for name in ("accum_type", "first_order_momentum_accum_type", "second_order_momentum_accum_type"):
        dtype = str(getattr(optimizer, name, torch.float32)).rpartition(".")[2]
        shared.append((_camel(name), dtype))
    defaults = dict(optimizer.defaults)
    is_combined = bool(getattr(optimizer, "use_combined_accum", False))
    if kind == "SGD":
        defaults = {"velocity_scaling": float(optimizer.velocity_scaling) if is_combined else scale, **defaults}
    lines = ["graph optimizer with %s, %s" % (kind, _logged([*_settings(defaults, constants, "default_"), *shared]))]
    for number, group in enumerate(optimizer.param_groups):
        stated = {name: value for name, value in group.items() if name in defaults}
        own = {**defaults, **stated, **({"velocity_scaling": scale} if kind == "SGD" and not is_combined else {})}
        lines.append("group %d optimizer with %s, %s" % (number, kind, _logged(_settings(own, constants, ""))))
    return lines


class Unexpected:
    """The attributes of an optimizer, and of its groups, that the device takes no notice of: each is warned of once.

    Those that are there when the model is compiled are no surprise.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._logged: Set[Tuple[str, str]] = set(_unexpected(optimizer))

    def warn(self, optimizer: torch.optim.Optimizer) -> None:
        """Log a warning for each kind that has new ones."""
        new: Dict[str, List[str]] = {}
        for what, name in _unexpected(optimizer):
            if (what, name) not in self._logged:
                self._logged.add((what, name))
                new.setdefault(what, []).append(name)
        for what, names in new.items():
            log(
                "WARN",
                "Ignoring unexpected %s attributes in %s optimizer: %s" % (what, type(optimizer).__name__, names),
            )


def _unexpected(optimizer: torch.optim.Optimizer) -> Iterator[Tuple[str, str]]:
    for name in vars(optimizer):
        if name not in _ATTRIBUTES and not name.startswith("_"):
            yield "optimizer", name
    is_combined = bool(getattr(optimizer, "use_combined_accum", False))
    known = {"params", *optimizer.defaults, *["velocity_scaling"] * is_combined}
    for number, group in enumerate(optimizer.param_groups):
        for name in group:
            if name not in known:
                yield "group %d" % number, name


def _settings(values: Dict[str, Any], constants: Set[str], prefix: str) -> Iterator[Tuple[str, str]]:
    for name, value in values.items():
        full_name = "learning_rate" if name == "lr" else name
        pair = {"beta1": value[0], "beta2": value[1]} if name == "betas" else {full_name: value}
        for full, number in pair.items():
            if name not in _NOT_LOGGED and isinstance(number, (int, float)):
                yield _camel(prefix + full), _number(number, name in constants)


def _number(value: float, is_constant: bool) -> str:
    return "%g%s" % (value, " (const)" if is_constant else "")


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _logged(pairs: Iterable[Tuple[str, str]]) -> str:
    return ", ".join("%s=%s" % pair for pair in pairs)
