"""Groups of unlike nodes in one job: each node takes instances in proportion to what it has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from trainjob.cluster.job import Job
from trainjob.cluster.nodes import Capacity, Nodes
from trainjob.planning.counts import Counts, replicas_are_instances
from trainjob.planning.engines import needs_mpirun
from trainjob.planning.rules import Knob, refuse
from trainjob.planning.values import HostGroup
from trainjob.planning.words import quantity

ALL_NODES = "a job on groups of nodes takes every node of every group"
ALLOWED = "a job stays within the site's max_nodes"
IN_PROPORTION = "every node of a group takes instances in proportion to what it has"
SUFFICES = "every instance has its own place"
ONE_SIZE = "groups of nodes have fixed sizes, and run as one Slurm job"
BY_SRUN = "srun starts the ranks of several groups of nodes"
ALIKE = "a task's instances wait for each other at every update, so all train on the same kind of GPU"


def check(groups: Sequence[Nodes], job: Job) -> None:
    """Raise Broken if Slurm can't run the job on these groups of nodes."""
    if not groups:
        return
    for setting in ("array", "sweep"):
        if getattr(job, setting) is not None:
            refuse(
                ONE_SIZE,
                f"{setting} is given, and nodes has {_named(groups)}: Slurm makes no array of such jobs",
                otherwise=f"Leave --{setting} out and submit each by itself, or take a cluster file with one group.",
            )
    if job.least_hosts is not None:
        refuse(ONE_SIZE, f"a range of hosts, and nodes has {_named(groups)}", otherwise="Leave --hosts out.")
    if job.engine is not None and needs_mpirun(job.engine):
        refuse(BY_SRUN, f"engine {job.engine} is started by mpirun", otherwise="Take --engine ddp, or one group.")
    types = {group.type: group.name for group in groups}
    if job.command is None and len(types) > 1:
        values = " and ".join(f"{name} has type {kind or '(none)'}" for kind, name in types.items())
        refuse(
            ALIKE,
            values,
            otherwise="Take groups of the same type, or give a command of your own that shares the work out itself.",
        )


def count(site: Capacity, job: Job) -> Counts:
    """Return the numbers of nodes and instances over all groups. Raises Broken."""
    if job.hosts not in (None, site.hosts):
        refuse(
            ALL_NODES,
            f"{quantity(job.hosts or 0, 'node')} requested, {_named(site.groups)} have {site.hosts}",
            Knob("hosts", job.hosts or 0, (site.hosts,)),
            otherwise="Or leave --hosts out.",
        )
    if site.hosts > site.most_hosts:
        refuse(
            ALLOWED,
            f"{_named(site.groups)} have {quantity(site.hosts, 'node')}, max_nodes is {site.most_hosts}",
            otherwise="Give the groups fewer nodes.",
        )
    most = sum(group.count * slots(group) for group in site.groups)
    fewest = most // _common(site.groups)
    default = most if site.device_word == "GPU" else fewest
    instances = default if job.instances is None else job.instances
    replicas_are_instances(site, job, instances)
    knob = Knob("instances", instances, (instances // fewest * fewest, -(-instances // fewest) * fewest, most))
    if instances % fewest:
        shares = " and ".join(
            f"{quantity(part.hosts, 'node')} × {part.instances_per_host} ({part.name})"
            for part in _placed(site.groups, 1)
        )
        values = f"{quantity(instances, 'instance')}, and {shares} make {fewest} or a multiple"
        refuse(IN_PROPORTION, values, knob)
    if instances > most:
        refuse(SUFFICES, f"{quantity(instances, 'instance')}, and all nodes together have {most} places", knob)
    devices = 0 if site.device_word == "CPU" else 1
    placed = tuple(_placed(site.groups, instances // fewest))
    return Counts(site.hosts, instances, instances, devices, site.device_word, groups=placed)


def slots(group: Nodes) -> int:
    """Return the most instances that one node of `group` takes: one for each accelerator, else for each CPU."""
    return group.accelerators or group.cpus


def _common(groups: Sequence[Nodes]) -> int:
    return math.gcd(*(slots(group) for group in groups))


def _placed(groups: Sequence[Nodes], times: int) -> Iterator[HostGroup]:
    for group in groups:
        yield HostGroup(group.name or "", group.count, times * slots(group) // _common(groups))


def _named(groups: Sequence[Nodes]) -> str:
    return f"groups {' and '.join(group.name or '' for group in groups)}"
