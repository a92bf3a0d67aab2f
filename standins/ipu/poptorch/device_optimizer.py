"""The optimizer as the device has it: its rules, the host's settings as they were given, and state of its own."""

from __future__ import annotations

import inspect
import math
from typing import Any, Dict, Iterable, List, NamedTuple

import torch

from poptorch.arithmetic import computing_type, stored
from poptorch.errors import Error
from poptorch.optim import accumulates_in_half


class Types(NamedTuple):
    """The types that state is stored in."""

    first: torch.dtype = torch.float32
    second: torch.dtype = torch.float32


def sgd(weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types) -> None:
    """Follow the gradient, with a velocity that begins as zero."""
    gradient = _decayed(weight, gradient, how)
    if how["momentum"]:
        velocity = _of(state, "velocity", weight)
        velocity.mul_(how["momentum"]).add_(gradient, alpha=1 - how["dampening"])
        stored(velocity, types.first)
        gradient = velocity
    weight.add_(gradient, alpha=-how["lr"])


def adam(
    weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types
) -> None:
    """Follow the gradient's running mean, by its running size; weight decay is part of the gradient."""
    _adam(weight, _decayed(weight, gradient, how), state, how, types)


def adamw(
    weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types
) -> None:
    """As Adam, with the weight shrunk apart from it."""
    weight.mul_(1 - how["lr"] * how["weight_decay"])
    _adam(weight, gradient, state, how, types)


def lamb(
    weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types
) -> None:
    """As AdamW, with a step as long as the weight is, by the learning rate."""
    mean, size, first, second = _moments(weight, gradient, state, how, types)
    step = (mean / first).div_((size / second).sqrt_().add_(how["eps"])).add_(weight, alpha=how["weight_decay"])
    length, wanted = step.norm(), weight.norm().clamp(max=how["max_weight_norm"])
    trust = float(wanted / length) if wanted > 0 and length > 0 else 1.0
    weight.add_(step, alpha=-how["lr"] * trust)


def rmsprop(
    weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types
) -> None:
    """Follow the gradient by its running size."""
    gradient = _decayed(weight, gradient, how)
    # TensorFlow begins with ones.
    size = _of(state, "size", weight, 1.0 if how["use_tf_variant"] else 0.0)
    size.mul_(how["alpha"]).addcmul_(gradient, gradient, value=1 - how["alpha"])
    stored(size, types.second)
    spread = size
    if how["centered"]:
        mean = _of(state, "centre", weight)
        stored(mean.mul_(how["alpha"]).add_(gradient, alpha=1 - how["alpha"]), types.first)
        spread = size.addcmul(mean, mean, value=-1)
    # TensorFlow adds epsilon inside the root, and has the learning rate in the velocity.
    is_tf = how["use_tf_variant"]
    step = gradient / ((spread + how["eps"]).sqrt() if is_tf else spread.sqrt().add_(how["eps"]))
    rate = how["lr"]
    if is_tf:
        step, rate = step * how["lr"], 1.0
    if how["momentum"]:
        velocity = _of(state, "velocity", weight)
        step = stored(velocity.mul_(how["momentum"]).add_(step), types.first)
    weight.add_(step, alpha=-rate)


def _adam(
    weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types
) -> None:
    mean, size, first, second = _moments(weight, gradient, state, how, types)
    weight.addcdiv_(mean, (size.sqrt() / math.sqrt(second)).add_(how["eps"]), value=-how["lr"] / first)


def _moments(
    weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types
) -> Any:
    """Return the running mean and size of the gradient, and what each is to be divided by."""
    one, two = how["betas"]
    mean, size = _of(state, "mean", weight), _of(state, "size", weight)
    stored(mean.mul_(one).add_(gradient, alpha=1 - one), types.first)
    stored(size.mul_(two).addcmul_(gradient, gradient, value=1 - two), types.second)
    state["steps"] = state.get("steps", 0) + 1
    if not how["bias_correction"]:
        return mean, size, 1.0, 1.0
    return mean, size, 1 - one ** state["steps"], 1 - two ** state["steps"]


def _decayed(weight: torch.Tensor, gradient: torch.Tensor, how: Dict[str, Any]) -> Any:
    return gradient.add(weight, alpha=how["weight_decay"]) if how["weight_decay"] else gradient


def _of(state: Dict[str, Any], name: str, weight: torch.Tensor, begins_as: float = 0.0) -> Any:
    if name not in state:
        state[name] = torch.full_like(weight, begins_as)
    return state[name]


# By the name of the class, torch's own or poptorch.optim's.
RULES: Dict[str, Any] = {"SGD": sgd, "Adam": adam, "AdamW": adamw, "RMSprop": rmsprop, "LAMB": lamb}


