"""The optimizer as the device has it: a snapshot of the host's settings, and state of its own."""

from __future__ import annotations

from typing import Any, Dict, List

import torch

from poptorch.arithmetic import stored
from poptorch.errors import Error
from poptorch.update_rules import RULES, Types


class DeviceOptimizer:
    """Changes the device's weights. What the host's optimizer says is taken over by `take` alone."""

    def __init__(self, optimizer: Any, device_weight: Dict[int, Any]) -> None:
        self._device_weight = device_weight  # by the id of the host's
        self._state: Dict[int, Dict[str, Any]] = {}
        self._kind = ""
        self.take(optimizer)

    def take(self, optimizer: Any) -> None:
        """Take over the settings as they are now. Raises Error for an optimizer that the IPU does not have."""
        kind = next((base.__name__ for base in type(optimizer).__mro__ if base.__name__ in RULES), None)
        if kind is None:
            raise Error("%s is not known on the IPU: known are %s" % (type(optimizer).__name__, ", ".join(RULES)))
        if kind != self._kind:
            self._state = {}
        self._kind = kind
        self._groups = [self._group(group) for group in optimizer.param_groups]
        self.loss_scaling = float(getattr(optimizer, "loss_scaling", 1.0))
        self.accum_type = getattr(optimizer, "accum_type", torch.float32)
        self._types = Types(
            getattr(optimizer, "first_order_momentum_accum_type", torch.float32),
            getattr(optimizer, "second_order_momentum_accum_type", torch.float32),
        )
        self._max_norm = float(getattr(optimizer, "max_grad_norm", float("inf")))
        self._bias_correction = bool(getattr(optimizer, "bias_correction", True))

    def _group(self, group: Dict[str, Any]) -> Dict[str, Any]:
        if group.get("amsgrad"):
            raise Error("amsgrad is not known on the IPU")
        unknown = [weight for weight in group["params"] if id(weight) not in self._device_weight]
        if unknown:
            raise Error("the optimizer has %d parameters that are not the model's" % len(unknown))
        # Numbers only: a scheduler changes the host's group, and the device must not see it before it is told.
        return dict(group, params=[self._device_weight[id(weight)] for weight in group["params"]])

    @property
    def weights(self) -> List[Any]:
        """Return the device's weights that are trained."""
        return [weight for group in self._groups for weight in group["params"] if weight.requires_grad]

    @property
    def accumulators_are_half(self) -> bool:
        """Return whether gradients add up in float16."""
        return bool(self.accum_type is torch.float16)

    def step(self, half: Dict[int, bool]) -> None:
        """Change the weights by their gradients; those in `half` (by id) are rounded to float16 afterwards."""
        with torch.no_grad():
            self._clip()
            for group in self._groups:
                for weight in group["params"]:
                    if weight.grad is not None:
                        self._one(weight, group)
                        if half.get(id(weight)):
                            stored(weight, torch.float16)

    def _one(self, weight: Any, group: Dict[str, Any]) -> None:
        state = self._state.setdefault(id(weight), {})
        gradient = -weight.grad if group.get("maximize") else weight.grad
        RULES[self._kind](weight, gradient, state, group, self._types, self._bias_correction)

    def _clip(self) -> None:
        if self._max_norm != float("inf"):
            torch.nn.utils.clip_grad_norm_(self.weights, self._max_norm)
