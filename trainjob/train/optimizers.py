"""Optimizers by name: torch's, LARS and LAMB for large batches, and any class that a job names."""

from __future__ import annotations

import contextlib
import functools
import inspect
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple

import torch

from trainjob.contract.errors import UserError
from trainjob.contract.optimizers import SEVERAL, is_own, optimizer_options
from trainjob.contract.settings import Scalar
from trainjob.records.job import TrainSettings
from trainjob.train.recording.state import is_sharded, local, norms
from trainjob.train.tasks.loading import load_attribute

Group = Dict[str, Any]  # parameters, and options that hold for them
Groups = List[Group]


class _Turn(NamedTuple):
    """A weight with a gradient, as far as this instance holds them."""

    parameter: torch.Tensor  # with the state's key, and how it is sharded
    weight: torch.Tensor
    gradient: torch.Tensor
    group: Group


class _LayerWise(torch.optim.Optimizer):
    """Steps whose length follows the norm of each weight, also where instances hold parts of the weights.

    A group with `adapted` False takes the plain step: norms and biases, where the task exempts them from weight decay.
    """

    def __init__(self, groups: Groups, **defaults: Any) -> None:
        super().__init__(groups, dict(defaults, adapted=True))

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override] # noqa: ARG002 - the engines pass none
        """Update the weights with their gradients."""
        turns = [
            _Turn(parameter, local(parameter), local(parameter.grad), group)
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        # Norms of parts take a sum over instances, made once for all. Otherwise one weight's step is held at a time.
        shared = any(is_sharded(turn.parameter) for turn in turns)
        for some in [turns] if shared else [[turn] for turn in turns]:
            steps = [(turn, *self._step(turn)) for turn in some]
            adapted = [row for row in steps if row[0].group["adapted"]]
            if adapted:
                pairs = [(turn.weight, compared) for turn, _, compared in adapted]
                lengths = norms([tensor for pair in pairs for tensor in pair], adapted[0][0].parameter)
                for (turn, step, _), length, compared in zip(adapted, lengths[::2], lengths[1::2]):
                    step.mul_(self._factor(length, compared, turn.group))
            for turn, step, _ in steps:
                self._move(turn, step)

    def _step(self, turn: _Turn) -> Tuple[torch.Tensor, torch.Tensor]:
        """Return the step before its length is adapted, and what the weight's norm is compared with the norm of."""
        raise NotImplementedError

    def _factor(self, length: torch.Tensor, compared: torch.Tensor, group: Group) -> torch.Tensor:
        """Return the factor of the step, given the norm of the weight and that of what it is compared with."""
        raise NotImplementedError

    def _move(self, turn: _Turn, step: torch.Tensor) -> None:
        """Update the weight with its step."""
        raise NotImplementedError


def _quotient(numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
    """Return numerator ÷ denominator, and 1 where either is 0, as a tensor: a GPU need not be waited for."""
    usable = (numerator > 0) & (denominator > 0)
    return torch.where(usable, numerator / denominator, torch.ones_like(numerator))


class Lars(_LayerWise):
    """LARS (You, Gitman and Ginsburg, 2017): v ← m·v + lr·η·‖w‖ ÷ (‖g‖ + β·‖w‖) · (g + β·w); w ← w − v."""

    def _step(self, turn: _Turn) -> Tuple[torch.Tensor, torch.Tensor]:
        decayed = turn.gradient.add(turn.weight, alpha=turn.group["weight_decay"])
        return decayed.mul_(turn.group["lr"]), turn.gradient

    def _factor(self, length: torch.Tensor, compared: torch.Tensor, group: Group) -> torch.Tensor:
        return _quotient(group["trust"] * length, compared + group["weight_decay"] * length)

    def _move(self, turn: _Turn, step: torch.Tensor) -> None:
        state = self.state[turn.parameter]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(turn.parameter)
        turn.weight.sub_(local(state["velocity"]).mul_(turn.group["momentum"]).add_(step))


class Lamb(_LayerWise):
    """LAMB (You et al., 2020, algorithm 2): Adam's step plus weight decay, scaled to the norm of the weight."""

    def _step(self, turn: _Turn) -> Tuple[torch.Tensor, torch.Tensor]:
        state, gradient, group = self.state[turn.parameter], turn.gradient, turn.group
        if not state:
            first = {name: torch.zeros_like(turn.parameter) for name in ("mean", "square")}
            state.update(step=torch.zeros((), device="cpu"), **first)
        state["step"] += 1
        steps, (beta1, beta2) = int(state["step"]), group["betas"]
        mean = local(state["mean"]).mul_(beta1).add_(gradient, alpha=1 - beta1) / (1 - beta1**steps)
        square = local(state["square"]).mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2) / (1 - beta2**steps)
        step: torch.Tensor = mean.div_(square.sqrt_().add_(group["eps"]))
        step.add_(turn.weight, alpha=group["weight_decay"])
        return step, step

    def _factor(self, length: torch.Tensor, compared: torch.Tensor, group: Group) -> torch.Tensor:  # noqa: ARG002
        return _quotient(length, compared)

    def _move(self, turn: _Turn, step: torch.Tensor) -> None:
        turn.weight.sub_(step, alpha=turn.group["lr"])


def with_betas(options: Mapping[str, Scalar]) -> Dict[str, object]:
    """Return options with beta1 and beta2, where there are any, as the pair that torch's constructors take."""
    others: Dict[str, object] = {name: value for name, value in options.items() if name not in ("beta1", "beta2")}
    return {**others, "betas": (options["beta1"], options["beta2"])} if "beta1" in options else others


# A new optimizer is a row here and one in contract.optimizers, which has its options.
OPTIMIZERS: Dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adamw": torch.optim.AdamW,
    "lamb": Lamb,
    "lars": Lars,
}
_WITH_MOMENTUM = ("sgd", "lars")
_LAYER_WISE = ("lamb", "lars")
_IMPLEMENTATIONS: Dict[str, Dict[str, bool]] = {
    "fused": {"fused": True},
    "foreach": {"foreach": True},
    "for-loop": {"foreach": False},
}


