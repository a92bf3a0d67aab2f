"""Optimizers: torch's own where there are, the formulas of the papers elsewhere, and classes that a job names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.runs_at_work import settings
from trainjob.contract.errors import UserError
from trainjob.train.optimizers import build, parameter_groups
from trainjob.train.recording.state import load_optimizer, optimizer_tensors

RATE, DECAY, MOMENTUM = 0.1, 0.01, 0.8
JOB: dict[str, Any] = {"learning_rate": RATE, "weight_decay": DECAY, "momentum": MOMENTUM}


class Exempting:
    decays_norms_and_biases = False


class Decaying:
    pass


def model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4)).double()


def gradients(net: nn.Module, update: int) -> None:
    generator = torch.Generator().manual_seed(update)
    for weight in net.parameters():
        weight.grad = torch.randn(weight.shape, dtype=weight.dtype, generator=generator)


def trained(net: nn.Module, optimizer: torch.optim.Optimizer, updates: range = range(4)) -> list[torch.Tensor]:
    for update in updates:
        gradients(net, update)
        optimizer.step()
    return [weight.detach() for weight in net.parameters()]


def made(task: Any = Decaying, **job: Any) -> list[torch.Tensor]:
    net = model()
    return trained(net, build(parameter_groups(net, task()), settings(**{**JOB, **job})))


def by_formula(rule: Any, exempt: bool = False) -> list[torch.Tensor]:
    """Return the weights that `rule(w, g, state, decay, adapted)` gives, in numpy's float64."""
    net = model()
    found = []
    for number, weight in enumerate(net.parameters()):
        plain = exempt and weight.dim() < 2
        values, state = weight.detach().numpy().copy(), {"t": 0}
        for update in range(4):
            gradients(net, update)
            gradient: Any = list(net.parameters())[number].grad
            values = rule(values, gradient.numpy(), state, 0.0 if plain else DECAY, not plain)
        found.append(torch.from_numpy(values))
    return found


def lars(w: Any, g: Any, state: Any, decay: float, adapted: bool) -> Any:
    rate = 0.002 * np.linalg.norm(w) / (np.linalg.norm(g) + decay * np.linalg.norm(w)) if adapted else 1.0
    if adapted and not np.linalg.norm(w):
        rate = 1.0
    state["v"] = MOMENTUM * state.get("v", 0.0) + RATE * rate * (g + decay * w)
    return w - state["v"]


def lamb(w: Any, g: Any, state: Any, decay: float, adapted: bool) -> Any:
    state["t"] += 1
    state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * g
    state["v"] = 0.95 * state.get("v", 0.0) + 0.05 * g * g
    r = state["m"] / (1 - 0.9 ** state["t"]) / (np.sqrt(state["v"] / (1 - 0.95 ** state["t"])) + 1e-6) + decay * w
    trust = np.linalg.norm(w) / np.linalg.norm(r) if adapted and np.linalg.norm(w) else 1.0
    return w - RATE * trust * r


def test_sgd_with_nesterov_is_that_of_torch() -> None:
    net = model()
    reference = torch.optim.SGD(net.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY, nesterov=True)
    torch.testing.assert_close(made(optimizer_options={"nesterov": True}), trained(net, reference))
    assert not torch.equal(made()[0], made(optimizer_options={"nesterov": True})[0])


def test_adamw_takes_its_betas() -> None:
    net = model()
    reference = torch.optim.AdamW(net.parameters(), RATE, (0.8, 0.95), 1e-7, DECAY)
    options = {"beta1": 0.8, "beta2": 0.95, "eps": 1e-7}
    torch.testing.assert_close(made(optimizer="adamw", optimizer_options=options), trained(net, reference))


@pytest.mark.parametrize("task", [Decaying, Exempting])
@pytest.mark.parametrize(
    ("optimizer", "options", "rule"), [("lars", {"trust": 0.002}, lars), ("lamb", {"beta2": 0.95}, lamb)]
)
def test_large_batch_optimizers_follow_their_papers(task: Any, optimizer: str, options: Any, rule: Any) -> None:
    expected = by_formula(rule, exempt=task is Exempting)
    torch.testing.assert_close(made(task, optimizer=optimizer, optimizer_options=options), expected)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "torch.optim:RMSprop"])
