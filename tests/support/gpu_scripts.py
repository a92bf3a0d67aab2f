"""Runs scripts on stand-in GPUs: unmodified ones, as ranks of one host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from trainjob.rehearse import gpus

_LIMIT_S = 150.0
_distributed: Any = torch.distributed  # it does not export all of its names

# How the ranks of a script meet, as those of PyTorch's tutorials do.
BEGIN = """import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
"""


class Ended(NamedTuple):
    """How one rank has ended."""

    code: int
    out: str
    err: str


def environment(folder: Path, count: int = 4) -> dict[str, str]:
    """Return the environment of a node with `count` stand-in GPUs, whose ranks leave their summaries in `folder`."""
    return {**os.environ, **gpus.environment(folder, count, "a100"), "OMP_NUM_THREADS": "1"}


def alone(folder: Path, script: str, count: int = 4, **more: str) -> Ended:
    """Run one process; its exit code is the test's to judge."""
    return _ended(_start(folder, script, {**environment(folder, count), **more}))


def ranks(folder: Path, script: str, world: int = 2, count: int = 4, **more: str) -> list[Ended]:
    """Run `world` ranks of one host; once rank 0 has failed, the others are ended, as a launcher does.

    They meet as torchrun's do, in a store that stands before they begin: nobody else can take its port.
    """
    store = _distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    shared = {**environment(folder, count), **meet, "WORLD_SIZE": str(world), **more}
    started = [_start(folder, script, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(world)]
    try:
        first = _ended(started[0])
        if first.code != 0:
            for process in started[1:]:
                process.terminate()
        return [first, *(_ended(process) for process in started[1:])]
    finally:
        for process in started:
            process.kill()


def values(ended: Ended) -> list[object]:
    """Return what a script that went well printed, line by line as JSON."""
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def _start(folder: Path, script: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    path = folder / "script.py"
    path.write_text(script)
    return subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=folder,
        env=dict(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _ended(process: subprocess.Popen[str]) -> Ended:
    try:
        out, err = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"a rank was still running after {_LIMIT_S:g} s:\n{out}\n{err}") from None
    return Ended(process.returncode, out, err)