def _constant_names(optimizer: torch.optim.Optimizer) -> List[str]:
    """Return what is built into the program: of poptorch's optimizers what was not given, of torch's the defaults."""
    group, chosen = optimizer.param_groups[0], getattr(optimizer, "variable_attrs", None)
    if chosen is not None:
        return [name for name in (*group, "loss_scaling") if name != "params" and chosen.isConstant(name)]
    usual = inspect.signature(type(optimizer).__init__).parameters
    return [name for name in group if name in usual and name != "lr" and group[name] == usual[name].default]


def _values(optimizer: torch.optim.Optimizer, names: Iterable[str]) -> Dict[str, Any]:
    return {
        name: [group.get(name, getattr(optimizer, name, None)) for group in optimizer.param_groups] for name in names
    }


# State by name, in the form of PopART's names, where the user's model is a part of PopTorch's: Accl1___model.fc.weight.
_NAMES = {"velocity": "Accl", "mean": "Accl1", "size": "Accl2", "centre": "Accl3", "steps": "Step"}
_WHATS = {name: what for what, name in _NAMES.items()}
_SCALE_FACTOR = "lossScaleUpdateFactor"
# PopART's own: the share of large gradients at which the loss's scale is halved, and the highest scale for float16.
_MOST_LARGE, _HIGHEST_SCALE = 1e-7, 2.0**15


