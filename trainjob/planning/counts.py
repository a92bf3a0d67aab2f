"""The number of hosts, instances and replicas on GPUs and CPUs, on groups of unlike nodes, and on a range of hosts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from trainjob.cluster.job import Job
from trainjob.cluster.nodes import Capacity, Nodes
from trainjob.contract.batch import Batch
from trainjob.planning.engines import needs_mpirun
from trainjob.planning.rules import Knob, refuse
from trainjob.planning.words import number, quantity
from trainjob.records.job import HostGroup, Topology

HOSTS_EXIST = "a job uses hosts that the cluster has"
HOSTS_ALLOWED = "a job stays within the site's max_nodes"
HOSTS_DEMANDED = "a job takes at least the site's min_nodes"
EVEN_OVER_HOSTS = "instances divide evenly over hosts"
ONE_DEVICE = "only a model on IPUs is split by ipus_per_replica"
ONE_REPLICA = "on GPUs and CPUs every instance is one replica"
HOSTS_SUFFICE = "each instance needs a slot of its own: a GPU, or a CPU"
NOT_TOO_MANY = "a job has at most 131,072 replicas"

MOST_REPLICAS = 131_072  # far above any cluster: a mistyped number must not exhaust memory


def topology(
    hosts: int,
    instances: int,
    replicas: int,
    devices_per_replica: int,
    device: str,
    ilds: int | None = None,
    partition_ipus: int | None = None,
    groups: Sequence[HostGroup] = (),
) -> Topology:
    """Return where everything runs; the names of the hosts are still missing."""
    return Topology(
        hosts="",
        host_count=hosts,
        instances=instances,
        instances_per_host=max((group.instances_per_host for group in groups), default=instances // hosts),
        replicas=replicas,
        replicas_per_instance=replicas // instances,
        devices_per_replica=devices_per_replica,
        device=device,
        ilds=ilds,
        partition_ipus=partition_ipus,
        groups=list(groups),
    )


def not_too_many(counts: Topology) -> None:
    """Raise Broken if a count is so large that it must be a typing mistake."""
    if counts.replicas > MOST_REPLICAS:
        values = f"{quantity(counts.replicas, 'replica')} on {quantity(counts.instances, 'instance')}"
        refuse(NOT_TOO_MANY, values, otherwise="Ask for fewer instances.")


def hosts_fit(capacity: Capacity, hosts: int, instances: int) -> None:
    """Raise Broken if the job asks for more hosts than the cluster has, or than one job may have."""
    most_instances = () if capacity.slots is None else (capacity.slots * capacity.most_hosts,)
    knobs = (
        Knob("hosts", hosts, (capacity.most_hosts,), capacity.most_hosts),
        Knob("instances", instances, most_instances),
    )
    if hosts > capacity.hosts:
        word = capacity.host_word
        refuse(HOSTS_EXIST, f"{quantity(hosts, word)} asked for, the cluster has {capacity.hosts}", *knobs)
    if hosts > capacity.most_hosts:
        word = capacity.host_word
        refuse(HOSTS_ALLOWED, f"{quantity(hosts, word)} needed, max_nodes is {capacity.most_hosts}", *knobs)
    if hosts < capacity.least_hosts:
        values = f"{quantity(hosts, capacity.host_word)} asked for, min_nodes is {capacity.least_hosts}"
        refuse(HOSTS_DEMANDED, values, *knobs)


def instances_divide_over_hosts(capacity: Capacity, hosts: int, instances: int) -> None:
    """Raise Broken if hosts would have different numbers of instances: poprun and --ntasks-per-node take only one."""
    if instances % hosts:
        refuse(
            EVEN_OVER_HOSTS,
            f"{quantity(instances, 'instance')} over {quantity(hosts, capacity.host_word)}",
            Knob("instances", instances, (instances // hosts * hosts, -(-instances // hosts) * hosts)),
            Knob("hosts", hosts, most=capacity.most_hosts),
        )


def count(capacity: Capacity, job: Job) -> Topology:
    """Return the numbers of hosts, instances and replicas of `job`. Raises Broken."""
    if capacity.slots == 0:
        values = f"a rank takes {capacity.cpus_per_slot} CPUs, and a {capacity.host_word} has fewer"
        refuse(HOSTS_SUFFICE, values, otherwise="Take a smaller directives.cpus-per-task.")
    instances = job.instances
    if instances is None:
        instances = (job.hosts or capacity.default_hosts) * capacity.default_instances
    _replicas_are_instances(capacity, job, instances)
    hosts = job.hosts
    if hosts is None and capacity.spreads:
        hosts = next(hosts for hosts in range(capacity.most_hosts, 0, -1) if instances % hosts == 0)
    elif hosts is None:
        hosts = max(capacity.least_hosts, 1 if capacity.slots is None else -(-instances // capacity.slots))
    if job.hosts is None:
        _hosts_suffice(capacity, capacity.hosts, instances)
    hosts_fit(capacity, hosts, instances)
    _hosts_suffice(capacity, hosts, instances)
    instances_divide_over_hosts(capacity, hosts, instances)
    return topology(hosts, instances, instances, 0 if capacity.device_word == "CPU" else 1, capacity.device_word)


def _replicas_are_instances(capacity: Capacity, job: Job, instances: int) -> None:
    """Raise Broken if the job asks for replicas that don't match its instances: on GPUs and CPUs each rank is one."""
    if job.ipus_per_replica not in (None, 1):
        values = f"ipus_per_replica is {job.ipus_per_replica} and this cluster has {capacity.device_word}s"
        refuse(ONE_DEVICE, values, Knob("ipus_per_replica", job.ipus_per_replica), otherwise="Or leave it out.")
    if job.replicas not in (None, instances):
        refuse(
            ONE_REPLICA,
            f"{quantity(job.replicas, 'replica')} on {quantity(instances, 'instance')}",
            Knob("instances", instances, (job.replicas,)),
            Knob("replicas", job.replicas, (instances,)),
            otherwise="Or leave --replicas out.",
        )


