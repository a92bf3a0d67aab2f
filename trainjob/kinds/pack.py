"""Kind pack: whole nodes that the elements of an array share, as steps of one job. Made from kind slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from trainjob.cluster.strict import BreachError, required
from trainjob.kinds.allocation import refuse_without_steps
from trainjob.kinds.slurm.model import SlurmCluster

if TYPE_CHECKING:
    from trainjob.cluster.base import Cluster
    from trainjob.cluster.nodes import Capacity
    from trainjob.render.request import Request


class PackCluster(SlurmCluster):
    """A cluster that Slurm schedules, whose jobs run the elements of an array as their steps."""

    # No file has it: a base's `kind` is what its own files state.
    kind: Literal["pack"] = required("pack: jobs whose steps are the elements of an array.")  # type: ignore[assignment]

    packs = True
    back_end = "pack"

    def enforce_rules(self) -> None:
        """Raise BreachError as its base, and for nodes of which Slurm gives no step a share."""
        super().enforce_rules()
        refuse_without_steps(self)
        if self.node.accelerator != "cpu" and self.request == "none":
            raise BreachError("request", "is none, so no element can tell its share of devices", "set request: gres")

    @property
    def capacity(self) -> Capacity:
        """Those of its base: an element has a part of one node, however many the site gives a job at least."""
        return super().capacity._replace(default_hosts=1, least_hosts=1)


MODEL: type[Cluster] = PackCluster
DRAFT = "slurm-gpu"
TEMPLATE, SCRIPT = "jobs/pack.sbatch.j2", "job.sbatch"


def context(request: Request) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for kind pack. Raises UserError for what no step can do."""
    from trainjob.cluster.slurm_text import ranges
    from trainjob.contract.quoting import Shell
    from trainjob.kinds.slurm import page
    from trainjob.planning.pack import shares_of
    from trainjob.render.sourced import Sourced, SourcedShell

    cluster, topology, names = SlurmCluster.of(request.cluster), request.plan.topology, page.context(request, "pack")
    shares, ours, by = shares_of(cluster, request.job, topology), "every packed element", request.origin("pack")
    placed = [
        # Each launcher keeps its element's share: see launch/share.py.
        *(Sourced(word, ours) for word in ("--overlap", "--mem=0", "--cpu-bind=none", "--nodes=1")),
        Sourced(f"--ntasks={topology.instances}", request.origin("instances")),
        SourcedShell(Shell('--nodelist="$SLURM_JOB_NODELIST"'), ours),
        SourcedShell(Shell('--job-name="$SLURM_ARRAY_TASK_ID"'), ours),  # by which its element's commands find it
    ]
    step = names["steps"][0]
    return {
        **names,
        "steps": [{**step, "srun_options": [*placed, *step["srun_options"]]}],
        "elements": Sourced(ranges(list(request.elements)), request.origin("array")),
        "of_node": Sourced(shares.of_node, by),
        "at_once": Sourced(shares.at_once, by),
        "ranks_per_host": Sourced(topology.instances, request.origin("instances")),
    }
