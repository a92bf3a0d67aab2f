"""The elements of an array as steps of one job of whole nodes: how many share a node, and how many run at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trainjob.cluster import slurm_text
from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.contract.errors import UserError
from trainjob.planning.engines import needs_mpirun
from trainjob.planning.rules import Knob, refuse
from trainjob.planning.words import quantity
from trainjob.records.job import Topology

OF_AN_ARRAY = "what is packed into one job are the elements of an array"
ONE_STEP = "a packed element is one step of srun's on one node"
NODES_EXIST = "a packed array takes nodes that one job may have"
ALIKE = "packed elements share one job, which asks for the same each time"


class Shares(NamedTuple):
    """How many nodes the job has, how many elements share one, and how many run at once at most."""

    nodes: int
    of_node: int
    at_once: int


def shares(cluster: Cluster, job: Job, topology: Topology, engine: str) -> Shares | None:
    """Return how the elements share the nodes; None for a job that is not packed. Raises Broken."""
    if job.pack is None:
        return None
    given, capacity = f"pack is {job.pack}", cluster.capacity
    if job.array is None:
        refuse(OF_AN_ARRAY, f"{given}, and there is no array", otherwise="Give --array or --sweep, or leave pack out.")
    if job.retry:
        refuse(ALIKE, f"{given}, and retry is {', '.join(job.retry)}", otherwise="Leave retry out, or pack.")
    if needs_mpirun(engine):
        refuse(ONE_STEP, f"{given}, and mpirun starts the ranks of engine {engine}", otherwise="Give --engine ddp.")
    if topology.host_count > 1 or job.least_hosts is not None:
        values = f"{given}, and an element takes {topology.instances} instances on {topology.host_count} hosts"
        knob = Knob("instances", topology.instances, (), capacity.slots)
        refuse(ONE_STEP, values, knob, otherwise="Or leave pack out.")
    if job.pack > capacity.most_hosts:
        values = f"{given}, and a job may have {quantity(capacity.most_hosts, capacity.host_word)}"
        refuse(NODES_EXIST, values, otherwise=f"Give --pack {capacity.most_hosts} or less.")
    return shares_of(cluster, job, topology)


def shares_of(cluster: Cluster, job: Job, topology: Topology) -> Shares:
    """Return how the elements of a packed job share its nodes."""
    nodes, capacity, array = job.pack or 1, cluster.capacity, slurm_text.parse_array(job.array or "0")
    # What limits a node is its devices, or its CPUs where a directive states how many an instance gets.
    by_cpus = (capacity.slots or 1) // topology.instances if capacity.cpus_per_slot else None
    by_devices = (cluster.accelerators_per_host or 0) // topology.devices if topology.devices else None
    of_node = min(limit for limit in (by_cpus, by_devices, None) if limit is not None)
    return Shares(nodes, of_node, min(nodes * of_node, len(array.numbers), array.at_once or nodes * of_node))


def devices_held(cluster: Cluster, job: Job, topology: Topology, servers: Mapping[str, Topology]) -> int:
    """Return the devices for which a job is charged, its servers' with them.

    A packed one holds all devices of its nodes, and one whose cluster file asks for more than its share may.
    """
    parts = [topology, *servers.values()]
    asked = sum(one.devices for one in parts)
    hosts = sum(one.host_count for one in parts if one.first_shared_device is None)
    nodes = job.pack or (hosts if cluster.takes_whole_nodes(job) else 0)
    return max(asked, nodes * (cluster.accelerators_per_host or 0)) if asked else 0


def rows(cluster: Cluster, found: Shares | None) -> Iterator[tuple[str, str]]:
    """Yield the plan's row about the job that the elements share."""
    if found is not None:
        has = [(cluster.accelerators_per_host, cluster.capacity.device_word), (cluster.cpus_per_host, "CPU")]
        held = " and ".join(quantity(count, word) for count, word in has if count and word)
        yield (
            "pack",
            f"1 job of {quantity(found.nodes, 'whole node')}, {found.at_once} elements at once: "
            f"{found.of_node} share a node of {held}",
        )


def refuse_in_allocation(job: Job, held: str) -> None:
    """Raise UserError for a packed job that is to be a step of an allocation."""
    if job.pack is not None:
        raise UserError(
            f"pack is {job.pack}, and the run is to be inside {held}: a packed array has a job of its own",
            "leave pack out, or give --in none",
        )
