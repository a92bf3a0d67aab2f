"""A user beside a private Slurm: renders with the real command, submits with plain sbatch, looks at the folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local_runs import Here, Run
from waiting import until

from trainjob.cluster.models import CLUSTER, SlurmCluster
from trainjob.contract import checkpoints
from trainjob.contract.environment import REDIRECTS
from trainjob.contract.paths import RunPaths
from trainjob.rehearse.slurm.private import PrivateSlurm
from trainjob.submit import process
from trainjob.train import safetensors

# A healthy job of these tests takes seconds on a quiet machine.
LIMIT_S = 400.0

GPU_NODES = {"count": 4, "accelerator": "gpu", "accelerators": 4, "cpus": 64, "memory_gb": 100}
ONE_RANK_NODES = {"count": 4, "accelerator": "gpu", "accelerators": 1, "cpus": 4, "memory_gb": 100}


def cluster_file(**values: Any) -> dict[str, Any]:
    return {"kind": "slurm", "nodes": GPU_NODES, "time_limit": "00:30:00", "runs_dir": "/shared/runs", **values}


def parsed(values: Mapping[str, Any]) -> SlurmCluster:
    found = CLUSTER.validate_python(dict(values))
    assert isinstance(found, SlurmCluster)
    return found


def redirects(**more: str) -> dict[str, str]:
    """Return what sbatch's environment holds in a rehearsal."""
    chosen = {
        "TRAINJOB_PYTHON": sys.executable,
        "TRAINJOB_PROLOGUE": "skip",
        "TRAINJOB_DEVICE": "cpu",
        "PATH": process.search_path(),
        **more,
    }
    return {**chosen, "SBATCH_EXPORT": ",".join((*chosen, "SBATCH_EXPORT"))}


class Login:
    """A user's folders on the login node of a private Slurm."""

    def __init__(self, here: Here, slurm: PrivateSlurm, **values: Any) -> None:
        self.here = here
        self.slurm = slurm
        self.rendered = 0
        self.programs: Path | None = None  # a folder that jobs find programs in, before any other
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

    def is_over(self, job: str) -> bool:
        return not self.slurm.run(["squeue", "--noheader", f"--jobs={job}"], check=False).text.strip()

    def wait(self, job: str, limit_s: float = LIMIT_S) -> None:
        until(lambda: self.is_over(job), f"job {job} to leave the queue", limit_s)

    def finished(self, *words: str, **redirected: str) -> Run:
        """Return the run of a job that has left the queue, COMPLETED."""
        run, job = self.submit(*words, **redirected)
        self.wait(job)
        assert run.word("state") == "COMPLETED", everything_said(run)
        return run


def everything_said(run: Run) -> str:
    """Return what the script and the ranks have printed, for the message of a failing test."""
    said = [f"state {run.word('state')!r}"]
    for log in sorted((run.folder / "logs").glob("*")):
        said.append(f"== {log.name}\n{log.read_text(errors='replace')[-3000:]}")
    return "\n".join(said)


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
