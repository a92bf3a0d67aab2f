"""Kind reservation: jobs that hold nodes for runs, which begin in them as steps. Made from kind slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from trainjob.cluster.strict import required
from trainjob.kinds.allocation import refuse_without_steps
from trainjob.kinds.slurm.model import SlurmCluster

if TYPE_CHECKING:
    from trainjob.cluster.base import Cluster
    from trainjob.render.request import Request


class ReservationCluster(SlurmCluster):
    """A cluster that Slurm schedules, as one that lends its nodes."""

    # No file has it: a base's `kind` is what its own files state.
    kind: Literal["reservation"] = required("reservation: jobs that hold nodes.")  # type: ignore[assignment]

    holds_nodes = True

    def enforce_rules(self) -> None:
        """Raise BreachError as its base, and as the kind of the runs does that are to begin in it."""
        super().enforce_rules()
        refuse_without_steps(self)


MODEL: type[Cluster] = ReservationCluster
DRAFT = "slurm-gpu"
TEMPLATE, SCRIPT = "jobs/hold.sbatch.j2", "job.sbatch"


def context(request: Request) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for kind reservation."""
    from trainjob.kinds.slurm import page
    from trainjob.render.sourced import Sourced

    names = page.context(request, "reservation")
    ours = "every reservation"
    absent = dict.fromkeys(("interface", "container", "queues_follow_up"))
    return {**names, **absent, "starter": Sourced("hold_nodes", ours), "is_group": True}
