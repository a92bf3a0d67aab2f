"""Kinds that no file has, and a request makes from kind slurm: jobs in which runs are steps, beside others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from trainjob.cluster.strict import BreachError, required
from trainjob.contract.errors import UserError
from trainjob.kinds.slurm.model import SlurmCluster

if TYPE_CHECKING:
    from trainjob.cluster.base import Cluster
    from trainjob.cluster.job import Job
    from trainjob.cluster.nodes import Capacity
    from trainjob.render.request import Request
    from trainjob.render.sourced import Sourced


class _StepsCluster(SlurmCluster):
    """A cluster that Slurm schedules, with nodes on which a step is a share."""

    def enforce_rules(self) -> None:
        """Raise BreachError as its base, and for nodes in whose jobs no run begins as a step."""
        super().enforce_rules()
        if self.has_groups:
            raise BreachError("nodes", "is a list of groups, and an allocation has one", "submit it to the queue")
        if self.ipu_keys is not None:
            raise BreachError("nodes", "have IPUs, whose ranks poprun starts", "submit it to the queue")


class AllocationCluster(_StepsCluster):
    """A cluster that Slurm schedules, as a job that has nodes of it."""

    kind: Literal["allocation"] = required("allocation: nodes that a job holds.")  # type: ignore[assignment]

    has_scheduler = False
    back_end = "allocation"
    by_hand = "cd {folder} && srun --jobid=JOB --overlap --nodes=1 --ntasks=1 --mem=0 bash {script}"

    def time_limit_of(self, job: Job) -> str | None:
        """Return the time limit that `job` itself states: without one it has all the time that is left."""
        return job.time_limit


class ReservationCluster(_StepsCluster):
    """A cluster that Slurm schedules, as one that lends its nodes."""

    kind: Literal["reservation"] = required("reservation: jobs that hold nodes.")  # type: ignore[assignment]

    holds_nodes = True


class PackCluster(_StepsCluster):
    """A cluster that Slurm schedules, whose jobs run the elements of an array as their steps."""

    kind: Literal["pack"] = required("pack: jobs whose steps are the elements of an array.")  # type: ignore[assignment]

    packs = True
    back_end = "pack"

    def enforce_rules(self) -> None:
        """Raise BreachError as its base, and for nodes of which Slurm gives no step a share."""
        super().enforce_rules()
        if self.node.accelerator != "cpu" and self.request == "none":
            raise BreachError("request", "is none, so no element can tell its share of devices", "set request: gres")

    @property
    def capacity(self) -> Capacity:
        """Those of its base: an element has a part of one node, however many the site gives a job at least."""
        return super().capacity._replace(default_hosts=1, least_hosts=1)


class AllocationKind:
    """Nodes that a job of the user's holds already, in which a run is a step."""

    MODEL: type[Cluster] = AllocationCluster
    TEMPLATE, SCRIPT = "jobs/step.sh.j2", "job.sh"

    @staticmethod
    def context(request: Request) -> dict[str, Any]:
        """Return the names that CONTRIBUTING.md lists for this kind. Raises UserError for what no step can do."""
        from trainjob.render.sourced import Sourced

        _refuse_what_no_step_can_do(request)
        topology = request.plan.topology
        placed = [
            Sourced(f"--nodes={topology.host_count}", request.hosts_origin),
            Sourced(f"--ntasks-per-node={topology.instances_per_host}", request.origin("instances")),
        ]
        by_hand = "in this folder, srun --jobid=JOB --overlap --nodes=1 --ntasks=1 --mem=0 bash job.sh"
        # That of the script's step: both are found by it.
        names = _names_of_step(request, "allocation", placed, "SLURM_JOB_NAME", by_hand=by_hand)
        return {
            **names,
            "directives": [],
            "max_attempts": Sourced(1, "every run inside an allocation"),
            "queues_follow_up": None,
            "hosts": Sourced(topology.host_count, request.hosts_origin),
            "cpus_per_rank": names["steps"][0]["cpus_per_task"],
        }


class ReservationKind:
    """Jobs that hold nodes for runs, which begin in them as steps."""

    MODEL: type[Cluster] = ReservationCluster
    TEMPLATE, SCRIPT = "jobs/hold.sbatch.j2", "job.sbatch"

    @staticmethod
    def context(request: Request) -> dict[str, Any]:
        """Return the names that CONTRIBUTING.md lists for this kind."""
        from trainjob.kinds.slurm import page
        from trainjob.render.sourced import Sourced

        absent = dict.fromkeys(("interface", "container", "queues_follow_up"))
        starter = Sourced("hold_nodes", "every reservation")
        return {**page.context(request, "reservation"), **absent, "starter": starter, "is_group": True}


class PackKind:
    """Whole nodes that the elements of an array share, as steps of one job."""

    MODEL: type[Cluster] = PackCluster
    TEMPLATE, SCRIPT = "jobs/pack.sbatch.j2", "job.sbatch"

    @staticmethod
    def context(request: Request) -> dict[str, Any]:
        """Return the names that CONTRIBUTING.md lists for this kind. Raises UserError for what no step can do."""
        from trainjob.cluster.slurm_text import ranges
        from trainjob.planning.pack import shares_of
        from trainjob.render.sourced import Sourced

        topology, by = request.plan.topology, request.origin("pack")
        shares = shares_of(request.cluster, request.job, topology)
        # Each launcher keeps its element's share: see launch/share.py.
        placed = [
            *(Sourced(word, "every packed element") for word in ("--cpu-bind=none", "--nodes=1")),
            Sourced(f"--ntasks={topology.instances}", request.origin("instances")),
        ]
        return {
            # By its number the commands of an element find its step.
            **_names_of_step(request, "pack", placed, "SLURM_ARRAY_TASK_ID"),
            "elements": Sourced(ranges(list(request.elements)), request.origin("array")),
            "of_node": Sourced(shares.of_node, by),
            "at_once": Sourced(shares.at_once, by),
        }


def _refuse_what_no_step_can_do(request: Request) -> None:
    if request.starter != "srun":
        raise UserError(
            f"engine {request.plan.engine} starts its ranks by {request.starter}, and ranks inside an allocation are a "
            "step of srun's",
            "give --engine ddp, or --in none for the queue",
        )
    if request.servers:
        raise UserError(
            f"the job has servers ({', '.join(request.servers)}), and a run inside an allocation can't have any",
            "give --in none for the queue",
        )
    if request.job.least_hosts is not None:
        raise UserError(
            "a range of hosts is for Slurm to choose from, and an allocation has its nodes already",
            "give one number of --hosts, or --in none for the queue",
        )


def _names_of_step(
    request: Request, entry: str, placed: Sequence[Sourced], variable: str, **more: str
) -> dict[str, Any]:
    """Return the names of a page whose ranks are a step beside others, `placed` there and called as a variable says."""
    from trainjob.contract.quoting import Shell
    from trainjob.kinds.slurm import page
    from trainjob.render.sourced import Sourced, SourcedShell

    names, ours = page.context(request, entry, **more), "every run that is a step"
    (step,) = names["steps"]
    options = [
        *(Sourced(word, ours) for word in ("--overlap", "--mem=0")),
        *placed,
        SourcedShell(Shell('--nodelist="$SLURM_JOB_NODELIST"'), ours),
        SourcedShell(Shell(f'--job-name="${variable}"'), ours),
        *step["srun_options"],
    ]
    ranks = Sourced(request.plan.topology.instances_per_host, request.origin("instances"))
    return {**names, "ranks_per_host": ranks, "steps": [{**step, "srun_options": options}]}
