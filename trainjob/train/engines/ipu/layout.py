"""How the samples of one call are laid out: the assumption of this engine, and a test of it on the device.

How poptorch lays a combined batch out over device iterations, replicas and accumulation is not documented. The engine
assumes only this: device iterations are outermost, so that the samples of an update lie together and updates are in
order; results are laid out like inputs; gradients are summed over all replicas of all instances. Which replica takes
which micro batch of an update makes no difference to the weights.
"""

from __future__ import annotations

from typing import Any, Tuple

import torch
from torch import nn

from trainjob.contract.errors import UserError
from trainjob.train.engines.ipu.options import Ipus, training_options

_STEP = 2.0**-10  # exact in every type


def by_update(values: torch.Tensor, updates: int) -> torch.Tensor:
    """Return the results of all micro batches as (updates, micro batches of this instance)."""
    return values.reshape(updates, -1)


class _Probe(nn.Module):
    """Returns its inputs, each with the weight, which every update moves by the number of micro batches."""

    def __init__(self, poptorch: Any, ipus: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1))
        self._loss = poptorch.identity_loss
        stages = [poptorch.BeginBlock(nn.Identity(), ipu_id=number) for number in range(1, ipus)]
        self.stages = nn.ModuleList(stages)

    def forward(self, numbers: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(1, 1) → the same, the weight as (1, 1), and the loss."""
        for stage in self.stages:
            numbers = stage(numbers)
        return numbers + 0.0, self.weight + 0.0 * numbers, self._loss(self.weight.sum(), reduction="sum")


def check(ipus: Ipus) -> None:
    """Train a model of one weight, and raise UserError if the results contradict this module's assumption.

    All instances must call it together. If the job only compiles, so does this.
    """
    settings = ipus.settings
    per_update = ipus.replicas * settings.accumulation
    if settings.device_iterations * per_update * settings.instances == 1:
        return
    program = _program(ipus)
    numbers = torch.arange(float(settings.device_iterations * per_update)).view(-1, 1)
    if ipus.compile_only:
        program.compile(numbers)
        return
    returned, weights, _ = program(numbers)
    program.destroy()
    steps = torch.arange(float(settings.device_iterations)).repeat_interleave(per_update)
    expected = -steps * _STEP * settings.replicas * settings.accumulation
    if not torch.equal(returned.float(), numbers) or not torch.allclose(weights.float().flatten(), expected):
        raise _refusal(returned, weights, expected)


def _program(ipus: Ipus) -> Any:
    poptorch = ipus.poptorch
    probe = _Probe(poptorch, ipus.settings.ipus_per_replica)
    optimizer = poptorch.optim.SGD(probe.parameters(), lr=_STEP, momentum=0.0, use_combined_accum=False)
    options = training_options(ipus, reduction="sum").showCompilationProgressBar(False)
    return poptorch.trainingModel(probe, options, optimizer)


def _refusal(returned: torch.Tensor, weights: torch.Tensor, expected: torch.Tensor) -> UserError:
    return UserError(
        (
            "this poptorch lays out a combined batch differently from what engine ipu assumes, "
            "or does not sum gradients over all replicas, so nothing was trained. A test program "
            "with numbered micro batches got them back as %s, with weights %s where %s were "
            "expected."
        )
        % (returned.flatten().tolist(), weights.flatten().tolist(), expected.tolist()),
        "Use --device-iterations 1, and report it",
    )
