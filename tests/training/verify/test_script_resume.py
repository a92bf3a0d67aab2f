"""`trainjob verify --resume -- python train.py`: interrupted, started again, and compared with itself."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_runs import PYTHON, Here
from tests.support.verdicts import verify
from trainjob.contract.paths import RunPaths
from trainjob.records import updates
from trainjob.verify.scripts import update_log

PLAIN = Path(__file__).parents[3] / "benchmarks" / "resume_scripts" / "plain.py"


def verify_plain(here: Here, *words: str, by: str, interruptions: int = 1, code: int = 0) -> Any:
    here.write("plain.py", PLAIN.read_text())
    asked = ("--resume", "--by", by, "--interruptions", str(interruptions))
    return verify(here, *asked, "--", PYTHON, "plain.py", "--epochs", "2", *words, code=code)


def test_a_script_that_resumes_is_equal(here: Here) -> None:
    verdict = verify_plain(here, by="time-limit")
    assert verdict["equal"]
    (one,) = verdict["interruptions"]
    assert one["state"] == "STOPPED"
    assert one["continued_at"] == one["after"]
    assert verdict["files"] == ["checkpoints/last.pt"]


@pytest.mark.parametrize(
    ("package", "script", "ranks"),
    [("accelerate", "accelerated.py", 2), ("transformers", "trainer.py", 2), ("lightning", "lit.py", 1)],
)
def test_the_lines_for_a_framework_resume(here: Here, package: str, script: str, ranks: int) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    here.write(script, PLAIN.with_name(script).read_text())
    asked = ("--resume", "--by", "time-limit", "--interruptions", "1", "--instances", str(ranks))
    verdict = verify(here, *asked, "--", PYTHON, script)
    assert verdict["equal"]
    assert [one["state"] for one in verdict["interruptions"]] == ["STOPPED"]


@pytest.mark.parametrize(
    ("fault", "by", "code"),
    [pytest.param("rng", "time-limit", "rng", marks=pytest.mark.full), ("torn", "kill", "torn-checkpoint")],
)
def test_what_a_script_loses_is_named(here: Here, fault: str, by: str, code: str) -> None:
    verdict = verify_plain(here, "--fault", fault, by=by, code=1)
    assert [one["code"] for one in verdict["findings"]] == [code]
    assert not verdict["inconclusive"]


def test_a_script_without_a_seed_is_compared_with_what_it_did_itself(here: Here) -> None:
    verdict = verify_plain(here, "--unseeded", by="kill")
    assert verdict["equal"]
    assert verdict["judged_by"].startswith("itself")


@pytest.mark.full
def test_what_a_script_without_a_seed_loses_is_named(here: Here) -> None:
    verdict = verify_plain(here, "--unseeded", "--fault", "rng", by="kill", code=1)
    assert [one["code"] for one in verdict["findings"]] == ["rng"]


@pytest.mark.full
def test_a_script_without_a_seed_that_nothing_can_judge_is_inconclusive(here: Here) -> None:
    # At a signal it saves and ends, so nothing of it went on past its checkpoint.
    verdict = verify_plain(here, "--unseeded", by="time-limit", code=1)
    assert verdict["inconclusive"]
    assert "torch.manual_seed" in verdict["findings"][0]["cure"]


def test_weights_that_are_no_numbers_are_never_called_equal(here: Here) -> None:
    poisoned = PLAIN.read_text().replace("scaler.scale(loss).backward()", "(loss * float('nan')).backward()")
    here.write(
        "plain.py", poisoned.replace("scaler.step(optimizer)", "optimizer.step()").replace("scaler.update()", "")
    )
    asked = ("--resume", "--by", "kill", "--interruptions", "1")
    verdict = verify(here, *asked, "--", PYTHON, "plain.py", "--epochs", "1", code=1)
    assert verdict["inconclusive"]
    assert [one["code"] for one in verdict["findings"]] == ["no-numbers"]
    assert verdict["infinite"].startswith("update 1: loss nan")


def test_the_hook_changes_nothing_that_the_script_prints(here: Here) -> None:
    here.write(
        "plain.py", PLAIN.read_text() + "print(sum(float(w.detach().double().sum()) for w in model.parameters()))\n"
    )
    record = {**updates.hooked(here.folder, None), "TRAINJOB_RUN_DIR": str(here.folder / "run")}
    printed = []
    for number, more in enumerate(({}, record)):
        folder = here.folder / str(number)
        folder.mkdir()
        words = [PYTHON, str(here.project / "plain.py"), "--epochs", "1"]
        environ = {**here.environ, "OMP_NUM_THREADS": "1", **more}
        printed.append(subprocess.run(words, cwd=folder, env=environ, check=True, capture_output=True).stdout)
    assert printed[0] == printed[1]
    assert (here.folder / "run" / "updates" / "rank-0000.jsonl").read_text().count('"event":"update"') == 12


@pytest.mark.parametrize(
    ("loss", "gradients", "is_divided"),
    [
        ("loss", "", False),
        ("loss / 2", "", True),
        pytest.param("loss", "model.weight.grad /= 2", True, marks=pytest.mark.full),
        pytest.param("a + b / 2", "", True, marks=pytest.mark.full),
    ],
)
def test_division_of_micro_batches_is_seen(here: Here, loss: str, gradients: str, is_divided: bool) -> None:
    here.write(
        "micro.py",
        f"""\
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for number in range(1, 7):
    loss = model(torch.ones(2, 4)).square().mean()
    a, b = loss, loss.sqrt()
    scaler.scale({loss}).backward()
    if number % 2 == 0:
        {gradients}
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    )
    run = {**updates.hooked(here.folder, None), "TRAINJOB_RUN_DIR": str(here.project)}
    subprocess.run([PYTHON, "micro.py"], cwd=here.project, env={**here.environ, **run}, check=True)
    ((log,),) = update_log.read(RunPaths(here.project))
    assert [one.divided for one in log.updates[1:]] == [is_divided] * 2
    assert all(loss < 8.0 for loss in log.updates[0].losses)  # without the scaler's factor


