"""poptorch.optim: torch's optimizers with the IPU's extra arguments. They hold settings; the device updates weights."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import torch

from poptorch import rules
from poptorch.errors import Error

_Type = Optional[torch.dtype]


def _stated(**values: object) -> Dict[str, Any]:
    """Return the values that are not None: torch's own defaults stand in for the others."""
    return {name: value for name, value in values.items() if value is not None}


_ADAPTIVE = (
    "loss_scaling",
    "accum_type",
    "first_order_momentum_accum_type",
    "second_order_momentum_accum_type",
    "max_grad_norm",
)
_OF_IPU = ("ipu_state", "ipu_param")


class VariableAttributes:
    """The attributes that can change after compiling: those given to the constructor, and lr always."""

    def __init__(self, variable: List[str], allowed: List[str]) -> None:
        self._variable_attributes, self._allowed_attributes = set(variable) | {"lr"}, allowed

    def isConstant(self, attr: str) -> bool:
        """Return whether the attribute stays as it is when the model is compiled."""
        return attr not in self._variable_attributes

    def markAsConstant(self, attr: str) -> None:
        """Have the attribute built into the program."""
        self._known(attr)
        self._variable_attributes.discard(attr)

    def markAsVariable(self, attr: str) -> None:
        """Let the attribute change after compiling."""
        self._known(attr)
        self._variable_attributes.add(attr)

    def _known(self, attr: str) -> None:
        assert attr in self._allowed_attributes, (  # noqa: S101 - poptorch's own kind of refusal
            "Attribute %s is not one of %s" % (attr, ", ".join(self._allowed_attributes))
        )


