"""A user's own task: found, built with its options, refused by name where it can't train, blamed where it fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.own_tasks import TASK, own
from tests.support.runs_at_work import lines, train_here, updates
from trainjob.contract import exits
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.train.opening import open_data
from trainjob.train.tasks import loading
from trainjob.train.tasks.digits_cnn import DigitsCnn
from trainjob.train.tasks.ffnet_toy import FfnetToy


def refused(run: RunPaths, capfd: pytest.CaptureFixture[str]) -> str:
    assert train_here(run) == exits.USER_OR_CLUSTER_CAN_FIX
    message = capfd.readouterr().err
    assert updates(run) == []
    return message


@pytest.mark.parametrize("part", ["__init__", "build_model", "open_data", "loss"])
def test_a_task_that_raises_is_named_after_its_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], part: str
) -> None:
    message = refused(own(tmp_path / "run", task_options={"part": part}), capfd)
    traceback, _, last = message.rstrip("\n").rpartition("\n")
    assert last.startswith("trainjob: task mine:Task raised RuntimeError in fails (mine.py, line ")
    assert "its traceback is above" in last
    assert 'raise RuntimeError("as it was told to")' in traceback


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("mien:Task", "the task's module mien is not found: looked in the project "),
        ("mien:Task", "did you mean mine?"),
        ("mine:Tsak", "has no Tsak: did you mean Task?"),
        ("mine:random", "task mine:random is module: name a class or a function that builds the task"),
        ("mine:Noisy", "task mine:Noisy has no build_model, open_data, loss"),
        ("nothing", "a task is a built-in name or module:attribute, and this is 'nothing'"),
    ],
)
def test_a_task_that_cannot_be_found_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], entry: str, message: str
) -> None:
    assert message in refused(own(tmp_path / "run", entry=entry), capfd)


def test_a_module_that_the_task_itself_lacks_is_another_matter(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    message = refused(own(tmp_path / "run", "import no_such_module\n" + TASK), capfd)
    assert "raised ModuleNotFoundError" in message
    assert "No module named 'no_such_module'" in message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"widht": 3}, "task mine:Task has no option widht: did you mean width? It has width, part"),
        ({"width": "wide"}, "option width of task mine:Task takes int and was given 'wide' (str)"),
        ({"width": 2.5}, "option width of task mine:Task takes int and was given 2.5 (float)"),
        ({"width": True}, "option width of task mine:Task takes int and was given True (bool)"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], given: dict[str, Any], message: str
) -> None:
    assert message in refused(own(tmp_path / "run", task_options=given), capfd)


def test_options_take_what_is_meant() -> None:
    def build(
        rate: float = 0.1, name: str = "a", deep: bool = False, size: int | None = None, free: Any = None
    ) -> None:
        return None

    given = {"rate": 1, "name": 7, "deep": True, "size": 4, "free": [1]}
    assert loading.check("t", build, given) == {"rate": 1.0, "name": "7", "deep": True, "size": 4, "free": [1]}
    assert type(loading.check("t", build, {"rate": 1})["rate"]) is float
    with pytest.raises(UserError, match="option size of task t takes int and was given 'x'"):
        loading.check("t", build, {"size": "x"})


def test_an_option_that_is_needed_is_asked_for() -> None:
    def build(width: int) -> None:
        return None

    with pytest.raises(UserError, match="task t needs its option width: give --set width="):
        loading.check("t", build, {})
    assert loading.check("t", lambda **anything: None, {"any": 1}) == {"any": 1}
    with pytest.raises(UserError, match="task t has no options, and was given width"):
        loading.check("t", lambda: None, {"width": 1})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "return nn.functional.cross_entropy(outputs, targets, reduction='none')",
            "the task's loss must be a tensor of no dimensions with a gradient, and is (4,) float32 "
            "(outputs: (4, 2) float32; targets: (4,) int64)",
        ),
        ("return 1.0", "the task's loss must be a tensor of no dimensions with a gradient, and is float"),
        ("return outputs.detach().sum()", "and is () float32 (outputs: (4, 2) float32"),
    ],
)
def test_a_loss_that_cannot_be_trained_on_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], body: str, message: str
) -> None:
    code = TASK.replace("return nn.functional.cross_entropy(outputs, targets)", body)
    assert message in refused(own(tmp_path / "run", code), capfd)


def test_outputs_of_the_wrong_shape_are_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = TASK.replace("nn.Linear(self.width, 2)", "nn.Linear(self.width, 2), nn.Flatten(0)")
    message = refused(own(tmp_path / "run", code), capfd)
    assert "outputs: (8,) float32; targets: (4,) int64" in message


def test_a_metric_of_the_wrong_shape_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = (
        TASK + "\n    def metrics(self, outputs, targets):\n        return {'accuracy': outputs.argmax(1) == targets}\n"
    )
    message = refused(own(tmp_path / "run", code), capfd)
    assert (
        "the task's metrics must be means over the micro batch, one number each, and accuracy is (4,) bool" in message
    )


def test_further_metrics_have_a_place_of_their_own(tmp_path: Path) -> None:
    code = (
        TASK
        + "\n    def metrics(self, outputs, targets):\n        return {'largest': outputs.max(), 'accuracy': 0.25}\n"
    )
    run = own(tmp_path / "run", code)
    assert train_here(run) == 0
    for line in (lines(run, "train")[0], lines(run, "evaluation")[-1]):
        assert set(line["metrics"]) == {"largest"}
        assert line["accuracy"] == 0.25


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("None", "open_data returned NoneType, which can neither be indexed"),
        ("[torch.ones(4)] * 64", "a Dataset must return (input, target) for each sample, and this one returns Tensor"),
        ("[(torch.ones(4), 0)] * 3", "batch = 4 samples, and the data set has 3"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], given: str, message: str
) -> None:
    code = TASK.replace("return Noisy(), Noisy()", f"return {given}, None")
    assert message in refused(own(tmp_path / "run", code), capfd)


def test_a_model_that_is_none_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = TASK.replace("return nn.Sequential", "nn.Sequential")
    assert "build_model must return a torch.nn.Module, and returned NoneType" in refused(
        own(tmp_path / "r", code), capfd
    )


def test_another_number_of_samples_than_planned_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    message = refused(own(tmp_path / "run", samples=100), capfd)
    assert "the plan assumed 100 training samples and the task's data has 64: submit again with --samples 64" in message


NAMED_INPUTS = """
from mine_too import Noisy, Task as Plain
from torch import nn