def build(groups: Groups, settings: TrainSettings, sparse: bool = False, fuse: bool = True) -> torch.optim.Optimizer:
    """Return the optimizer that the settings name; `sparse` says that some gradients are. Raises UserError.

    Unless the settings choose, it is fused if `fuse` and if this torch can do that: one call for all parameters takes a
    quarter to a half of the time.
    """
    name = settings.optimizer
    options = optimizer_options(name, settings.optimizer_options, settings.momentum)
    if is_own(name):
        return _of_the_user(groups, settings)
    if sparse and name in _LAYER_WISE:
        raise UserError(
            "optimizer %s takes dense gradients, and this model has sparse ones" % name,
            "give nn.Embedding sparse=False, or choose another optimizer",
        )
    if name in _LAYER_WISE:
        for group in groups:
            group["adapted"] = "weight_decay" not in group
    values = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay, **with_betas(options)}
    if name in _WITH_MOMENTUM:
        values["momentum"] = settings.momentum
    make = functools.partial(OPTIMIZERS[name], groups, **values)
    if settings.optimizer_implementation != "auto":
        return _implemented(make, settings, sparse)
    # torch's fused sgd fails where a parameter gets its first gradient later than others.
    starts_late = settings.allow_unused_parameters and name == "sgd"
    if fuse and not sparse and not starts_late and name in SEVERAL:
        # This torch may have no fused optimizer, or not for this device or these types.
        with contextlib.suppress(TypeError, RuntimeError):
            return make(fused=True)
    return make()


def _implemented(
    make: Callable[..., torch.optim.Optimizer], settings: TrainSettings, sparse: bool
) -> torch.optim.Optimizer:
    """Return the optimizer in the implementation that the settings choose. Raises UserError."""
    name = settings.optimizer_implementation
    reason = "some gradients of this model are sparse" if sparse and name != "for-loop" else ""
    if not reason:
        try:
            return make(**_IMPLEMENTATIONS[name])
        except (TypeError, RuntimeError) as error:
            if name == "for-loop":  # torch < 1.12 has nothing else, and no word for it
                return make()
            reason = str(error)
    raise UserError(
        "torch %s can't make %s steps in its %s implementation here: %s"
        % (torch.__version__, settings.optimizer, name, reason),
        "Leave out --optimizer-implementation",
    )


def parameter_groups(model: torch.nn.Module, task: object) -> Groups:
    """Return the parameters in one group, or with norms and biases in a second one without weight decay.

    Norms and biases are parameters of one dimension; a task has them exempted by `decays_norms_and_biases = False`.
    """
    parameters = list(model.parameters())
    if getattr(task, "decays_norms_and_biases", True):
        return [{"params": parameters}]
    vectors = [weight for weight in parameters if weight.dim() < 2]
    others = [weight for weight in parameters if weight.dim() >= 2]
    return [group for group in ({"params": others}, {"params": vectors, "weight_decay": 0.0}) if group["params"]]


def _of_the_user(groups: Groups, settings: TrainSettings) -> torch.optim.Optimizer:
    """Return an optimizer of the class that the settings name, given learning rate, weight decay and its options."""
    name = settings.optimizer
    make = load_attribute(name, Path.cwd(), "optimizer")
    if not callable(make):
        raise UserError("optimizer %s is not a class but %s" % (name, type(make).__name__), "name a class")
    accepted = inspect.signature(make).parameters
    is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
    values: Dict[str, Any] = {"lr": settings.learning_rate, **settings.optimizer_options}
    if settings.weight_decay or "weight_decay" in accepted:
        values["weight_decay"] = settings.weight_decay
    unknown = [] if is_open else [value for value in values if value not in accepted]
    if unknown:
        raise UserError("optimizer %s takes no %s" % (name, unknown[0]), "it takes %s" % ", ".join(accepted))
    optimizer: Any = make(groups, **values)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UserError(
            "optimizer %s is not a torch.optim.Optimizer but %s" % (name, type(optimizer).__name__),
            "derive it from torch.optim.Optimizer",
        )
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise UserError(
            "optimizer %s calls the model itself, several times in a step (a closure), which no engine does" % name,
            "Choose one whose step needs no closure",
        )
    return optimizer
