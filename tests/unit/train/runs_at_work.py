"""Run directories as the command line makes them, and ranks started as launch.py starts them."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch

from trainjob.contract import checkpoints, tasks
from trainjob.contract.files import read_json_lines
from trainjob.contract.job import JobRecord, TrainSettings
from trainjob.contract.paths import RunPaths

PACKAGE = Path(__file__).resolve().parents[3] / "trainjob"
# Generous: two cores may be shared with other tests. A test that waits this long has failed.
PATIENCE_S = 100
# As the ranks that are started: two threads that wait for each other stand still on a busy machine.
torch.set_num_threads(1)


def settings(**changes) -> TrainSettings:
    task = changes.setdefault("task", "digits-cnn")
    facts = tasks.facts(task) or tasks.UNKNOWN
    instances = changes.setdefault("instances", 1)
    options = changes.setdefault("task_options", {})
    values = {
        "entry": facts.entry,
        "data": facts.data,
        "engine": "ddp" if instances > 1 else "single",
        "replicas": instances,
        "ipus_per_replica": 1,
        "micro_batch": 4,
        "accumulation": 1,
        "device_iterations": 1,
        "epochs": None if "updates" in changes else 1,
        "updates": None,
        "remainder": "drop",
        "samples": options.get("samples", facts.samples),
        "optimizer": facts.optimizer,
        "learning_rate": facts.learning_rate,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "schedule": "cosine",
        "warmup_updates": 0,
        "reduction": "mean",
        "precision": "32.32",
        "eight_bit_io": False,
        "bucket_mb": 25,
        "workers": 0,
        "seed": 0,
        "checkpoint_every": 0,
        "keep_checkpoints": 3,
        "log_every": 10,
        "allow_unused_parameters": False,
    }
    return TrainSettings(**{**values, **changes})


def make_run(folder: Path, project: dict | None = None, **changes) -> RunPaths:
    """Return a run directory with job.json and code/; `project` maps file names to text."""
    paths = RunPaths(folder)
    paths.code.mkdir(parents=True)
    paths.logs.mkdir()
    (paths.code / "trainjob").symlink_to(PACKAGE)
    write_job(paths, **changes)
    paths.attempt.write_text("1\n")
    for name, text in (project or {}).items():
        paths.project.mkdir(exist_ok=True)
        (paths.project / name).write_text(text)
    return paths


def write_job(paths: RunPaths, **changes) -> None:
    record = JobRecord(name="test", asked={}, plan={}, train=settings(**changes), command=None)
    paths.job.write_text(record.to_json())


def start(
    paths: RunPaths,
    instances: int = 1,
    attempt: int = 1,
    python: str = sys.executable,
    command=(),
    by_rank=None,
    **environ,
):
    """Start all ranks of one attempt and return their processes; `by_rank`: more environment for each."""
    command = command or [python, "-W", "error", "-m", "trainjob.train", str(paths.folder)]
    paths.attempt.write_text(f"{attempt}\n")
    port = free_port()
    own = by_rank or [{}] * instances
    return [
        _start_rank(paths, rank, instances, attempt, port, command, {**environ, **own[rank]})
        for rank in range(instances)
    ]


def _start_rank(paths, rank, instances, attempt, port, command, environ):
    told = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": instances,
        "LOCAL_WORLD_SIZE": instances,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TRAINJOB_RUN_DIR": paths.folder,
        "TRAINJOB_ATTEMPT": attempt,
        "TRAINJOB_RANK_DEVICE": "cpu",
        "OMP_NUM_THREADS": 1,
        **environ,
    }
    with open(paths.rank_log(rank), "ab") as log:
        return subprocess.Popen(
            command,
            cwd=paths.code,
            env={**os.environ, **{name: str(value) for name, value in told.items()}},
            stdout=log,
            stderr=log,
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def finish(ranks, timeout_s: float = PATIENCE_S):
    """Return the exit codes, after ending what does not end by itself."""
    limit = time.monotonic() + timeout_s
    try:
        return [rank.wait(max(0.1, limit - time.monotonic())) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def train(paths: RunPaths, instances: int = 1, attempt: int = 1, **more):
    """Return the exit codes of one attempt."""
    return finish(start(paths, instances, attempt, **more))


def wait_for(what, ranks=(), timeout_s: float = PATIENCE_S):
    """Return the first true value of `what()`; fails when the ranks end before, or time is up."""
    limit = time.monotonic() + timeout_s
    while time.monotonic() < limit:
        found = what()
        if found:
            return found
        assert all(rank.poll() is None for rank in ranks), [rank.poll() for rank in ranks]
        time.sleep(0.02)
    raise AssertionError(f"waited {timeout_s} s in vain")


def log(paths: RunPaths, rank: int = 0) -> str:
    return paths.rank_log(rank).read_text()


def lines(paths: RunPaths, kind: str) -> list:
    return [line for line in read_json_lines(paths.metrics) if line["kind"] == kind]


def updates(paths: RunPaths) -> list:
    """Return the updates of all checkpoints, newest first."""
    return [checkpoints.update_of(folder) for folder in checkpoints.folders(paths.checkpoints)]


def final_bytes(paths: RunPaths) -> dict:
    """Return the checksums of the newest checkpoint's tensors: equal where every bit is."""
    folder = checkpoints.folders(paths.checkpoints)[0]
    facts = json.loads((folder / checkpoints.INDEX).read_text())["files"]
    return {name: one["sha256"] for name, one in facts.items()}


def copy_run(paths: RunPaths, folder: Path) -> RunPaths:
    shutil.copytree(paths.folder, folder, symlinks=True)
    return RunPaths(folder)


def train_here(paths: RunPaths, attempt: int = 1, **environ) -> int:
    """Return the exit code of one rank that trains in this very process: a second sooner than another one."""
    from trainjob.train.main import main

    told = {"TRAINJOB_ATTEMPT": attempt, "TRAINJOB_RANK_DEVICE": "cpu", **environ}
    folder, path, modules = Path.cwd(), list(sys.path), set(sys.modules)
    try:
        return main(["train", str(paths.folder)], {name: str(value) for name, value in told.items()})
    finally:
        os.chdir(folder)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(paths.folder)):
                del sys.modules[name]


def tensors(paths: RunPaths) -> dict:
    """Return the weights of the newest checkpoint."""
    from trainjob.train import safetensors

    return safetensors.load(checkpoints.folders(paths.checkpoints)[0] / checkpoints.MODEL)
