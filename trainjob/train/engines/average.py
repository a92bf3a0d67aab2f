"""An exponential moving average of a model's weights and running statistics."""

from __future__ import annotations

from typing import Dict, List

import torch

from trainjob.train.records.state import Tensors, model_tensors


class Average:
    """Follows the weights; takes their place while the model is evaluated.

    Early in training the decay is (1 + update) ÷ (10 + update), so that the first weights are soon forgotten.
    """

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        self._decay = decay
        self._model = model
        self._weights = model_tensors(model)
        self._tensors: Tensors = {name: weight.detach().clone() for name, weight in self._weights.items()}
        names = [name for name, weight in self._weights.items() if weight.is_floating_point()]
        self._averaged: List[torch.Tensor] = [self._tensors[name] for name in names]
        self._followed: List[torch.Tensor] = [self._weights[name].detach() for name in names]
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
        self._copy(self._tensors, self._weights, only_floating=True)

    @torch.no_grad()
    def give_place(self) -> None:
        """Give the model its weights back."""
        self._copy(self._set_aside, self._weights, only_floating=False)
        self._set_aside = {}

    @torch.no_grad()
    def load(self, tensors: Tensors) -> None:
        """Continue from `tensors`; from the model's weights where there are none."""
        self._copy(tensors or self._weights, self._tensors, only_floating=False)

    @staticmethod
    def _copy(source: Tensors, target: Tensors, only_floating: bool) -> None:
        for name, tensor in target.items():
            if tensor.is_floating_point() or not only_floating:
                tensor.copy_(source[name])
