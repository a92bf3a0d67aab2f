"""A user beside a private Slurm: renders with the real command, submits with plain sbatch, looks at the folder."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.local_runs import Here, Run
from tests.support.waiting import until
from trainjob.contract.environment import REDIRECTS
from trainjob.contract.paths import RunPaths
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.kinds.table import cluster_of
from trainjob.machines import process
from trainjob.records import checkpoints
from trainjob.rehearse.slurm import faults
from trainjob.rehearse.slurm.private import PrivateSlurm
from trainjob.train.recording import safetensors

# A healthy job of these tests takes seconds on a quiet machine.
LIMIT_S = 400.0
POLL_S = 0.2
# A job may begin and be requeued between two looks: one that is held back for so long is helped again.
HELPED_AGAIN_S = 20.0

GPU_NODES = {"count": 4, "accelerator": "gpu", "accelerators": 4, "cpus": 64, "memory_gb": 100}
ONE_RANK_NODES = {"count": 4, "accelerator": "gpu", "accelerators": 1, "cpus": 4, "memory_gb": 100}


def cluster_file(**values: Any) -> dict[str, Any]:
    return {"kind": "slurm", "nodes": GPU_NODES, "time_limit": "00:30:00", "runs_dir": "/shared/runs", **values}


def parsed(values: Mapping[str, Any]) -> SlurmCluster:
    found = cluster_of(dict(values))
    assert isinstance(found, SlurmCluster)
    return found


def redirects(**more: str) -> dict[str, str]:
    """Return the environment that `trainjob rehearse` gives sbatch.

    SBATCH_EXPORT lets it through the script's own --export=NONE. A real submission sets none of it.
    """
    chosen = {
        "TRAINJOB_PYTHON": sys.executable,
        "TRAINJOB_PROLOGUE": "skip",
        "TRAINJOB_DEVICE": "cpu",
        "PATH": process.search_path(),
        **more,
    }
    return {**chosen, "SBATCH_EXPORT": ",".join((*chosen, "SBATCH_EXPORT"))}


def is_over(slurm: PrivateSlurm, job: str) -> bool:
    """Return whether a job, or the last element of an array, has left the queue."""
    # All are listed: asked for a job that it has forgotten, squeue fails as it does where the controller is busy.
    return job not in slurm.run(["squeue", "--noheader", "--format=%A %F"]).text.split()


class Login:
    """A user's folders on the login node of a private Slurm."""

    def __init__(self, here: Here, slurm: PrivateSlurm, **values: Any) -> None:
        self.here = here
        here.patience_s = LIMIT_S
        self.slurm = slurm
        self.rendered = 0
        self.programs: Path | None = None  # a folder that jobs find programs in, before any other
        self._helped: dict[str, float] = {}
        (here.project / "clusters").mkdir(exist_ok=True)
        self.cluster("hpc", **values)

    def cluster(self, name: str, **values: Any) -> None:
        """Write a cluster file of the user's; JSON is YAML, too."""
        (self.here.project / "clusters" / f"{name}.yaml").write_text(json.dumps(cluster_file(**values)))

    def render(self, *words: str, cluster: str = "hpc") -> Run:
        self.rendered += 1
        folder = self.here.folder / f"run-{self.rendered}"
        self.here.run("render", "--cluster", cluster, "-o", str(folder), *words)
        return Run(self.here, folder)

    def sbatch(self, run: Run, *options: str, **redirected: str) -> str:
        """Return the id of the job, whose folder's own script is handed over."""
        assert set(redirected) <= set(REDIRECTS) | {"OWN"}
        asked = ["sbatch", "--parsable", *options, "job.sbatch"]
        environment = redirects(**redirected)
        if self.programs:
            environment["PATH"] = f"{self.programs}:{environment['PATH']}"
        sent = self.slurm.run(asked, folder=run.folder, environment=environment)
        return sent.text.strip()

    def submit(self, *words: str, cluster: str = "hpc", **redirected: str) -> tuple[Run, str]:
        run = self.render(*words, cluster=cluster)
        return run, self.sbatch(run, **redirected)

    def wait(self, job: str, limit_s: float = LIMIT_S) -> None:
        until(lambda: is_over(self.slurm, job), f"job {job} to leave the queue", limit_s, POLL_S)

    def ended(self, run: Run, job: str) -> str:
        """Return the state of a run, once its job has left the queue and nothing of it is left."""
        self.wait(job)
        run.wait_until_nothing_is_left()
        return run.word("state")

    def saves_and_goes_on(self, run: Run, job: str) -> None:
        """Ask a run of role_programs.py to save, and let its second attempt finish where the first one was."""
        self.slurm.run(["scancel", "--batch", "--signal=USR1", job])
        until(lambda: self.queue() and run.word("attempt") == "2", "the second attempt", LIMIT_S, POLL_S)
        step = int(run.word("checkpoint.pt"))
        until(lambda: f"step {step + 1}\n" in run.log(0), "it to go on", LIMIT_S, POLL_S)
        (run.folder / "finish").touch()
        assert self.ended(run, job) == "COMPLETED", everything_printed(run)

    def queue(self) -> list[str]:
        """Return the names of the jobs in the queue. What Slurm holds back after a requeue is told to begin soon."""
        lines = self.slurm.run(["squeue", "--noheader", "--format=%T|%r|%i|%j"]).text.splitlines()
        jobs = [line.split("|", 3) for line in lines]
        # A job that was told shows no reason for a while: to tell it again then would put its start off for ever.
        waiting = {job for state, _, job, _ in jobs if state == "PENDING"}
        self._helped = {job: at for job, at in self._helped.items() if job in waiting}
        for job in (job for _, reason, job, _ in jobs if reason == "BeginTime"):
            if time.monotonic() - self._helped.get(job, -HELPED_AGAIN_S) >= HELPED_AGAIN_S:
                self._helped[job] = time.monotonic()
                faults.start_soon(self.slurm, job)
        return [name for *_, name in jobs]

    def finished(self, *words: str, **redirected: str) -> Run:
        """Return the run of a job that has left the queue, COMPLETED."""
        run, job = self.submit(*words, **redirected)
        self.wait(job)
        assert run.word("state") == "COMPLETED", everything_printed(run)
        return run


def everything_printed(run: Run) -> str:
    """Return what the script and the ranks have printed, for the message of a failing test."""
    output = [f"state {run.word('state')!r}"]
    for log in sorted((run.folder / "logs").glob("*")):
        output.append(f"== {log.name}\n{log.read_text(errors='replace')[-3000:]}")
    return "\n".join(output)


def parameters(run: Run) -> dict[str, Any]:
    """Return the parameters of a run's newest checkpoint: tensors by name, and after which update."""
    newest = checkpoints.folders(RunPaths(run.folder).checkpoints)[0]
    return {"update": checkpoints.update_of(newest), **safetensors.load(newest / checkpoints.MODEL)}


def largest_difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return by how much any parameter differs, relative to the largest of its tensor."""
    assert one.keys() == other.keys()
    assert one["update"] == other["update"]
    names = one.keys() - {"update"}
    assert names
    return max(float((one[name] - other[name]).abs().max() / one[name].abs().max().clamp(min=1e-30)) for name in names)
