"""Replays histories on a real Slurm, and compares what becomes of their runs: `python -m simulation.replay --seeds 5`.

A history here is what a private Slurm can be made to do, at moments that both know: after the first checkpoint of an
attempt, and once the run has ended. The ranks train for real.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from simulation import history, ranks
from simulation.slurm import Job, Site
from trainjob.backends.slurm import queue
from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import cancel as cancelling
from trainjob.lifecycle import prune as pruning
from trainjob.records import attempts, checkpoints, progress
from trainjob.rehearse.slurm import faults
from trainjob.rehearse.slurm.description import PREEMPTING_PARTITION, Description, SlurmPartition
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

# Slurm starts the run again by itself after these, and a user resumes it after those.
GOES_ON = ("requeue", "preempt", "time limit", "last node")
ENDS = ("scancel", "cancel", "stop", "rank dies")
_TIME_LIMIT = "01:00:00"
_LIMIT_S = 900.0
_POLL_S = 0.5
_HELPED_AGAIN_S = 30.0
_NODES = 4
# It trains slowly while its run directory has a file `slow`: whatever befalls it finds it at work.
_TASK = """\
import os, time
import torch
from torch import nn

class Slow:
    def build_model(self):
        return nn.Linear(8, 2)

    def open_data(self, place):
        inputs = torch.rand(256, 8, generator=torch.Generator().manual_seed(1))
        return torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 4).long())

    def loss(self, outputs, targets):
        if os.path.exists(os.environ["TRAINJOB_RUN_DIR"] + "/slow"):
            time.sleep(1.0)
        return nn.functional.cross_entropy(outputs, targets)
