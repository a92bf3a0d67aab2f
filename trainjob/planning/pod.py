"""IPUs: the rules of replicas, instances and hosts, from the PopDist and PopRun User Guide and the V-IPU User Guide."""

from __future__ import annotations

from trainjob.cluster.job import Job
from trainjob.cluster.nodes import Capacity
from trainjob.planning.counts import Counts, hosts_fit, instances_divide_over_hosts
from trainjob.planning.rules import Knob, refuse
from trainjob.planning.words import quantity

IPUS_PER_ILD = 64  # One rack is one IPU-Link domain: POD128 has 2, POD256 has 4 (MLPerf submissions' notes).
IPUS_PER_REPLICA = (1, 2, 4, 8, 16)  # the sizes that collectives support (GCL user guide)

COLLECTIVES = "ipus_per_replica is 1, 2, 4, 8 or 16"
SPLIT = "ipus_per_replica is a number of IPUs that the task can split its model over"
PARTITION_SIZE = "a partition has a power of two of IPUs"
INSTANCE_HAS_REPLICA = "every instance has at least one replica"
EVEN_OVER_INSTANCES = "replicas divide evenly over instances"
PARTITION_HOLDS = "the cluster has IPUs for every replica"
POWER_OF_TWO = "a job uses a power of two of IPUs"
HOSTS_HOLD = "hosts have IPUs for every replica"
ILD_HAS_INSTANCE = "every IPU-Link domain has at least one instance"


def count(site: Capacity, job: Job, task_stages: tuple[int, ...] | None) -> Counts:
    """Return the numbers of hosts, instances, replicas and IPUs. Raises Broken.

    `task_stages` are the numbers of IPUs that the model can be split over; None if only the task itself knows them.
    """
    per_replica = _ipus_per_replica(site, job, task_stages)
    replicas = (
        job.replicas if job.replicas is not None else max(1, _available_ipus(site, job, per_replica) // per_replica)
    )
    ilds = site.ilds or -(-replicas * per_replica // IPUS_PER_ILD)
    hosts = job.hosts if job.hosts is not None else _default_hosts(site, job, replicas * per_replica, replicas)
    instances = job.instances
    if instances is None:
        fitting = (number for number in range(hosts, replicas + 1, hosts) if replicas % number == 0)
        instances = next((number for number in fitting if number >= ilds), hosts)
    counts = Counts(hosts, instances, replicas, per_replica, "IPU", ilds, site.ipus)
    _check(site, counts)
    return counts


def _available_ipus(site: Capacity, job: Job, per_replica: int) -> int:
    if site.slots is None:
        return site.ipus or 0
    # Slurm allocates whole nodes: take as few as hold the instances, and use all their IPUs.
    needed = (job.instances or 1) * per_replica
    return site.slots * (job.hosts or -(-needed // site.slots))


def _default_hosts(site: Capacity, job: Job, ipus: int, replicas: int) -> int:
    if site.slots is not None:
        return max(1, -(-ipus // site.slots))
    # All of a pod's hosts if the instances divide evenly over them, else the largest number of hosts that does.
    spread = job.instances if job.instances is not None else replicas
    return next(hosts for hosts in range(site.most_hosts, 0, -1) if spread % hosts == 0)


def _ipus_per_replica(site: Capacity, job: Job, task_stages: tuple[int, ...] | None) -> int:
    possible = task_stages or (1,)
    per_replica = job.ipus_per_replica if job.ipus_per_replica is not None else possible[0]
    knob = Knob("ipus_per_replica", per_replica, possible)
    if per_replica not in IPUS_PER_REPLICA:
        refuse(COLLECTIVES, f"ipus_per_replica is {per_replica}", knob)
    if task_stages is not None and per_replica not in possible:
        split = f"split over {' or '.join(str(stages) for stages in sorted(possible))} IPUs"
        model = "not split" if possible == (1,) else split
        refuse(SPLIT, f"the task's model is {model} and ipus_per_replica is {per_replica}", knob)
    if per_replica > (site.ipus or 0):
        refuse(PARTITION_HOLDS, f"one replica on {quantity(per_replica, 'IPU')}, the cluster has {site.ipus}", knob)
    return per_replica


def _check(site: Capacity, counts: Counts) -> None:
    ipus = site.ipus or 0
    if site.slots is None and not _is_power_of_two(ipus):
        below = 1 << (ipus.bit_length() - 1)
        cure = f"Write ipus: {below} or ipus: {2 * below} there."
        refuse(PARTITION_SIZE, f"the cluster file says ipus: {ipus}", otherwise=cure)
    hosts_fit(site, counts.hosts, counts.instances)
    _replicas_divide(counts)
    instances_divide_over_hosts(site, counts.hosts, counts.instances)
    _partition_holds(site, counts)
    _domains_have_instances(counts)


def _replicas_divide(counts: Counts) -> None:
    knobs = (Knob("instances", counts.instances, (counts.replicas,)), Knob("replicas", counts.replicas))
    values = f"{quantity(counts.replicas, 'replica')} on {quantity(counts.instances, 'instance')}"
    if counts.instances > counts.replicas:
        refuse(INSTANCE_HAS_REPLICA, values, *knobs)
    if counts.replicas % counts.instances:
        refuse(EVEN_OVER_INSTANCES, values, *knobs)


def _partition_holds(site: Capacity, counts: Counts) -> None:
    ipus = counts.replicas * counts.devices_per_replica
    knob = Knob("replicas", counts.replicas, ((site.ipus or 0) // counts.devices_per_replica,))
    product = f"{quantity(counts.replicas, 'replica')} × {quantity(counts.devices_per_replica, 'IPU')} = {ipus}"
    if ipus > (site.ipus or 0):
        refuse(PARTITION_HOLDS, f"{product}, the cluster has {site.ipus}", knob)
    if not _is_power_of_two(ipus):
        refuse(POWER_OF_TWO, f"{product} IPUs", knob)
    if site.slots is not None and ipus > counts.hosts * site.slots:
        capacity = f"{quantity(counts.hosts, site.host_word)} × {site.slots} = {counts.hosts * site.slots}"
        refuse(
            HOSTS_HOLD, f"{product} IPUs on {capacity}", knob, Knob("hosts", counts.hosts, (-(-ipus // site.slots),))
        )


def _domains_have_instances(counts: Counts) -> None:
    ilds = counts.ilds or 1
    if ilds > counts.instances:
        values = f"{quantity(ilds, 'IPU-Link domain')} and {quantity(counts.instances, 'instance')}"
        knobs = (Knob("instances", counts.instances, (ilds,)), Knob("hosts", counts.hosts))
        refuse(ILD_HAS_INSTANCE, values, *knobs, otherwise="Or fewer replicas, on fewer domains.")


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0
