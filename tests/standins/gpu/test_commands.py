"""Commands that put stand-in GPUs under what they start: a shell, verify, and the runtime's own paths for GPUs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.gpu_scripts import alone, environment, values
from tests.support.local_runs import Here
from trainjob.contract.paths import RunPaths
from trainjob.records import checkpoints
from trainjob.rehearse.gpus import Usage
from trainjob.train.recording import safetensors

pytestmark = pytest.mark.timeout(400, func_only=True)


def test_a_shell_sees_a_nodes_gpus(here: Here, tmp_path: Path) -> None:
    reported, shell = tmp_path / "told", tmp_path / "shell"
    ask = "import torch; print(torch.cuda.device_count(), torch.ones(1).cuda().device)"
    shell.write_text(f"#!/bin/sh\nnvidia-smi -L >{reported}\npython -c '{ask}' >>{reported}\nexit 5\n")
    shell.chmod(0o755)
    here.run("rehearse", "--cluster", "slurm-gpu", "--shell", code=5, environ={"SHELL": str(shell)})
    lines = reported.read_text().splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    assert lines[-1] == "4 cuda:0"


def test_a_shell_has_them_under_the_torch_of_the_activated_virtualenv(here: Here, tmp_path: Path) -> None:
    asked, shell, python = tmp_path / "asked", tmp_path / "shell", tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >>{asked}\nexec {sys.executable} "$@"\n')
    shell.write_text(f"#!/bin/sh\ncommand -v python >{tmp_path / 'told'}\n")
    for program in (python, shell):
        program.chmod(0o755)
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    here.run("rehearse", "--cluster", "slurm-gpu", "--shell", environ={"SHELL": str(shell), "PATH": path})
    assert "-m trainjob_gpu" in asked.read_text().splitlines()
    assert (tmp_path / "told").read_text() == f"{python}\n"


def test_verify_compares_stand_in_gpus_with_one(here: Here) -> None:
    verdict = here.json("verify", "--cluster", "slurm-gpu", "--instances", "2", "--updates", "2", "--keep")
    assert (verdict["equal"], verdict["engine"], verdict["instances"]) == (True, "ddp", 2)
    assert ["--accelerator gpu" in (Path(run) / "job.sh").read_text() for run in verdict["runs"]] == [True] * 2


# Says what reaches the GPU from pinned memory, and in what the model's last layer computes.
TELLS = """
import torch
from trainjob.train.tasks.digits_cnn import DigitsCnn

class Tells(DigitsCnn):
    def loss(self, outputs, targets):
        if torch.is_grad_enabled():
            print("computes in", outputs.dtype, "on", outputs.device)
        return super().loss(outputs, targets)

move = torch.Tensor.to
def watched(tensor, *to, **how):
    if torch.is_grad_enabled() and how.get("non_blocking") and not tensor.is_cuda:
        print("copied from", "pinned" if tensor.is_pinned() else "pageable", "memory")
    return move(tensor, *to, **how)
torch.Tensor.to = watched
"""


def test_the_runtime_trains_in_16_bits_on_gpus_of_its_own(here: Here, tmp_path: Path) -> None:
    here.write("tells.py", TELLS)
    (here.project / "clusters").mkdir()
    cluster = here.project / "clusters" / "here.yaml"
    cluster.write_text("kind: local\naccelerator: gpu\naccelerators: 2\n")
    gpus = {**environment(tmp_path, 2), "CUDA_VISIBLE_DEVICES": "0,1"}
    given = {name: gpus[name] for name in gpus if name.startswith("TRAINJOB_STANDIN") or name in ("PATH", "PYTHONPATH")}
    given["CUDA_VISIBLE_DEVICES"] = "0,1"
    job = "--cluster here --instances 2 --updates 3 --task tells:Tells --data digits --micro-batch 4 --precision 16.16"
    here.run("submit", *job.split(), "--no-check", "--follow", environ=given)
    status = here.json("status", "last")
    assert status["state"] == "COMPLETED"
    run = RunPaths(status["folder"])
    # What comes before is a trial of the model.
    _, begin, trained = run.rank_log(0).read_text().partition("engine ddp on cuda:0, 2 instances")
    assert begin
    assert trained.count("computes in torch.float16 on cuda:0") == trained.count("computes in") == 3
    assert trained.count("copied from pinned memory") == trained.count("copied from") == 6  # inputs and targets
    (newest, *_) = checkpoints.folders(run.checkpoints)
    kept = safetensors.load(newest / "training.safetensors")
    assert kept["precision/scale"].item() >= 1  # float16 by autocast, with a scaler
    ranks = Usage.read(tmp_path).ranks
    assert [list(rank["gpus"]) for rank in ranks] == [["0"], ["1"]]
    reduced = {(row["kind"], row["dtype"]) for rank in ranks for row in rank["collectives"]}
    assert ("all_reduce", "Float") in reduced  # the world is NCCL's, and gradients have the weights' type


def test_autocast_computes_in_the_type_of_the_precision(tmp_path: Path) -> None:
    script = """
import json, torch
from trainjob.train.engines import precision
device, model = torch.device("cuda"), torch.nn.Linear(4, 2).cuda()
for name in ("32.32", "16.32", "16.16", "bf16"):
    numerics = precision.build(name, model, device)
    with numerics.during_forward():
        outputs = model(numerics.inputs(torch.ones(1, 4, device=device)))
        loss = torch.nn.functional.cross_entropy(outputs, torch.zeros(1, dtype=torch.int64, device=device))
    print(json.dumps([name, str(outputs.dtype), str(loss.dtype), str(model.weight.dtype)]))
"""
    assert values(alone(tmp_path, script)) == [
        [name, f"torch.{layers}", "torch.float32", "torch.float32"]
        for name, layers in (("32.32", "float32"), ("16.32", "float32"), ("16.16", "float16"), ("bf16", "bfloat16"))
    ]