def test_weights_of_a_shorter_type_are_seen_at_the_first_update(here: Here) -> None:
    here.write(
        "short.py",
        """\
import torch
from trainjob_hooks import digests
for name in ("float32", "float16", "bfloat16"):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 2)
    model.load_state_dict({key: value.to(getattr(torch, name)) for key, value in model.state_dict().items()})
    print(digests.rounded_to(torch.optim.SGD(model.parameters(), lr=0.1)) or "none")
""",
    )
    environ = {**here.environ, **updates.hooked(here.folder, None)}
    ended = subprocess.run([PYTHON, "short.py"], cwd=here.project, env=environ, capture_output=True, text=True)
    assert ended.stdout.split() == ["none", "float16", "bfloat16"]


def test_one_draw_is_seen_in_the_digests_of_random_numbers(here: Here) -> None:
    here.write(
        "draws.py",
        """\
import random
import numpy, torch
from trainjob_hooks import digests
for draw in (lambda: None, lambda: torch.rand(1), random.random, lambda: numpy.random.randint(9)):
    before = digests.of_random_numbers().split(".")
    draw()
    print([one != two for one, two in zip(before, digests.of_random_numbers().split("."))].count(True))
""",
    )
    environ = {**here.environ, **updates.hooked(here.folder, None)}
    ended = subprocess.run([PYTHON, "draws.py"], cwd=here.project, env=environ, capture_output=True, text=True)
    assert ended.stdout.split() == ["0", "1", "1", "1"]


def test_the_oldest_python_and_torch_are_recorded(here: Here, needs: Callable[[str], Path]) -> None:
    script = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.cuda.amp.GradScaler(enabled=False)
for number, (x,) in enumerate(DataLoader(TensorDataset(torch.ones(8, 4)), 2), start=1):
    scaler.scale(model(x).square().mean()).backward()
    if number % 2 == 0:
        scaler.step(optimizer)
torch.save(model.state_dict(), "last.pt")
"""
    here.write("old.py", script)
    run = {**updates.hooked(here.folder, None), "TRAINJOB_RUN_DIR": str(here.project)}
    words = [str(needs("floor")), "old.py"]
    subprocess.run(words, cwd=here.project, env={**here.environ, **run}, check=True)
    ((log,),) = update_log.read(RunPaths(here.project))
    assert [len(one.losses) for one in log.updates] == [2, 2]
    assert [(len(one.samples), one.divided, one.state_before == "") for one in log.updates] == [
        (2, False, True),
        (2, False, False),
    ]
    assert [event.name for event in log.events] == ["starts", "pass", "pass-ended", "saves", "saved"]


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        ((), []),
        pytest.param(("--fault", "accumulation-not-divided"), ["accumulation-not-divided"], marks=pytest.mark.full),
    ],
)
def test_ranks_are_compared_with_one(here: Here, words: tuple[str, ...], codes: list[str]) -> None:
    here.write("ddp.py", PLAIN.with_name("ddp.py").read_text())
    verdict = verify(here, "--alone", "--accumulate 2", "--", PYTHON, "ddp.py", *words, code=1 if codes else 0)
    assert [one["code"] for one in verdict["findings"]] == codes
    assert verdict["updates"] == 8