"""
_JOB: tuple[str, ...] = (
    "--task",
    "slow:Slow",
    "--hosts",
    "2",
    "--instances",
    "2",
    "--micro-batch",
    "4",
    "--updates",
    "300",
)
_JOB += ("--checkpoint-every", "2", "--env", "OMP_NUM_THREADS=1")


class Outcome(NamedTuple):
    """What has become of a run."""

    ended_as: tuple[str, ...]  # the state after each of its ends
    attempts: int
    jobs: int
    durable_never_decreases: bool
    is_pruned: bool


def moves(seed: int) -> list[str]:
    """Return what befalls the run of a seed, one of them in each attempt."""
    draw = random.Random(f"{seed}/replay")
    drawn = draw.choices(GOES_ON + ENDS, k=draw.randint(1, 3))
    # Four nodes, of which the run needs two, bear the loss of one.
    return [one for number, one in enumerate(drawn) if one != "last node" or one not in drawn[:number]]


# -- in the simulated world --------------------------------------------------------------------------------------------


def simulated(seed: int, where: history.Place) -> Outcome:
    """Return what becomes of the run in the simulated world."""
    one = history.History(seed, where)
    world, slurm = one.world, one.slurm
    slurm.site, one.clients.clocks = Site(trouble=0.0), {}
    one.job = where.job("requeue", _TIME_LIMIT, follow_up=False)
    slurm.plan_start, slurm.plan_step = lambda _job: ([], None), lambda _job, step: one.checker.watch(step)
    ended_as: list[str] = []
    beyond = 0
    try:
        with one.clients.instead_of_the_real():
            one.do("submit", one._submit)
            paths = one.runs()[0]

            def has_ended() -> bool:
                return one._is_quiet(paths)

            for number, move in enumerate(moves(seed), 1):
                world.run(partial(_has_trained, paths, number, beyond), _LIMIT_S * 10)
                beyond = one.checker.truth(paths.folder).durable
                job = next(job for job in slurm.jobs.values() if job.state == "RUNNING")
                _befalls(one, job, paths, move)
                if move in ENDS:
                    world.run(has_ended, _LIMIT_S * 10)
                    ended_as.append(attempts.load_state(paths) or "")
                    one.do("resume", lambda: one._resume_run(paths))
            world.run(has_ended, _LIMIT_S * 10)
            ended_as.append(attempts.load_state(paths) or "")
            last, jobs = attempts.current(paths), len(slurm.of_run(paths.folder))
            world.run(limit_s=60.0)
            one.do(
                "prune",
                lambda: pruning.remove(pruning.candidates(older_than=timedelta(0), in_states=states.ENDED, keep=0)),
            )
    finally:
        one.scripts.close()
    never_decreases = not any("durable progress" in line for line in world.violations)
    return Outcome(tuple(ended_as), last, jobs, never_decreases, not paths.folder.exists())


def _befalls(one: history.History, job: Job, paths: RunPaths, move: str) -> None:
    slurm = one.slurm
    if move == "rank dies" and job.step is not None:
        job.step.fails_at, job.step.fails_as = job.step.update, ranks.KILLED
    elif move == "time limit":
        slurm._near_limit(job, job.starts)
    elif move == "last node":
        slurm.fail_node(job, 1, is_cut=False)
    elif move in ("cancel", "stop"):
        work = {"cancel": lambda: cancelling.cancel(paths, grace_s=30.0), "stop": lambda: cancelling.stop(paths)}[move]
        one.do(move, work)
    else:
        {"requeue": slurm.requeue_by_hand, "preempt": slurm.preempt, "scancel": slurm.administrator_cancels}[move](job)


def _has_trained(paths: RunPaths, attempt: int, beyond: int) -> bool:
    """Return whether this attempt has written a checkpoint of a later update than `beyond`."""
    found = progress.load(paths)
    return found is not None and found.attempt == attempt and (found.durable_update or 0) > beyond


# -- on a real Slurm ---------------------------------------------------------------------------------------------------


class Replay:
    """A user beside a private Slurm, who submits one run; `see` follows what is true of it meanwhile."""

    def __init__(self, slurm: PrivateSlurm, folder: Path) -> None:
        self._slurm, self._folder = slurm, folder
        self._environment = {
            "PATH": os.environ["PATH"],
            "XDG_DATA_HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder / "home"),
        }
        cluster = {
            "kind": "slurm",
            "nodes": {"count": _NODES, "accelerator": "cpu", "accelerators": 0, "cpus": 4, "memory_gb": 8},
            "directives": {"partition": "main"},
            "time_limit": _TIME_LIMIT,
            "preemption": "requeue",
            "python": sys.executable,
            "network": {"interface": "lo"},
            "runs_dir": str(folder / "runs"),
            "node_check": False,
        }
        (folder / "clusters").mkdir(parents=True)
        (folder / "clusters/real.yaml").write_text(json.dumps(cluster))  # JSON is YAML, too
        (folder / "slow.py").write_text(_TASK)
        self.paths = RunPaths(Path(self._trainjob("submit", "--cluster", "real", *_JOB, "--json")["folder"]))
        (self.paths.folder / "slow").touch()
        self.durable: list[int] = []
        self.jobs: dict[str, queue.Job] = {}
        self._helped_at = -_HELPED_AGAIN_S

    def _trainjob(self, *words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "trainjob", *words]
        ended = self._slurm.run(command, folder=self._folder, environment=self._environment, timeout_s=_LIMIT_S)
        return dict(json.loads(ended.text)) if "--json" in words else {}

    def see(self) -> list[queue.Job]:
        """Return the run's jobs that have not ended, and have one that Slurm holds back after a requeue begin soon."""
        shown = self._slurm.run(["scontrol", "show", "job", "-o"], check=False).text
        self.jobs.update((job.id, job) for job in queue.parse_shown(shown) if job.folder == str(self.paths.folder))
        newest = checkpoints.newest(self.paths)
        if newest is not None:
            self.durable.append(checkpoints.update_of(newest))
        at_work = [job for job in self.jobs.values() if not job.has_ended]
        for job in at_work:
            if job.reason == "BeginTime" and time.monotonic() - self._helped_at > _HELPED_AGAIN_S:
                self._helped_at = time.monotonic()
                faults.start_soon(self._slurm, job.id)
        return at_work

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Return once it holds. Raises TimeoutError."""
        deadline = time.monotonic() + _LIMIT_S
        while not holds():
            if time.monotonic() > deadline:
                log = self.paths.scheduler_log.read_text(errors="replace")
                raise TimeoutError(f"{what} took more than {_LIMIT_S:g} s; the job script printed:\n{log[-4000:]}")
            self.see()
            time.sleep(_POLL_S)

    def befalls(self, move: str) -> None:
        """Do to the run's job what a history says."""
        slurm, job = self._slurm, self.see()[0]
        if move == "last node":
            node = slurm.run(["scontrol", "show", "hostnames", job.nodes]).text.split()[-1]
            faults.kill_daemon(slurm, node)
            faults.give_up(slurm, node)
        elif move in ("cancel", "stop"):
            self._trainjob("cancel", self.paths.id, *(["--stop"] if move == "stop" else []))
        elif move == "rank dies":
            faults.kill_rank(self.paths, 1)
        elif move == "requeue":
            slurm.run(["scontrol", "requeue", job.id])
        elif move == "scancel":
            slurm.run(["scancel", job.id])
        elif move == "preempt":
            faults.preempt(slurm)
        else:
            faults.let_time_run_out(slurm, job.id)
            self.until(lambda: attempts.load_state(self.paths) == states.REQUEUED, "the time limit")
            # The limit of a job that was requeued is the one that it had last.
            faults.set_limit(slurm, job.id, _TIME_LIMIT)

    def ends(self) -> str:
        """Return the state in which the run ends."""
        self.until(lambda: attempts.load_state(self.paths) in states.ENDED and not self.see(), "the end of the run")
        return attempts.load_state(self.paths) or ""

    def happens(self, seed: int) -> Outcome:
        """Return what becomes of the run."""
        ended_as: list[str] = []
        every = moves(seed)
        for number, move in enumerate(every, 1):
            beyond = max(self.durable, default=0)
            self.until(partial(_has_trained, self.paths, number, beyond), f"attempt {number} to train")
            self.befalls(move)
            if number == len(every):
                (self.paths.folder / "slow").unlink()
            if move in ENDS:
                ended_as.append(self.ends())
                self._trainjob("resume", self.paths.id)
        ended_as.append(self.ends())
        last = attempts.current(self.paths)
        self._trainjob("prune", "--older-than-days", "0", "--yes")
        never_decreases = self.durable == sorted(self.durable)
        return Outcome(tuple(ended_as), last, len(self.jobs), never_decreases, not self.paths.folder.exists())


