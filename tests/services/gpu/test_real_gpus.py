"""Real NVIDIA GPUs: the same scripts there and on stand-ins, NCCL, memory, and the commands that look at GPUs.

`make test-gpu` runs them. They skip where there is no GPU, so neither CI nor `make test-all` has seen them pass.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.standins.gpu.test_programs import COMMANDS, PROGRAMS
from tests.support.gpu_scripts import environment
from tests.support.printed_json import reported
from tests.support.programs import ran

pytestmark = pytest.mark.timeout(600)

# Trains in float32 and under float16 autocast with a scaler, and prints both courses of the loss.
TRAINS = """
import json, torch
from torch import nn
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

def course(half):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    values, labels = torch.randn(64, 32).cuda(), torch.arange(64).cuda() % 8
    losses = []
    for _ in range(20):
        with torch.autocast("cuda", torch.float16, enabled=half):
            loss = nn.functional.cross_entropy(model(values), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses

print(json.dumps([course(False), course(True)]))
"""

# Mistakes that scripts make; each prints the kind of its error and the first words.
MISTAKES = {
    "tensors on two devices": "torch.ones(2).cuda() + torch.ones(2)",
    "a GPU that is not there": "torch.ones(1, device='cuda:63')",
    "types that do not fit": "torch.ones(2, 2).cuda() @ torch.ones(2, 2).cuda().half()",
    "numpy of a GPU's tensor": "torch.ones(1).cuda().numpy()",
    "more memory than there is": "torch.empty(1 << 44, device='cuda')",
}


@pytest.fixture(autouse=True)
def gpu(needs: Callable[[str], Path]) -> Path:
    return needs("gpu")


def python(folder: Path, *words: str, environ: Mapping[str, str] | None = None) -> str:
    """Return what a Python printed that ended with 0."""
    ended = ran([sys.executable, *words], folder=folder, environ=environ, timeout_s=500, code=0)
    return ended.stdout


def gpus_here(folder: Path) -> int:
    return int(python(folder, "-c", "import torch; print(torch.cuda.device_count())"))


def trainjob(folder: Path, *words: str, code: int = 0) -> Any:
    """Return the JSON that a command printed, on a cluster file that says what this machine has."""
    (folder / "clusters").mkdir(exist_ok=True)
    count = gpus_here(folder)
    here = {"kind": "local", "accelerator": "gpu", "accelerators": count, "python": sys.executable}
    (folder / "clusters" / "here.yaml").write_text(json.dumps(here))
    environ = {**os.environ, "XDG_DATA_HOME": str(folder / "data")}
    # Without an installation there is no script `trainjob`.
    ended = ran(
        [sys.executable, "-m", "trainjob", *words, "--json"], folder=folder, environ=environ, timeout_s=500, code=code
    )
    return reported(ended.stdout)


@pytest.mark.parametrize("name", [name for name, (_, world, _) in COMMANDS.items() if world <= 2])
def test_the_programs_of_the_stand_ins_run_here_too(tmp_path: Path, name: str) -> None:
    command, world, words = COMMANDS[name]
    if gpus_here(tmp_path) < world:
        pytest.skip(f"it takes {world} GPUs")
    program = [str(PROGRAMS / word) if word.endswith(".py") else word for word in command]
    assert words in python(tmp_path, *program, environ={**os.environ, "DTYPE": "float16"})


def test_training_has_the_losses_of_stand_ins(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    real = json.loads(python(tmp_path, "train.py"))
    stand_in = json.loads(python(tmp_path, "train.py", environ=environment(tmp_path)))
    assert real[0] == pytest.approx(stand_in[0], rel=1e-3)
    assert real[1] == pytest.approx(stand_in[1], rel=3e-2)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_have_the_errors_of_stand_ins(tmp_path: Path, name: str) -> None:
    script = f"import torch\ntry:\n    {MISTAKES[name]}\nexcept Exception as error:\n    print(type(error).__name__)"
    (tmp_path / "mistake.py").write_text(script)
    real = python(tmp_path, "mistake.py").strip()
    assert real
    assert real == python(tmp_path, "mistake.py", environ=environment(tmp_path)).strip()


def test_a_task_trains_and_its_gpu_is_seen_at_work(tmp_path: Path) -> None:
    job = ("--cluster", "here", "--task", "tiny-gpt", "--instances", "1", "--updates", "200")
    trainjob(tmp_path, "submit", *job, "--follow")
    (rank,) = trainjob(tmp_path, "usage", "last")
    assert 0 < rank["most_device_memory_bytes"] < rank["device_memory_total_bytes"]


def test_devices_are_seen(tmp_path: Path) -> None:
    assert len(trainjob(tmp_path, "devices", "--cluster", "here")) == gpus_here(tmp_path)


def test_the_ladder_accepts_this_machine(tmp_path: Path) -> None:
    accepted_run = trainjob(tmp_path, "cluster", "accept", "here")
    outcomes = {one["step"]: one for one in accepted_run["outcomes"]}
    assert accepted_run["accepted"], outcomes
    assert outcomes["device"]["figures"]["tflop_per_s"] > 1