def test_norms_and_biases_do_not_decay_where_the_task_says_so(optimizer: str) -> None:
    exempt, decayed = made(Exempting, optimizer=optimizer), made(optimizer=optimizer)
    without = made(optimizer=optimizer, weight_decay=0.0)
    assert [torch.equal(one, other) for one, other in zip(exempt, decayed, strict=True)] == [True, False, False, False]
    assert [torch.equal(one, other) for one, other in zip(exempt, without, strict=True)] == [False, True, True, True]


OWN = """
import torch

class Counting(torch.optim.Optimizer):
    def __init__(self, params, lr, factor=1.0):
        super().__init__(params, {"lr": lr, "factor": factor, "seen": 0})
    def step(self, closure=None):
        for group in self.param_groups:
            group["seen"] += 1
            for weight in group["params"]:
                state = self.state[weight]
                state["longest"] = max(state.get("longest", 0.0), float(weight.grad.norm()))
                weight.data -= group["lr"] * group["factor"] / group["seen"] * weight.grad / state["longest"]

class Keeping(Counting):
    def step(self, closure=None):
        for weight in self.param_groups[0]["params"]:
            self.state[weight]["history"] = [1, 2]
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_optimizers.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    "job",
    [
        {"optimizer": "own_optimizers:Counting", "optimizer_options": {"factor": 2}, "weight_decay": 0.0},
        {"optimizer": "lamb"},
        {"optimizer": "lars"},
        {"optimizer": "torch.optim:NAdam"},
    ],
)
def test_the_state_of_any_optimizer_can_be_saved_and_loaded(job: dict[str, Any]) -> None:
    asked = settings(**{**JOB, **job})
    whole, resumed = model(), model()
    first, second = (build(parameter_groups(net, Decaying()), asked) for net in (whole, resumed))
    trained(whole, first, range(3))
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(first, whole).items()}
    resumed.load_state_dict(whole.state_dict())
    load_optimizer(second, resumed, saved)
    expected, found = trained(whole, first, range(3, 6)), trained(resumed, second, range(3, 6))
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


def test_a_parameter_may_get_its_first_gradient_later_than_others() -> None:
    net = model()
    optimizer = build([{"params": list(net.parameters())}], settings(allow_unused_parameters=True, **JOB))
    parameters = list(net.parameters())
    for used in (1, 2):
        before = [parameter.clone() for parameter in parameters]
        for parameter in parameters[:used]:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        moved = [not torch.equal(now, then) for now, then in zip(parameters, before, strict=True)]
        assert moved == [number < used for number in range(len(parameters))]


@pytest.mark.usefixtures("own")
def test_state_that_no_checkpoint_can_hold_is_named() -> None:
    net = model()
    optimizer = build(
        parameter_groups(net, Decaying()), settings(optimizer="own_optimizers:Keeping", **{**JOB, "weight_decay": 0.0})
    )
    trained(net, optimizer)
    with pytest.raises(UserError, match="optimizer Keeping keeps history as list, which checkpoints can't hold"):
        optimizer_tensors(optimizer, net)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("job", "text"),
    [
        ({"optimizer": "own_optimizers:Count"}, "has no Count: did you mean Counting"),
        ({"optimizer": "own_optimizer:Counting"}, "the optimizer's module own_optimizer is not found"),
        ({"optimizer": "own_optimizers:Counting"}, "takes no weight_decay: it takes params, lr, factor"),
        (
            {"optimizer": "torch.optim:RMSprop", "optimizer_options": {"alfa": 1}},
            "takes no alfa: it takes params, lr, a",
        ),
        ({"optimizer": "torch.optim:LBFGS", "weight_decay": 0.0}, "calls the model itself"),
        ({"optimizer": "torch.nn:Linear", "weight_decay": 0.0}, "takes no lr: it takes in_features"),
        ({"optimizer": "torch:pi", "weight_decay": 0.0}, "optimizer torch:pi is not a class"),
    ],
)
def test_what_is_no_optimizer_is_refused_by_name(job: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        made(**job)
