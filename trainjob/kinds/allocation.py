"""Kind allocation: nodes that a job of the user's holds already, in which a run is a step. Made from kind slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from trainjob.cluster.strict import BreachError, required
from trainjob.kinds.slurm.model import SlurmCluster

if TYPE_CHECKING:
    from trainjob.cluster.base import Cluster
    from trainjob.cluster.job import Job
    from trainjob.render.request import Request


class AllocationCluster(SlurmCluster):
    """A cluster that Slurm schedules, as a job that has nodes of it."""

    # No file has it: a base's `kind` is what its own files state.
    kind: Literal["allocation"] = required("allocation: nodes that a job holds.")  # type: ignore[assignment]

    has_scheduler = False
    back_end = "allocation"
    by_hand = "cd {folder} && srun --jobid=JOB --overlap --nodes=1 --ntasks=1 --mem=0 bash {script}"

    def enforce_rules(self) -> None:
        """Raise BreachError as its base, and for nodes whose ranks srun does not start alike."""
        super().enforce_rules()
        refuse_without_steps(self)

    def time_limit_of(self, job: Job) -> str | None:
        """Return the time limit that `job` itself states: without one it has all the time that is left."""
        return job.time_limit


def refuse_without_steps(cluster: SlurmCluster) -> None:
    """Raise BreachError for nodes in whose jobs no run begins as a step."""
    if cluster.has_groups:
        raise BreachError("nodes", "is a list of groups, and an allocation has one", "submit it to the queue")
    if cluster.ipu_keys is not None:
        raise BreachError("nodes", "have IPUs, whose ranks poprun starts", "submit it to the queue")


MODEL: type[Cluster] = AllocationCluster
DRAFT = "slurm-gpu"
TEMPLATE, SCRIPT = "jobs/step.sh.j2", "job.sh"


def context(request: Request) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for kind allocation. Raises UserError for what no step can do."""
    from trainjob.kinds.slurm import step

    return step.context(request)
