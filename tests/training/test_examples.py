"""The files of examples/ do what the documentation shows, on this machine."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest

from docs.outputs import EXAMPLES
from tests.support.local_runs import Here, Run
from tests.support.programs import ran


@pytest.fixture
def project(here: Here) -> Here:
    """Return a user in the examples' own folder, below the top of a repository."""
    for example in EXAMPLES.iterdir():
        here.write(f"examples/{example.name}", example.read_text())
    here.project = here.project / "examples"
    return here


def printed(run: Run) -> str:
    return "".join(run.log(rank) for rank in range(2))


def test_plain_ddp_lowers_the_loss(project: Here) -> None:
    losses = re.findall(r"step \d+: loss (\S+)", printed(project.follow("python", "ddp.py")))
    assert len(losses) == 2
    assert float(losses[1]) < float(losses[0])


def test_fsdp2_shards_the_weights(project: Here) -> None:
    held = re.findall(r"rank \d holds (\d+) of 321 weights", printed(project.follow("python", "fsdp2.py")))
    assert sum(map(int, held)) == 321
    assert len(held) == 2


@pytest.mark.parametrize(
    ("package", "script", "message"),
    [
        ("transformers", "hf_trainer.py", "process {} of 2 has finished"),
        ("lightning", "lightning_trainer.py", "rank {} of 2 has finished"),
    ],
)
def test_a_framework_finds_its_two_ranks(project: Here, package: str, script: str, message: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    reported = printed(project.follow("python", script))
    assert all(message.format(rank) in reported for rank in range(2))


def test_jpegs_are_made_prepared_and_learned(project: Here) -> None:
    pytest.importorskip("PIL")
    subprocess.run([sys.executable, "make_jpegs.py"], cwd=project.project, check=True)
    place = ("--kind", "imagefolder", "--from", "squares", "--shape", "3x40x40")
    assert project.run("data", "prepare", "squares", *place).returncode == 0
    job = ("--task", "jpeg_task:Jpegs", "--data", "squares", "--micro-batch", "8", "--epochs", "4")
    run = project.follow(flags=(*job, "--learning-rate", "0.01"))
    assert project.json("report", run.id)["held_out_accuracy"] > 0.6


def test_the_sweep_and_the_job_for_a_pod_fit_their_clusters(project: Here) -> None:
    sweep = project.json("plan", "--cluster", "slurm-gpu", "--job", "sweep_job.yaml", "--sweep", "rates.yaml")
    assert "3 elements" in sweep["facts"]["array"]
    pod = project.json("plan", "--cluster", "pod16", "--job", "cifar10_pod.yaml")
    assert (pod["topology"]["replicas"], pod["batch"]["global_batch"]) == (16, 512)


@pytest.mark.full
def test_cifar10_trains_on_a_rehearsed_pod(project: Here) -> None:
    few = ("--data", "synthetic", "--samples", "64", "--updates", "1", "--global-batch", "64")
    verdict = project.json("rehearse", "--cluster", "pod16", "--job", "cifar10_pod.yaml", *few)
    assert (verdict["passed"], verdict["update"]) == (True, 1)


def test_a_program_submits_and_waits(project: Here) -> None:
    words = [sys.executable, "submit_rates.py"]
    ended = ran(words, folder=project.project, environ=project.environ, code=0)
    assert ended.stdout == "learning rate 0.001: COMPLETED\nlearning rate 0.01: COMPLETED\n"