@contextmanager
def slurm_for_replays() -> Iterator[PrivateSlurm]:
    """Yield a Slurm on which a job is preempted by requeueing it."""
    main = SlurmPartition("main", preempt_mode="REQUEUE", grace_s=60)
    partitions = (main, SlurmPartition(PREEMPTING_PARTITION, priority_tier=10))
    with private_slurm(Description(nodes=_NODES, memory_mb=8 * 1024, partitions=partitions)) as slurm:
        yield slurm


def on_slurm(seed: int, folder: Path) -> Outcome:
    """Return what becomes of the run on a private Slurm of its own, whose files are in `folder`."""
    with slurm_for_replays() as slurm:
        return Replay(slurm, folder).happens(seed)


def main() -> int:
    """Return 1 if a run does not end as in the simulated world."""
    parser = argparse.ArgumentParser(prog="python -m simulation.replay", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="number of histories")
    parser.add_argument("--first", type=int, default=1, help="the first of their seeds")
    asked = parser.parse_args()
    differ = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        began = time.monotonic()
        with history.place() as where:
            expected = simulated(seed, where)
        with tempfile.TemporaryDirectory(prefix="trainjob-replay-") as folder:
            found = on_slurm(seed, Path(folder))
        differ += found != expected
        word = "agree" if found == expected else f"DIFFER, in the simulated world {expected}"
        print(f"seed {seed}, {', '.join(moves(seed))}: {found}: {word} ({time.monotonic() - began:.0f} s)", flush=True)
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
