"""Run directories as the command line makes them, and ranks started as launch.py starts them."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tests.support import ROOT
from tests.support.forked_ranks import ForkedRank, fork_rank
from tests.support.records import record
from trainjob.contract import tasks
from trainjob.contract.paths import RunPaths
from trainjob.launch.rank_environment import free_port
from trainjob.records import checkpoints
from trainjob.records.files import read_json_lines
from trainjob.records.job import TrainSettings

Rank = subprocess.Popen[bytes] | ForkedRank
PACKAGE = ROOT / "trainjob"
# Generous: two cores may be shared with other tests. A test that waits this long has failed.
PATIENCE_S = 200
# As the ranks that are started: two threads that wait for each other stand still on a busy machine.
torch.set_num_threads(1)


def settings(**changes: Any) -> TrainSettings:
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


def make_run(folder: Path, project: dict[str, str] | None = None, **changes: Any) -> RunPaths:
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


def write_job(paths: RunPaths, **changes: Any) -> None:
    train = settings(**changes)
    paths.job.write_text(record(train.instances, train).to_json())


def start(
    paths: RunPaths,
    instances: int = 1,
    attempt: int = 1,
    python: str | None = None,
    command: Sequence[str] = (),
    by_rank: Sequence[Mapping[str, Any]] | None = None,
    **environ: Any,
) -> list[Rank]:
    """Start all ranks of one attempt and return their processes; `by_rank`: more environment for each.

    In interpreters of their own where `python` names one, and forked otherwise: which saves seconds.
    """
    words = command or ([python, "-W", "error", "-m", "trainjob.train", str(paths.folder)] if python else [])
    paths.attempt.write_text(f"{attempt}\n")
    # By the token, ranks meet in a file of the run: nobody can take a port meanwhile.
    shared = {"MASTER_PORT": free_port(os.getpid()), "TRAINJOB_TOKEN": secrets.token_hex(), **environ}
    own = by_rank or [{}] * instances
    return [_start_rank(paths, rank, instances, attempt, words, {**shared, **own[rank]}) for rank in range(instances)]


def _start_rank(
    paths: RunPaths, rank: int, instances: int, attempt: int, command: Sequence[str], environ: dict[str, Any]
) -> Rank:
    reported = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": instances,
        "LOCAL_WORLD_SIZE": instances,
        "MASTER_ADDR": "127.0.0.1",
        "TRAINJOB_RUN_DIR": paths.folder,
        "TRAINJOB_ATTEMPT": attempt,
        "TRAINJOB_RANK_DEVICE": "cpu",
        "OMP_NUM_THREADS": 1,  # the launcher shares the cores out, and these ranks are started without it
        **environ,
    }
    environment = {**os.environ, **{name: str(value) for name, value in reported.items()}}
    with open(paths.rank_log(rank), "ab") as log:
        if not command:
            return fork_rank(paths.folder, paths.code, log.fileno(), environment)
        return subprocess.Popen(command, cwd=paths.code, env=environment, stdout=log, stderr=log)


def finish(ranks: Sequence[Rank], timeout_s: float = PATIENCE_S) -> list[int]:
    """Return the exit codes, after ending what does not end by itself."""
    limit = time.monotonic() + timeout_s
    try:
        return [rank.wait(max(0.1, limit - time.monotonic())) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def train(paths: RunPaths, instances: int = 1, attempt: int = 1, **more: Any) -> list[int]:
    """Return the exit codes of one attempt."""
    return finish(start(paths, instances, attempt, **more))


def wait_for(what: Callable[[], Any], ranks: Sequence[Rank] = (), timeout_s: float = PATIENCE_S) -> Any:
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


def lines(paths: RunPaths, kind: str) -> list[Any]:
    return [line for line in read_json_lines(paths.metrics) if line["kind"] == kind]


def updates(paths: RunPaths) -> list[int]:
    """Return the updates of all checkpoints, newest first."""
    return [checkpoints.update_of(folder) for folder in checkpoints.folders(paths.checkpoints)]


def final_bytes(paths: RunPaths) -> dict[str, str]:
    """Return the checksums of the newest checkpoint's tensors: equal where every bit is."""
    folder = checkpoints.folders(paths.checkpoints)[0]
    facts = json.loads((folder / checkpoints.INDEX).read_text())["files"]
    return {name: one["sha256"] for name, one in facts.items()}


def train_here(paths: RunPaths, attempt: int = 1, **environ: Any) -> int:
    """Return the exit code of one rank that trains in this very process: a second sooner than another one."""
    from trainjob.train.main import main

    reported = {"TRAINJOB_ATTEMPT": attempt, "TRAINJOB_RANK_DEVICE": "cpu", **environ}
    folder, path, modules = Path.cwd(), list(sys.path), set(sys.modules)
    try:
        return main(["train", str(paths.folder)], {name: str(value) for name, value in reported.items()})
    finally:
        os.chdir(folder)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(paths.folder)):
                del sys.modules[name]


def tensors(paths: RunPaths) -> dict[str, torch.Tensor]:
    """Return the weights of the newest checkpoint."""
    from trainjob.train.recording import safetensors

    parts = checkpoints.folders(paths.checkpoints)[0].glob("model*.safetensors")
    return {name: tensor[...] for name, tensor in safetensors.stored(parts).items()}
