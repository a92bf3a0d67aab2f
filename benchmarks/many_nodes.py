"""The seconds that the launchers of a Slurm job take to start its ranks, on more and more nodes.

    python -m benchmarks.many_nodes [NODES …]

A private Slurm has a real daemon for each node. On every number of nodes, 2, 8 and 64 by default, it runs three jobs:
`srun true`, srun of a Python that does nothing, and a job of ours with one rank a node, which prints the time. A job
counts from sbatch until srun has ended, ours until its last rank has begun.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sys
import tempfile
import time
from pathlib import Path

from trainjob.contract import states
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.rehearse.base import Rehearsal, rehearsal
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm
from trainjob.rehearse.slurm.rehearsal import simulated, submit
from trainjob.requests.options import JobOptions
from trainjob.requests.prepared import prepare

_NOTHING = [sys.executable, "-I", "-S", "-c", "pass"]
# Hundreds of daemons on one machine answer more slowly than those of a cluster.
_PATIENT = {"MessageTimeout": "100", "TCPTimeout": "20"}
_LIMIT_S = 600.0


def main(sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        site = {"kind": "slurm", "nodes": {"count": max(sizes), "cpus": 1}, "python": sys.executable}
        Path("site.yaml").write_text(json.dumps(site))
        jobs = {nodes: planned(Path(name), nodes) for nodes in sorted(sizes)}
        largest = jobs[max(sizes)]
        cluster = SlurmCluster.of(largest.request.cluster)
        with simulated(largest, cluster) as place:
            settings = {**place.description.settings, **_PATIENT}
            description = dataclasses.replace(place.description, daemons=None, settings=settings)
            with private_slurm(description) as slurm:
                print(f"{'nodes':>5}{'srun true':>12}{'srun python':>13}{'launch':>10}{'÷ true':>8}{'÷ python':>10}")
                for nodes, job in jobs.items():
                    true_s, python_s = bare_s(slurm, nodes, ["true"]), bare_s(slurm, nodes, _NOTHING)
                    began_at = time.time()
                    ours = submit(job, cluster, slurm, place.environment)
                    ours.follow()
                    assert ours.state == states.COMPLETED, ours.last_output()
                    logs = [ours.paths.rank_log(rank).read_text() for rank in range(nodes)]
                    started = [float(time) for log in logs for time in re.findall(r"^\d+\.\d{9}$", log, re.M)]
                    assert len(started) == nodes, logs
                    launch_s = max(started) - began_at
                    times = f"{true_s:>10.2f} s{python_s:>11.2f} s{launch_s:>8.2f} s"
                    print(f"{nodes:>5}{times}{launch_s / true_s:>8.2f}{launch_s / python_s:>10.2f}", flush=True)


def planned(folder: Path, nodes: int) -> Rehearsal:
    values = {"instances": nodes, "command": ["date", "+%s.%N"]}
    return rehearsal(prepare(JobOptions("./site.yaml", None, values, untracked=True)), into=folder / "runs")


def bare_s(slurm: PrivateSlurm, nodes: int, words: list[str]) -> float:
    """Return the seconds from sbatch until srun has run `words` on each node."""
    ended = slurm.folder / "ended"
    wrapped = f"srun {' '.join(words)} && date +%s.%N"
    options = ["--wait", f"--nodes={nodes}", f"--ntasks={nodes}", f"--output={ended}", f"--wrap={wrapped}"]
    slurm.set_job_environment({})
    began_at = time.time()
    slurm.run(["sbatch", *options], folder=slurm.folder, timeout_s=_LIMIT_S)
    return float(ended.read_text()) - began_at


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [2, 8, 64])