def _hosts_suffice(capacity: Capacity, hosts: int, instances: int) -> None:
    if capacity.slots is None or instances <= hosts * capacity.slots:
        return
    is_this_machine = capacity.host_word == "machine" and capacity.device_word == "CPU"
    slots = quantity(capacity.slots, "instance" if is_this_machine else capacity.device_word)
    if capacity.cpus_per_slot and (capacity.cpus_per_slot > 1 or capacity.device_word != "CPU"):
        slots = f"{quantity(capacity.slots, 'rank')} of {quantity(capacity.cpus_per_slot, 'CPU')}"
    place = f"{quantity(hosts, capacity.host_word)} × {slots} = {hosts * capacity.slots}"
    refuse(
        HOSTS_SUFFICE,
        f"{quantity(instances, 'instance')} on {place}",
        Knob("instances", instances, (hosts * capacity.slots, capacity.most_hosts * capacity.slots)),
        Knob("hosts", hosts, (-(-instances // capacity.slots),), capacity.most_hosts),
    )


# -- groups of unlike nodes: each node takes instances in proportion to what it has ----------------------------------

ALL_NODES = "a job on groups of nodes takes every node of every group"
IN_PROPORTION = "every node of a group takes instances in proportion to what it has"
ONE_SIZE = "groups of nodes have fixed sizes, and run as one Slurm job"
GROUPS_BY_SRUN = "srun starts the ranks of several groups of nodes"
ALIKE = "a task's instances wait for each other at every update, so all train on the same kind of GPU"


def check_groups(groups: Sequence[Nodes], job: Job) -> None:
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
        values = f"engine {job.engine} is started by mpirun"
        refuse(GROUPS_BY_SRUN, values, otherwise="Take --engine ddp, or one group.")
    types = {group.type: group.name for group in groups}
    if job.command is None and len(types) > 1:
        refuse(
            ALIKE,
            " and ".join(f"{name} has type {kind or '(none)'}" for kind, name in types.items()),
            otherwise="Take groups of the same type, or give a command of your own that shares the work out itself.",
        )


def count_groups(capacity: Capacity, job: Job) -> Topology:
    """Return the numbers of nodes and instances over all groups. Raises Broken."""
    groups = capacity.groups
    if job.hosts not in (None, capacity.hosts):
        refuse(
            ALL_NODES,
            f"{quantity(job.hosts or 0, 'node')} requested, {_named(groups)} have {capacity.hosts}",
            Knob("hosts", job.hosts or 0, (capacity.hosts,)),
            otherwise="Or leave --hosts out.",
        )
    if capacity.hosts > capacity.most_hosts:
        refuse(
            HOSTS_ALLOWED,
            f"{_named(groups)} have {quantity(capacity.hosts, 'node')}, max_nodes is {capacity.most_hosts}",
            otherwise="Give the groups fewer nodes.",
        )
    # Most instances of one node of each group: one for each accelerator, else for each CPU.
    slots = [group.accelerators or group.cpus for group in groups]
    unit = math.gcd(*slots)
    most = sum(group.count * on_one for group, on_one in zip(groups, slots, strict=True))
    fewest = most // unit
    instances = job.instances if job.instances is not None else most if capacity.device_word == "GPU" else fewest
    _replicas_are_instances(capacity, job, instances)
    knob = Knob("instances", instances, (instances // fewest * fewest, -(-instances // fewest) * fewest, most))
    if instances % fewest:
        shares = " and ".join(
            f"{quantity(group.count, 'node')} × {on_one // unit} ({group.name})"
            for group, on_one in zip(groups, slots, strict=True)
        )
        values = f"{quantity(instances, 'instance')}, and {shares} make {fewest} or a multiple"
        refuse(IN_PROPORTION, values, knob)
    if instances > most:
        refuse(HOSTS_SUFFICE, f"{quantity(instances, 'instance')}, and all nodes together have {most} slots", knob)
    for group, on_one in zip(groups, slots, strict=True):
        if (each := instances // fewest * on_one // unit) > group.cpus:
            values = (
                f"{quantity(each, 'instance')} on each node of {group.name}, which has {quantity(group.cpus, 'CPU')}"
            )
            refuse(HOSTS_SUFFICE, values, knob)
    placed = [
        HostGroup(group.name or "", group.count, instances // fewest * on_one // unit)
        for group, on_one in zip(groups, slots, strict=True)
    ]
    devices = 0 if capacity.device_word == "CPU" else 1
    return topology(capacity.hosts, instances, instances, devices, capacity.device_word, groups=placed)


def _named(groups: Sequence[Nodes]) -> str:
    return f"groups {' and '.join(group.name or '' for group in groups)}"


# -- a range of hosts: Slurm gives as many as it can, and the global batch is the same on any number of them ----------

ORDERED = "a range of hosts begins with the fewest"
RANGE_BY_SRUN = "only srun starts ranks on however many hosts Slurm gives"
SEVERAL = "a task on a range of hosts has at least two instances on the fewest"
DIVIDES = "the global batch is a multiple of micro batch × replicas on every number of hosts in the range"


def check_host_range(job: Job, counts: Topology, engine: str, batch: Batch | None) -> None:
    """Raise Broken if some number of hosts in the job's range could not run the plan."""
    least, most = job.least_hosts, counts.host_count
    if least is None:
        return
    if least > most:
        refuse(ORDERED, f"{least} to {most}", Knob("least_hosts", least, (most,)), Knob("hosts", most, (least,)))
    if needs_mpirun(engine):
        values = f"engine {engine} is started by mpirun"
        refuse(RANGE_BY_SRUN, values, otherwise="Take --engine ddp, or one number of hosts.")
    if batch is None:
        return
    per_host = counts.instances // most
    if least * per_host == 1:
        refuse(SEVERAL, f"1 instance on {least} of {most} hosts", Knob("least_hosts", least, (2,)))
    size, unit = batch.global_batch, batch.micro_batch * per_host
    uneven = next((hosts for hosts in range(least, most + 1) if size % (unit * hosts)), None)
    if uneven is not None:
        # A global batch that divides evenly on every number of hosts in the range.
        common = unit * math.lcm(*range(least, most + 1))
        product = f"{batch.micro_batch} × {per_host} × {quantity(uneven, 'host')} = {number(unit * uneven)}"
        refuse(
            DIVIDES,
            f"global batch {number(size)}, {product}",
            Knob("global_batch", size, (size // common * common, -(-size // common) * common)),
            Knob("least_hosts", least),
            otherwise="Or a smaller --micro-batch.",
        )


def range_rows(job: Job, counts: Topology, batch: Batch | None) -> Iterator[tuple[str, str]]:
    """Yield the plan's row about the range."""
    most = counts.host_count
    if job.least_hosts in (None, most):
        return
    row = f"{job.least_hosts} to {most}, as many as Slurm gives: the numbers are those of {most}"
    if batch is not None:
        accumulation = batch.accumulation * most // job.least_hosts
        row += f"; on {job.least_hosts} accumulation is {accumulation}, "
        row += f"the global batch stays {number(batch.global_batch)}"
    yield "range of hosts", row
