"""The allocation that a run is to be a step of: which one, and whether the run fits into it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from trainjob.cluster.base import Cluster
from trainjob.cluster.slurm_text import duration
from trainjob.contract.errors import Problem, ProblemsError, UserError
from trainjob.machines.slurm.allocations import Allocation, NotRunningError, look
from trainjob.machines.slurm.commands import SlurmMissingError
from trainjob.planning.words import quantity
from trainjob.render.request import Request

NONE = "none"
# One that nobody holds yet, of as many nodes as the cluster gives.
ANY = "any"
# Slurm sets it in salloc, in a job script, and in a step.
VARIABLE = "SLURM_JOB_ID"
_OF_A_RUN = "TRAINJOB_RUN_DIR"
_JOB_ID = re.compile(r"[0-9]{1,10}")
_QUEUE = "--in none submits it to the queue"


class Held(NamedTuple):
    """An allocation; `because` says so where nobody has named it, and is empty for one that was named."""

    allocation: Allocation
    because: str = ""

    def __str__(self) -> str:
        """Return the job, and what it has."""
        job = self.allocation
        if job.job_id == ANY:
            return "any allocation that has the nodes"
        left = "" if job.left_s is None else f", {duration(job.left_s)} left"
        return f"job {job.job_id} ({job.name}): {quantity(job.nodes, 'node')} of partition {job.partition}{left}"


def chosen(flag: str | None, name: str, cluster: Cluster) -> Held | None:
    """Return the allocation that --in names, or without it the one that this process is in; None: a job of its own.

    `name` is the cluster's. Raises UserError for a job that does not run, or is none.
    """
    if flag == NONE:
        return None
    is_inside = os.environ.get(VARIABLE) and cluster.hosts_are_given and cluster.ssh is None
    # What a run of ours submits, an evaluation perhaps, would share its GPUs, and end with it.
    if flag is None and (not is_inside or os.environ.get(_OF_A_RUN)):
        return None
    job_id = os.environ[VARIABLE] if flag is None else flag
    if not cluster.hosts_are_given:
        text = f"--in {flag}: cluster {name} is of kind {cluster.kind}, which has no jobs"
        raise UserError(text, "leave --in out")
    if job_id == ANY:
        # All that one job of the cluster may have.
        partition = (cluster.partition or "").split(",")[0]
        cpus, gpus = cluster.cpus_per_host or sys.maxsize, cluster.accelerators_per_host
        return Held(Allocation(ANY, ANY, partition, cluster.capacity.most_hosts, cpus, gpus, None))
    from trainjob.observe import reservations

    if job_id == reservations.LAST:
        job_id = reservations.newest_job(name)
    if not _JOB_ID.fullmatch(job_id):
        where = f"{VARIABLE} is" if flag is None else "--in"
        raise UserError(
            f"{where} {job_id!r}: expected the number of a job", f"squeue lists the jobs that run; {_QUEUE}"
        )
    from trainjob.machines.access import machine_of

    try:
        allocation = look(machine_of(cluster), job_id)
    except (SlurmMissingError, NotRunningError):
        if flag is None:  # in a container, from which no step could start, or in a shell that has outlived its job
            return None
        raise
    because = f"inside job {job_id}, which trainjob is called in ({VARIABLE}), and with which the run ends: {_QUEUE}"
    return Held(allocation, "" if flag else because)


def refuse_any(held: Held | None) -> None:
    """Raise UserError for an allocation that nobody holds, in which nothing can begin."""
    if held is not None and held.allocation.job_id == ANY:
        raise UserError(f"--in {ANY} is for plan, render and rehearse", "name a job, or --in last for a reservation")


def refuse_misfit(held: Allocation, cluster: Cluster, request: Request) -> None:
    """Raise ProblemsError with all that the job takes and the allocation does not have, both figures each."""
    problems = list(_misfits(held, cluster, request))
    if problems:
        raise ProblemsError.of_all(problems, "; ")


def _misfits(held: Allocation, cluster: Cluster, request: Request) -> Iterator[Problem]:
    topology, where = request.plan.topology, f"job {held.job_id}"
    if topology.host_count > held.nodes:
        text = f"the run takes {quantity(topology.host_count, 'node')}, and {where} has {held.nodes}"
        yield Problem("nodes", text, f"Give --hosts {held.nodes} or fewer; {_QUEUE}")
    accepted = (cluster.partition or held.partition).split(",")
    if held.partition not in accepted:
        text = f"the run is for partition {cluster.partition}, and {where} is in {held.partition}"
        yield Problem("partition", text, f"Name a cluster file for {held.partition}; {_QUEUE}")
    limit_s = request.times.limit_s
    if limit_s is not None and held.left_s is not None and limit_s > held.left_s:
        text = f"the run's time limit is {request.times.limit}, and {where} ends in {duration(held.left_s)}"
        yield Problem("time-limit", text, f"Give a shorter --time-limit, or none: it then has what is left; {_QUEUE}")
    devices = topology.devices // topology.host_count
    if cluster.accelerator == "gpu" and held.gpus_per_node is not None and devices > held.gpus_per_node:
        text = f"the run takes {quantity(devices, 'GPU')} of a node, and {where} has {held.gpus_per_node} on each"
        yield Problem("accelerators", text, f"Give fewer --instances, or more --hosts; {_QUEUE}")
    if topology.instances_per_host > held.cpus_per_node:
        ranks = quantity(topology.instances_per_host, "instance")
        text = f"the run starts {ranks} on a node, and {where} has {quantity(held.cpus_per_node, 'CPU')} on each"
        yield Problem("cpus", text, f"Give fewer --instances, or more --hosts; {_QUEUE}")
