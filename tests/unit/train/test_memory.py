"""What training holds, measured without holding it."""

from __future__ import annotations

from typing import Any

from tests.support.runs_at_work import settings
from trainjob.records.measures import MemoryFigures
from trainjob.train.measure.memory import measure
from trainjob.train.tasks.ffnet_toy import FfnetToy

WIDTH, BATCH, FLOAT = 100, 4, 4
PARAMETERS = 4 * WIDTH * WIDTH + 4 * WIDTH


def figures(**changes: Any) -> MemoryFigures:
    task: Any = FfnetToy(layers=4, outputs=WIDTH)
    plain = {"micro_batch": BATCH, "optimizer": "adamw", **changes}
    return measure(task, settings(task="ffnet-toy", task_options={"layers": 4}, **plain), {})


def test_weights_gradients_and_two_moments() -> None:
    held = figures()
    assert held.parameters == PARAMETERS + WIDTH * WIDTH + WIDTH
    assert held.weights == held.gradients == held.parameters * FLOAT
    assert held.optimizer == 2 * held.weights + 10 * FLOAT  # a counter of steps for each parameter
    assert figures(optimizer="sgd").optimizer == held.weights
    assert figures(optimizer="sgd", momentum=0.0).optimizer == 0


def test_activations_are_what_the_backward_pass_needs() -> None:
    """Inputs of the linear layers, each the output of the ReLU before it; for the loss, outputs and targets."""
    held = figures()
    assert held.activations == (5 + 2) * BATCH * WIDTH * FLOAT
    assert held.units == ["0", "2", "4", "6", "8"]
    assert held.gathered == (WIDTH * WIDTH + WIDTH) * FLOAT


def test_sixteen_bits_halve_what_is_gathered_and_kept() -> None:
    full, half = figures(), figures(precision="bf16")
    assert half.weights == full.weights
    assert 2 * half.gathered == full.gathered
    assert half.activations is not None
    assert 2 * half.activations == full.activations