class Named(Noisy):
    def __getitem__(self, index):
        values, target = super().__getitem__(index)
        return {"values": values}, target


class Reads(nn.Sequential):
    def forward(self, inputs):
        return super().forward(inputs["values"])


class Task(Plain):
    def build_model(self):
        return Reads(*super().build_model())

    def open_data(self, place):
        return Named(), Named()
"""


def test_inputs_may_be_dictionaries(tmp_path: Path) -> None:
    run = own(tmp_path / "run", NAMED_INPUTS, accumulation=2, precision="64.64")
    (run.project / "mine_too.py").write_text(TASK)
    assert train_here(run) == 0


def test_built_in_options_that_make_no_net_are_refused() -> None:
    with pytest.raises(UserError, match=r"0 ≤ dropout < 1.*dropout=1"):
        DigitsCnn(dropout=1.0)
    with pytest.raises(UserError, match=r"samples ≥ 1 and layers ≥ 0.*width=0"):
        FfnetToy(width=0)


def test_the_toy_net_has_the_sizes_asked_for() -> None:
    model = FfnetToy(inputs=7, layers=2, width=5, outputs=3).build_model()
    assert [tuple(weight.shape) for weight in model.parameters()] == [(5, 7), (5,), (5, 5), (5,), (3, 5), (3,)]
    assert model(torch.zeros(4, 7)).shape == (4, 3)


def test_the_project_comes_after_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise AssertionError('the standard library comes first')\n")
    (tmp_path / "task_of_test.py").write_text("import json\n" + TASK)
    loaded: Any = loading.load("task_of_test:Task", {}, tmp_path)
    assert loaded.width == 4


def test_a_data_set_that_a_task_of_ones_own_never_asks_for_is_refused() -> None:
    class Deaf:
        def open_data(self, place: Any) -> Any:
            return [1, 2]

    class Asking:
        def open_data(self, place: Any) -> Any:
            assert place.name == "synthetic"
            return [1, 2]

    deaf: Any = Deaf()
    asking: Any = Asking()
    settings: Any = SimpleNamespace(task="mine:Deaf", data="synthetic", seed=0, samples=None)
    with pytest.raises(UserError, match="--data synthetic has no effect"):
        open_data(deaf, settings, {}, 0)
    assert open_data(asking, settings, {}, 0).train == [1, 2]
    settings.data = None
    assert open_data(deaf, settings, {}, 0).train == [1, 2]