class DeviceOptimizer:
    """Changes the device's weights. What the host's optimizer says is taken over by `take` alone."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        weights: Dict[str, torch.Tensor],
        half: Dict[int, bool],
        adapts_scale: bool = False,
    ) -> None:
        self._named, self._half = weights, half
        self._known = {id(weight) for weight in weights.values()}
        self._state: Dict[int, Dict[str, Any]] = {}
        self._kind = ""
        self._constants: Any = None  # by name, as they were when the model was compiled
        self._has_groups = False
        self._adapts_scale, self._scale_factor = adapts_scale, 1.0
        self.take(optimizer)

    def take(self, optimizer: torch.optim.Optimizer) -> None:
        """Take over the settings as they are now. Raises Error for an optimizer that the IPU does not have."""
        kind = next((base.__name__ for base in type(optimizer).__mro__ if base.__name__ in RULES), None)
        if kind is None:
            raise Error("the IPU has no optimizer %s; it has %s" % (type(optimizer).__name__, ", ".join(RULES)))
        if self._kind not in ("", kind):
            raise Error("%s can't replace %s: the compiled model has the optimizer built in" % (kind, self._kind))
        self._kind = kind
        self._refuse_other_constants(optimizer)
        self._groups = [self._group(group) for group in optimizer.param_groups]
        self.loss_scaling = float(getattr(optimizer, "loss_scaling", 1.0))
        self.accumulators_are_half = accumulates_in_half(optimizer)
        kinds = ("first_order_momentum_accum_type", "second_order_momentum_accum_type")
        # SGD's combined variant has one tensor for both, in float32.
        is_combined = getattr(optimizer, "use_combined_accum", False)
        self._types = Types() if is_combined else Types(*[getattr(optimizer, kind, torch.float32) for kind in kinds])
        self._max_norm = float(getattr(optimizer, "max_grad_norm", float("inf")))
        self._extras = {
            "bias_correction": bool(getattr(optimizer, "bias_correction", True)),
            "use_tf_variant": bool(getattr(optimizer, "use_tf_variant", False)),
        }
        self.refuse_norms(of_groups=self._has_groups)

    def refuse_norms(self, *, of_groups: bool) -> None:
        """Raise Error, `of_groups`, for what asks for the norm of a weight: replicas of a group have a part of it."""
        self._has_groups = of_groups
        if of_groups and (self._kind == "LAMB" or self._max_norm != float("inf")):
            what = "LAMB" if self._kind == "LAMB" else "max_grad_norm"
            raise Error("%s with replicaGrouping: the stand-in takes no norms of weights that groups hold apart" % what)

    def _refuse_other_constants(self, optimizer: torch.optim.Optimizer) -> None:
        if self._constants is None:
            self._constants = _values(optimizer, _constant_names(optimizer))
        now = _values(optimizer, self._constants)
        changed = [name for name, value in self._constants.items() if now[name] != value]
        if changed:
            raise Error(
                "%s: constant when the model was compiled, and changed since. Pass it to the constructor, or mark "
                "it with optimizer.variable_attrs.markAsVariable" % ", ".join(changed)
            )

    def _group(self, group: Dict[str, Any]) -> Dict[str, Any]:
        if group.get("amsgrad"):
            raise Error("amsgrad is not known on the IPU")
        if group.get("nesterov"):
            raise ValueError("Nesterov momentum is currently not supported.")
        unknown = [weight for weight in group["params"] if id(weight) not in self._known]
        if unknown:
            raise Error("the optimizer has %d parameters that are not the model's" % len(unknown))
        # Numbers only: a scheduler changes the host's group, and the device must not see it before it is told.
        return dict(group, params=list(group["params"]))

    @property
    def weights(self) -> List[Any]:
        """Return the weights that are trained."""
        return [weight for group in self._groups for weight in group["params"] if weight.requires_grad]

    def step(self) -> None:
        """Change the weights by their gradients; those of float16 are rounded to it afterwards."""
        with torch.no_grad():
            if self._max_norm != float("inf"):
                torch.nn.utils.clip_grad_norm_(self.weights, self._max_norm)
            for group in self._groups:
                for weight in group["params"]:
                    if weight.grad is not None:
                        self._one(weight, group)

    def _one(self, weight: torch.Tensor, group: Dict[str, Any]) -> None:
        state = self._state.setdefault(id(weight), {})
        given: Any = weight.grad
        gradient = -given if group.get("maximize") else given
        RULES[self._kind](weight.data, gradient, state, dict(group, **self._extras), self._types)
        if self._half[id(weight)]:
            stored(weight.data, torch.float16)

    # -- automatic loss scaling ----------------------------------------------------------------

    @property
    def final_loss_scale(self) -> float:
        """Return what the next update multiplies the loss by."""
        return self.loss_scaling * self._scale_factor

    def adapt_scale(self, large: float, count: float) -> None:
        """Halve the scale where too many of the gradients' `count` values are `large`, else double it."""
        self._scale_factor *= 0.5 if large > _MOST_LARGE * count else 2.0
        if any(self._half.values()):
            self._scale_factor = min(self._scale_factor, _HIGHEST_SCALE / self.loss_scaling)

    # -- its state, read and written -----------------------------------------------------------

    def read(self) -> Dict[str, Any]:
        """Return a copy of the state by name, as "Accl1___model.fc.weight"; steps are tensors, too."""
        state: Dict[str, Any] = {}
        groups = {id(weight): group for group in self._groups for weight in group["params"]}
        for name, weight in self._named.items():
            begun = self._begun(weight, groups.get(id(weight)))
            for what, value in {**begun, **self._state.get(id(weight), {})}.items():
                dtype = self._types.second if what == "size" else self._types.first
                is_tensor = isinstance(value, torch.Tensor)
                kept = value.to(dtype, copy=True) if is_tensor and dtype is torch.float16 else value
                key = "%s___model.%s" % (_NAMES[what], name)
                state[key] = kept.clone() if is_tensor else torch.tensor(float(value))
        if self._adapts_scale:
            state[_SCALE_FACTOR] = torch.tensor(self._scale_factor)
        return state

    def _begun(self, weight: torch.Tensor, group: Any) -> Dict[str, Any]:
        """Return the state of a weight that is trained, as it is before the first step."""
        if group is None or not weight.requires_grad:
            return {}
        state: Dict[str, Any] = {}
        if self._kind == "RMSprop":
            _of(state, "size", weight.data, 1.0 if self._extras["use_tf_variant"] else 0.0)
            names = ["centre"] * bool(group["centered"]) + ["velocity"] * bool(group["momentum"])
        elif self._kind == "SGD":
            names = ["velocity"] * bool(group["momentum"])
        else:
            names, state["steps"] = ["mean", "size"], 0
        for name in names:
            _of(state, name, weight.data)
        return state

    def numbers(self) -> Dict[str, Any]:
        """Return the settings by name as tensors: those of each weight as the device combines them."""
        found = {"lossScaling_FLOAT": self.loss_scaling}
        names = {id(weight): name for name, weight in self._named.items()}
        for group in self._groups:
            rate, decay = float(group["lr"]), float(group["weight_decay"])
            if self._kind == "SGD":
                kept = 1 - float(group["dampening"])
                own = {"scaledLearningRate0": rate * kept / self.loss_scaling}
                own["weightDecayScaleFactor0"] = 1 - rate * kept * decay
            else:
                own = {"learningRate": rate, "weightDecay": decay}
            for weight in group["params"]:
                found.update({"%s___specific___model.%s" % (key, names[id(weight)]): own[key] for key in own})
        return {name: torch.tensor(number) for name, number in found.items()}

    def write(self, state: Dict[str, Any]) -> None:
        """Take the state that `read` returned; what it lacks stays. Raises Error if it is of another model."""
        found: Dict[int, Dict[str, Any]] = {}
        for key, value in state.items():
            if self._adapts_scale and key == _SCALE_FACTOR:
                self._scale_factor = float(value)
                continue
            kind, _, name = key.partition("___model.")
            weight = self._named.get(name)
            if weight is None or kind not in _WHATS or value.shape not in (weight.shape, torch.Size([])):
                raise Error("optimizer state %s is not of this model and optimizer" % key)
            what = _WHATS[kind]
            kept = int(value) if what == "steps" else value.detach().to(computing_type(), copy=True)
            found.setdefault(id(weight), {})[what] = kept
        for key_of_weight, values in found.items():
            self._state.setdefault(key_of_weight, {}).update(values)
