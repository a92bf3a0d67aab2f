"""poptorch.optim: torch's optimizers with the IPU's extra arguments. They hold settings; the device updates weights."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch

_Type = Optional[torch.dtype]


def _given(**values: Any) -> Dict[str, Any]:
    """Return the values that are not None: torch's own defaults stand in for the others."""
    return {name: value for name, value in values.items() if value is not None}


_ADAPTIVE = (
    "loss_scaling",
    "accum_type",
    "first_order_momentum_accum_type",
    "second_order_momentum_accum_type",
    "max_grad_norm",
)


class _Extras:
    """What only the IPU has. None stands for the default."""

    loss_scaling: float = 1.0
    accum_type: torch.dtype = torch.float32
    first_order_momentum_accum_type: torch.dtype = torch.float32  # SGD: the velocity's
    second_order_momentum_accum_type: torch.dtype = torch.float32
    max_grad_norm: float = float("inf")
    bias_correction: bool = True

    def _begin(self, base: Any, params: Any, given: Dict[str, Any], extras: Tuple[str, ...] = _ADAPTIVE) -> None:
        """Begin as torch's `base`, with its own defaults for None; `extras` are the arguments that it doesn't have."""
        apart = {name: given.pop(name, None) for name in extras}
        base.__init__(self, params, **_given(**given))
        self._keep(**apart)

    def _keep(self, **extras: Any) -> None:
        for name, value in _given(**extras).items():
            if name.endswith("accum_type") and value not in (torch.float16, torch.float32):
                raise ValueError("%s is torch.float16 or torch.float32, and not %s" % (name, value))
            setattr(self, name, value)


class SGD(_Extras, torch.optim.SGD):
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
        velocity_scaling: Optional[float] = None,  # noqa: ARG002 - float32 velocities need none
        use_combined_accum: bool = False,
        accum_type: _Type = None,
        velocity_accum_type: _Type = None,
        max_grad_norm: Optional[float] = None,
    ) -> None:
        given = _given(momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov)
        given.update(_given(maximize=maximize, foreach=foreach, differentiable=differentiable))
        torch.optim.SGD.__init__(self, params, lr, **given)
        self.use_combined_accum = use_combined_accum
        self._keep(
            loss_scaling=loss_scaling,
            accum_type=accum_type,
            first_order_momentum_accum_type=velocity_accum_type,
            max_grad_norm=max_grad_norm,
        )


class Adam(_Extras, torch.optim.Adam):
    """Adam."""

    def __init__(
        self,
        params: Any,
        lr: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        amsgrad: Optional[bool] = None,
        **more: Any,
    ) -> None:
        self._begin(
            torch.optim.Adam,
            params,
            dict(more, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad),
        )


class AdamW(_Extras, torch.optim.AdamW):
    """Adam with weight decay apart from the gradient."""

    def __init__(
        self,
        params: Any,
        lr: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        amsgrad: Optional[bool] = None,
        **more: Any,
    ) -> None:
        self._begin(
            torch.optim.AdamW,
            params,
            dict(more, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad),
            (*_ADAPTIVE, "bias_correction"),
        )


class RMSprop(_Extras, torch.optim.RMSprop):
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
        **more: Any,
    ) -> None:
        self._begin(
            torch.optim.RMSprop,
            params,
            dict(more, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered),
        )


class LAMB(_Extras, torch.optim.Optimizer):
    """Layer-wise adaptive moments: Adam whose step is as long as a share of the weight itself."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        max_weight_norm: Optional[float] = None,
        **more: Any,
    ) -> None:
        limit = float("inf") if max_weight_norm is None else max_weight_norm
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "max_weight_norm": limit}
        extras = (*_ADAPTIVE, "bias_correction")
        self._begin(torch.optim.Optimizer, params, dict(more, defaults=settings), extras)

    def step(self, closure: Any = None) -> Any:  # noqa: ARG002 - torch's form
        """Raise: weights are updated by the device."""
        raise RuntimeError("poptorch.optim.LAMB updates weights on the IPU only: hand it to poptorch.trainingModel")
