"""Scripts in the style of PyTorch's tutorials and of well-known repositories run unmodified on stand-in GPUs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gpu_scripts import environment
from tests.support.programs import ran
from trainjob.rehearse.gpus import Usage

pytestmark = pytest.mark.timeout(400, func_only=True)

PROGRAMS = Path(__file__).parent / "programs"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]

# How each is started, how many ranks it has, and what it prints once all went well.
COMMANDS: dict[str, tuple[list[str], int, str]] = {
    "the DDP tutorial": ([*TORCHRUN, "2", "ddp_torchrun.py"], 2, "[GPU1] Epoch 3"),
    "the DDP tutorial with mp.spawn, and a model on two GPUs": (["ddp_spawn.py"], 2, "mp ok 1"),
    "the FSDP1 tutorial": ([*TORCHRUN, "2", "fsdp1.py"], 2, "fsdp1 ok"),
    "the FSDP2 tutorial": ([*TORCHRUN, "2", "fsdp2.py"], 2, "fsdp2 ok"),
    "ImageNet with torchrun": ([*TORCHRUN, "2", "imagenet.py", "--dist-url", "env://"], 2, "done"),
    "ImageNet with DataParallel": (["imagenet.py", "--world-size", "1"], 0, "done"),
    "nanoGPT in float16": ([*TORCHRUN, "2", "nanogpt.py"], 2, "nanogpt ok float16"),
    "tensor parallelism, alone and with FSDP2": ([*TORCHRUN, "4", "tensor_parallel.py"], 4, "2d dcp ok"),
    "ZeRO, checkpoints, hooks and collectives": ([*TORCHRUN, "2", "zero_and_checkpoints.py"], 2, "zero_dcp ok"),
    "what scripts call of torch on one GPU": (["operators.py"], 0, "bad 0"),
}

# ImageNet with torchrun and nanoGPT run on DDP, too, and DTensors have replaced FSDP1.
LONGER = {
    "the DDP tutorial",
    "the DDP tutorial with mp.spawn, and a model on two GPUs",
    "the FSDP1 tutorial",
    "tensor parallelism, alone and with FSDP2",
}

# Scripts on packages that have a virtualenv of their own.
OF_PACKAGES: dict[str, tuple[list[str], int, str]] = {
    "accelerate": ([*TORCHRUN, "2", "accelerate_script.py"], 2, "accelerate ok"),
    "lightning": (["lightning_script.py"], 2, "lightning ok"),
    "transformers": ([*TORCHRUN, "2", "transformers_script.py"], 2, "transformers ok"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.full if one in LONGER else ()) for one in COMMANDS]
)
def test_an_unmodified_program_runs(tmp_path: Path, name: str) -> None:
    command, world, words = COMMANDS[name]
    printed, ranks = run_program(tmp_path, command)
    assert words in printed
    assert ranks == list(range(world))


@pytest.mark.full
@pytest.mark.parametrize("package", OF_PACKAGES)
def test_an_unmodified_program_on_a_package_runs(tmp_path: Path, needs: Callable[[str], Path], package: str) -> None:
    command, world, words = OF_PACKAGES[package]
    printed, ranks = run_program(tmp_path, command, needs("frameworks"))
    assert words in printed
    assert ranks == list(range(world))


def run_program(tmp_path: Path, command: list[str], python: str | Path = sys.executable) -> tuple[str, list[int]]:
    """Return what a program prints that ends with 0, and the ranks that used GPUs."""
    command = [str(PROGRAMS / word) if word.endswith(".py") else word for word in command]
    environ = {**environment(tmp_path), "DTYPE": "float16", "PYTHONWARNINGS": "ignore"}
    ended = ran([python, *command], folder=tmp_path, environ=environ, timeout_s=380, code=0)
    return ended.stdout, [rank["rank"] for rank in Usage.read(tmp_path).ranks]
