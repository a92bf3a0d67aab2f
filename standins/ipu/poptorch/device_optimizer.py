"""The optimizer as the device has it: its rules, the host's settings as they were given, and state of its own."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List

import torch
from trainjob_standins.announce import log

from poptorch.arithmetic import computing_type, stored
from poptorch.errors import Error
from poptorch.optim import accumulates_in_half
from poptorch.optimizer_lines import constant_names, described
from poptorch.rules import RULES, Types, begun


def _values(optimizer: torch.optim.Optimizer, names: Iterable[str]) -> Dict[str, Any]:
    return {
        name: [group.get(name, getattr(optimizer, name, None)) for group in optimizer.param_groups] for name in names
    }


# State by name, in the form of PopART's names: Accl1___fc.weight. Where PopTorch traces, the user's model is a part of
# its own: Accl1___model.fc.weight.
_NAMES = {"velocity": "Accl", "mean": "Accl1", "size": "Accl2", "steps": "Step"}
_NAMES_OF_RMSPROP = {"size": "Accl1", "centre": "Accl2", "velocity": "Accl3"}
_SCALE_FACTOR = "lossScaleUpdateFactor"
_SETTING = "%s___specific___%s"
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
        prefix: str = "",
    ) -> None:
        self._named, self._half = {prefix + name: weight for name, weight in weights.items()}, half
        self._known = {id(weight) for weight in weights.values()}
        self._state: Dict[int, Dict[str, Any]] = {}
        self._kind = ""
        self._constants: Any = None  # by name, as they were when the model was compiled
        self._has_groups = False
        self._adapts_scale, self._scale_factor = adapts_scale, 1.0
        self._own: Dict[int, Dict[str, float]] = {}  # settings of a weight, as its optimizer's loaded state has them
        self._reported: List[str] = []
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
        self._groups, self._own = [self._group(group) for group in optimizer.param_groups], {}
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
            "has_velocity": "momentum" not in self._constants,
        }
        self._tell(optimizer)
        self.refuse_norms(of_groups=self._has_groups)

    def refuse_norms(self, *, of_groups: bool) -> None:
        """Raise Error, `of_groups`, for what asks for the norm of a weight: replicas of a group have a part of it."""
        self._has_groups = of_groups
        if of_groups and (self._kind == "LAMB" or self._max_norm != float("inf")):
            what = "LAMB" if self._kind == "LAMB" else "max_grad_norm"
            raise Error("%s with replicaGrouping: the stand-in takes no norms of weights that groups hold apart" % what)

    def _refuse_other_constants(self, optimizer: torch.optim.Optimizer) -> None:
        if self._constants is None:
            self._constants = _values(optimizer, constant_names(optimizer))
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
        how = dict(group, **self._extras, **self._own.get(id(weight), {}))
        RULES[self._kind](weight.data, gradient, state, how, self._types)
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
        """Return a copy of the state by name, as "Accl1___fc.weight"; steps are tensors, too."""
        state: Dict[str, Any] = {}
        groups = {id(weight): group for group in self._groups for weight in group["params"]}
        for name, weight in self._named.items():
            begun = self._begun(weight, groups.get(id(weight)))
            for what, value in {**begun, **self._state.get(id(weight), {})}.items():
                dtype = self._types.second if what == "size" else self._types.first
                is_tensor = isinstance(value, torch.Tensor)
                kept = value.to(dtype, copy=True) if is_tensor and dtype is torch.float16 else value
                key = "%s___%s" % (self._names[what], name)
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
            begun(state, "size", weight.data, 1.0 if self._extras["use_tf_variant"] else 0.0)
            names = ["centre"] * bool(group["centered"]) + ["velocity"] * bool(group["momentum"])
        elif self._kind == "SGD":
            names = ["velocity"] * bool(group["momentum"] or self._extras["has_velocity"])
        else:
            names, state["steps"] = ["mean", "size"], 0
        for name in names:
            begun(state, name, weight.data)
        return state

    def numbers(self) -> Dict[str, Any]:
        """Return the settings by name as tensors: those of each weight as the device combines them."""
        found = {"lossScaling_FLOAT": self.loss_scaling}
        names = {id(weight): name for name, weight in self._named.items()}
        for group in self._groups:
            for weight in group["params"]:
                how = dict(group, **self._own.get(id(weight), {}))
                own = {key: float(how[name]) for key, name in (("learningRate", "lr"), ("weightDecay", "weight_decay"))}
                if self._kind == "SGD":
                    rate = own["learningRate"] * (1 - float(group["dampening"]))
                    own = {"scaledLearningRate0": rate / self.loss_scaling}
                    own["weightDecayScaleFactor0"] = 1 - rate * float(how["weight_decay"])
                found.update({_SETTING % (key, names[id(weight)]): own[key] for key in own})
        return {name: torch.tensor(number) for name, number in found.items()}

    def write(self, state: Dict[str, Any], numbers: Dict[str, Any]) -> None:
        """Take what `read` and `numbers` returned; what they lack stays. Raises Error if it is of another model."""
        found: Dict[int, Dict[str, Any]] = {}
        whats = {name: what for what, name in self._names.items()}
        for key, value in state.items():
            if self._adapts_scale and key == _SCALE_FACTOR:
                self._scale_factor = float(value)
                continue
            kind, _, name = key.partition("___")
            weight = self._named.get(name)
            if weight is None or kind not in whats or value.shape not in (weight.shape, torch.Size([])):
                raise Error("optimizer state %s is not of this model and optimizer" % key)
            what = whats[kind]
            kept = int(value) if what == "steps" else value.detach().to(computing_type(), copy=True)
            found.setdefault(id(weight), {})[what] = kept
        for key_of_weight, values in found.items():
            self._state.setdefault(key_of_weight, {}).update(values)
        self._write_numbers({name: float(value) for name, value in numbers.items()})

    def _write_numbers(self, numbers: Dict[str, float]) -> None:
        now = {name: float(value) for name, value in self.numbers().items()}
        # What has not changed keeps the number that it was computed from.
        new = {name: value for name, value in numbers.items() if now.get(name) != value}
        self.loss_scaling = new.get("lossScaling_FLOAT", self.loss_scaling)
        names = {id(weight): name for name, weight in self._named.items()}
        for group in self._groups:
            for weight in group["params"]:
                own, name = self._own.setdefault(id(weight), {}), names[id(weight)]
                for key, setting in (("learningRate", "lr"), ("weightDecay", "weight_decay")):
                    if _SETTING % (key, name) in new:
                        own[setting] = new[_SETTING % (key, name)]
                rate, decay = (_SETTING % (key, name) for key in ("scaledLearningRate0", "weightDecayScaleFactor0"))
                if self._kind == "SGD" and (rate in new or decay in new):
                    kept = 1 - float(group["dampening"])
                    if rate in new:
                        own["lr"] = new[rate] * self.loss_scaling / kept
                    scaled = float(own.get("lr", group["lr"])) * kept
                    if scaled:
                        own["weight_decay"] = (1 - numbers.get(decay, now[decay])) / scaled

    @property
    def _names(self) -> Dict[str, str]:
        return _NAMES_OF_RMSPROP if self._kind == "RMSprop" else _NAMES

    # -- what is said of it ---------------------------------------------------------------------

    def _tell(self, optimizer: torch.optim.Optimizer) -> None:
        """Log the settings, where they are others than before."""
        lines = described(optimizer, self._kind)
        if lines != self._reported:
            self._reported = lines
            for line in lines:
                log("DEBUG", "Updating " + line)
