"""An exponential moving average of a model's weights and running statistics."""

from __future__ import annotations

from typing import Dict, List

import torch

from trainjob.train.recording.state import Tensors, copy_into, local, model_tensors


class Average:
    """Follows the weights; takes their place while the model is evaluated.

    Early in training the decay is (1 + update) ÷ (10 + update), so that the first weights are soon forgotten.
    """

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        self._decay = decay
        self._model = model
        self._weights = model_tensors(model)
        self._tensors: Tensors = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._names = [name for name, weight in self._weights.items() if weight.is_floating_point()]
        # Where instances hold parts of the weights, each averages its own.
        self._averaged: List[torch.Tensor] = [local(self._tensors[name]) for name in self._names]
        self._followed: List[torch.Tensor] = [local(self._weights[name].detach()) for name in self._names]
        self._set_aside: Dict[str, torch.Tensor] = {}

    def tensors(self) -> Tensors:
        """Return the average by name, with the model's own counters."""
        counters = {name: value for name, value in self._weights.items() if not value.is_floating_point()}
        return {**self._tensors, **counters}

    @torch.no_grad()
    def follow(self, update: int) -> None:
        """Move towards the weights after `update`, counted from 0."""
        decay = min(self._decay, (1.0 + update) / (10.0 + update))
        torch._foreach_mul_(self._averaged, decay)
        torch._foreach_add_(self._averaged, self._followed, alpha=1.0 - decay)

    @torch.no_grad()
    def take_place(self) -> None:
        """Give the model the average, and keep its weights."""
        self._set_aside = {name: weight.detach().clone() for name, weight in self._weights.items()}
        copy_into({name: self._weights[name] for name in self._names}, self._tensors)

    def give_place(self) -> None:
        """Give the model its weights back."""
        copy_into(self._weights, self._set_aside)
        self._set_aside = {}

    def load(self, tensors: Tensors) -> None:
        """Continue from `tensors`; from the model's weights where there are none."""
        copy_into(self._tensors, tensors or self._weights)
