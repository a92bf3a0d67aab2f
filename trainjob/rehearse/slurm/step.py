"""Rehearses a run inside an allocation: a job that holds the nodes, and in it the run's step, by plain srun."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from trainjob.backends import registry
from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds.slurm import page
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.machines.process import Completed
from trainjob.rehearse.base import Rehearsal
from trainjob.rehearse.slurm.following import FollowedJob
from trainjob.rehearse.slurm.job import RehearsedJob
from trainjob.rehearse.slurm.private import PrivateSlurm

_HOLD = Path(__file__).with_name("hold_nodes.sh")
_ALLOCATED_WITHIN_S = 120.0
_LIMIT = "time"
_LONGEST_S = 7 * 86_400.0
# A run inside an allocation is not started again, and what ends the allocation is none of its faults.
FAULTS = ("rank-death",)


@dataclass
class RehearsedStep(RehearsedJob):
    """A run in a job that goes on: it is over when its srun is."""

    srun: Future[Completed] = field(kw_only=True)

    def is_over(self) -> bool:
        """Return whether the step has ended, or the job that holds its nodes."""
        return self.srun.done() or super().is_over()

    def last_output(self) -> str:
        """Return the last output as of any job; before the script has begun, what srun printed."""
        if self.attempt == 0 and self.srun.done():
            return f"srun printed: {self.srun.result().stderr.strip()}"
        return super().last_output()


def start(rehearsal: Rehearsal, slurm: PrivateSlurm, paths: RunPaths) -> RehearsedStep:
    """Return the run, whose step is being started as a submission starts it, in an allocation of what it takes.

    Raises UserError if Slurm does not give that.
    """
    request, script = rehearsal.request, rehearsal.rendered.script
    job_id = _allocated(rehearsal, slurm, paths.folder / ".allocation")
    words = registry.get(request.cluster.back_end).argv(paths, script, inside=job_id)
    (paths.folder / "logs").mkdir(exist_ok=True)
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rehearsed-step")
    srun = pool.submit(slurm.run, words, folder=paths.folder, timeout_s=_LONGEST_S, check=False)
    pool.shutdown(wait=False)
    cluster, ranks, trains = SlurmCluster.of(request.cluster), request.plan.topology.ranks, not request.job.command
    is_shown = rehearsal.show is not None
    return RehearsedStep(slurm, job_id, paths, cluster, ranks, trains, is_output_shown=is_shown, srun=srun)


def _allocated(rehearsal: Rehearsal, slurm: PrivateSlurm, folder: Path) -> str:
    """Return the number of a job that has the nodes."""
    listed = page.context(rehearsal.request)["directives"]
    # Its nodes are held for as long as the rehearsal takes.
    stated = [str(line) for line in listed if not str(line).startswith(f"#SBATCH --{_LIMIT}=")]
    first, *rest = _HOLD.read_text().splitlines()
    (folder / "logs").mkdir(parents=True)
    (folder / "hold.sbatch").write_text("\n".join([first, *stated, *rest, ""]))
    sent = slurm.run(["sbatch", "--parsable", "hold.sbatch"], folder=folder)
    job = FollowedJob(slurm, sent.text.strip().split(";")[0])
    deadline = clock.monotonic() + _ALLOCATED_WITHIN_S

    def has_nodes() -> str | None:
        is_late = clock.monotonic() > deadline
        return "running" if job.rows[0].get("JobState") == "RUNNING" else "late" if is_late else None

    if job.follow(has_nodes) != "running":
        reason = job.rows[0].get("Reason", "unknown") if job.rows else "unknown"
        raise UserError(
            f"the private Slurm has not given the allocation within {_ALLOCATED_WITHIN_S:.0f} s: {reason}",
            "Correct nodes and limits in the cluster file, and rehearse again",
        )
    return job.id