class Optimizer:
    """The settings that only the IPU has. None stands for the default."""

    loss_scaling: float = 1.0
    accum_type: torch.dtype = torch.float32
    first_order_momentum_accum_type: torch.dtype = torch.float32  # SGD: the velocity's
    second_order_momentum_accum_type: torch.dtype = torch.float32
    max_grad_norm: float = float("inf")
    bias_correction: bool = True
    _loaded: Optional[Dict[str, Any]] = None  # "ipu_state" and "ipu_param" that a model must give its device
    _numbers_count = False  # whether the loaded "ipu_param" is newer than what the optimizer has told a model itself
    _reader: Any = None  # gives those that are on a device

    def _begin(self, base: Any, params: Any, arguments: Dict[str, object], extras: Tuple[str, ...] = _ADAPTIVE) -> None:
        """Begin as torch's `base`, with its own defaults for None; `extras` are the arguments that it doesn't have."""
        apart = {name: arguments.pop(name, None) for name in extras}
        named = [*_stated(**arguments), *_stated(**apart)]
        base.__init__(self, params, **_stated(**arguments))
        self._keep(**apart)
        self.variable_attrs = VariableAttributes(named, [*arguments, *extras])

    def _keep(self, **extras: object) -> None:
        for name, value in _stated(**extras).items():
            if name.endswith("accum_type") and value not in (torch.float16, torch.float32):
                raise AssertionError("%s is torch.float16 or torch.float32, and not %s" % (name, value))
            setattr(self, name, value)

    def has_state(self) -> bool:
        """Return whether there is state of an IPU."""
        return bool(self.state_dict().get("ipu_state"))

    def state_dict(self) -> Dict[str, Any]:
        """Return the state, read from the IPU where a compiled training model has this optimizer.

        "ipu_state" has tensors by name and "ipu_param" the numbers; the rest is what torch's own optimizers have.
        """
        own: Dict[str, Any] = torch.optim.Optimizer.state_dict(self)  # type: ignore[arg-type] # each is one of them
        on_ipu = self._on_ipu()
        own.update(dict.fromkeys(_OF_IPU) if on_ipu is None else {name: dict(on_ipu[name]) for name in _OF_IPU})
        return own

    def _on_ipu(self) -> Optional[Dict[str, Any]]:
        on_ipu = None if self._reader is None else self._reader()
        return self._loaded if on_ipu is None else on_ipu

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take the state that `state_dict` returned; the next training model to have it gives it to its IPUs.

        Raises Error for a state of native PyTorch.
        """
        if "ipu_state" not in state_dict:
            raise Error("Only IPU optimizer states can be loaded onto the IPU. ipu_state is missing in the dictionary")
        own = {name: value for name, value in state_dict.items() if not name.startswith("ipu_")}
        torch.optim.Optimizer.load_state_dict(self, own)  # type: ignore[arg-type]
        # None: it was read before the optimizer had any.
        has_state = state_dict["ipu_state"] is not None
        self._loaded = {name: dict(state_dict[name]) for name in _OF_IPU} if has_state else None
        self._numbers_count = has_state

    def _step_by(self, rule: Any) -> None:
        """Update on the host, as the device would, where torch has no such optimizer."""
        extras = {"bias_correction": self.bias_correction}
        own: Any = self
        with torch.no_grad():
            for group in own.param_groups:
                for weight in group["params"]:
                    if weight.grad is not None:
                        rule(weight, weight.grad, own.state[weight], dict(group, **extras), rules.Types())

    def __getstate__(self) -> Dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name != "_reader"}
        return dict(kept, _loaded=self._on_ipu())


def accumulates_in_half(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether gradients add up in float16; SGD's combined variant takes no notice of accum_type."""
    is_combined = getattr(optimizer, "use_combined_accum", False)
    return not is_combined and getattr(optimizer, "accum_type", None) is torch.float16


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent; the velocity begins as zero."""

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: Optional[float] = None,
        dampening: Optional[float] = None,
        weight_decay: Optional[float] = None,
        nesterov: Optional[bool] = None,
        maximize: Optional[bool] = None,
        foreach: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        velocity_scaling: Optional[float] = None,  # recorded: float32 velocities need none
        use_combined_accum: bool = False,
        accum_type: _Type = None,
        velocity_accum_type: _Type = None,
        max_grad_norm: Optional[float] = None,
    ) -> None:
        given = _stated(momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov)
        variable = ["lr", *given, *_stated(loss_scaling=loss_scaling, velocity_scaling=velocity_scaling)]
        given.update(_stated(maximize=maximize, foreach=foreach, differentiable=differentiable))
        torch.optim.SGD.__init__(self, params, lr, **given)
        self.use_combined_accum = use_combined_accum
        self._keep(
            loss_scaling=loss_scaling,
            accum_type=accum_type,
            first_order_momentum_accum_type=velocity_accum_type,
            max_grad_norm=max_grad_norm,
        )
        self.velocity_scaling = 1.0 if velocity_scaling is None else velocity_scaling
        allowed = ["lr", "momentum", "dampening", "weight_decay", "nesterov", "loss_scaling", "velocity_scaling"]
        self.variable_attrs = VariableAttributes(variable, allowed)


class _Adam(Optimizer):
    _base: Any
    _extras: Tuple[str, ...] = _ADAPTIVE

    def __init__(
        self,
        params: Any,
        lr: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        amsgrad: Optional[bool] = None,
        **more: object,
    ) -> None:
        given = dict(more, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)
        self._begin(self._base, params, given, self._extras)


class Adam(_Adam, torch.optim.Adam):
    """Adam."""

    _base = torch.optim.Adam


class AdamW(_Adam, torch.optim.AdamW):
    """Adam with weight decay apart from the gradient."""

    _base = torch.optim.AdamW
    _extras = (*_ADAPTIVE, "bias_correction")

    def step(self, closure: Any = None) -> Any:
        """Update the weights on the host."""
        if self.bias_correction:
            return super().step(closure)
        loss = None if closure is None else closure()
        self._step_by(rules.adamw)
        return loss


class RMSprop(Optimizer, torch.optim.RMSprop):
    """RMSprop."""

    def __init__(
        self,
        params: Any,
        lr: Optional[float] = None,
        alpha: Optional[float] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        momentum: Optional[float] = None,
        centered: Optional[bool] = None,
        use_tf_variant: bool = False,
        **more: object,
    ) -> None:
        self.use_tf_variant = use_tf_variant
        self._begin(
            torch.optim.RMSprop,
            params,
            dict(more, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered),
        )


class LAMB(Optimizer, torch.optim.Optimizer):
    """Layer-wise adaptive moments: Adam whose step is as long as a share of the weight itself."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        max_weight_norm: Optional[float] = None,
        **more: object,
    ) -> None:
        limit = float("inf") if max_weight_norm is None else max_weight_norm
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "max_weight_norm": limit}
        extras = (*_ADAPTIVE, "bias_correction")
        self._begin(torch.optim.Optimizer, params, dict(more, defaults=settings), extras)

    def step(self, closure: Any = None) -> Any:
        """Update the weights on the host."""
        loss = None if closure is None else closure()
        self._step_by(rules.lamb)
        return loss
