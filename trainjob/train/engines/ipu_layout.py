"""How the samples of one call lie in memory: an assumption, and the test that holds it against the device.

Nobody has written down how poptorch lays a combined batch out over device iterations, replicas and accumulation. All
that this engine counts on is here: device iterations are outermost, so that the samples of an update lie together and
updates come in order; results lie as inputs do; gradients are summed over all replicas of all instances. Which replica
takes which micro batch of an update makes no difference to the weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trainjob.contract.errors import UserError
from trainjob.train.engines.ipu_options import Ipus, training_options

_STEP = 2.0**-10  # exact in every type


def by_update(values: Any, updates: int) -> Any:
    """Return the results of all micro batches as (updates, micro batches of this instance)."""
    return values.reshape(updates, -1)


class _Probe(nn.Module):
    """Gives back its inputs, and beside each the weight, which every update moves by the number of micro batches."""

    def __init__(self, poptorch: Any, ipus: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1))
        self._loss = poptorch.identity_loss
        stages = [poptorch.BeginBlock(nn.Identity(), ipu_id=number) for number in range(1, ipus)]
        self.stages = nn.ModuleList(stages)

    def forward(self, numbers: Any) -> Any:
        """(1, 1) → the same, the weight as (1, 1), and the loss."""
        for stage in self.stages:
            numbers = stage(numbers)
        return numbers + 0.0, self.weight + 0.0 * numbers, self._loss(self.weight.sum(), reduction="sum")


def check(ipus: Ipus) -> None:
    """Train a model of one weight, and raise UserError where what comes back is not as this module assumes.

    All instances must call it together. Where nothing is run, it is compiled, as the training is.
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
    came_back, weights, _ = program(numbers)
    program.destroy()
    steps = torch.arange(float(settings.device_iterations)).repeat_interleave(per_update)
    expected = -steps * _STEP * settings.replicas * settings.accumulation
    if not torch.equal(came_back.float(), numbers) or not torch.allclose(weights.float().flatten(), expected):
        raise _refusal(came_back, weights, expected)


def _program(ipus: Ipus) -> Any:
    poptorch = ipus.poptorch
    probe = _Probe(poptorch, ipus.settings.ipus_per_replica)
    optimizer = poptorch.optim.SGD(probe.parameters(), lr=_STEP, momentum=0.0, use_combined_accum=False)
    options = training_options(ipus, reduction="sum").showCompilationProgressBar(False)
    return poptorch.trainingModel(probe, options, optimizer)


def _refusal(came_back: Any, weights: Any, expected: Any) -> UserError:
    return UserError(
        "this poptorch lays out a combined batch otherwise than engine ipu assumes, or does not sum gradients over all "
        "replicas, so that nothing was trained. A test program of numbered micro batches got them back as %s, with "
        "weights %s where %s were expected. Take --device-iterations 1, and report it"
        % (came_back.flatten().tolist(), weights.flatten().tolist(), expected.tolist())
    )
