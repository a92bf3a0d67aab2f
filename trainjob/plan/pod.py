"""IPUs: replicas over instances over hosts, by the PopDist and PopRun User Guide and the V-IPU User Guide."""

from __future__ import annotations

from trainjob.cluster.job import Job
from trainjob.plan.counts import Counts, hosts_fit, instances_divide_over_hosts
from trainjob.plan.rules import Knob, refuse
from trainjob.plan.sites import IPUS_PER_ILD, Site
from trainjob.plan.words import quantity

IPUS_PER_REPLICA = (1, 2, 4, 8, 16)  # what collectives are made for (GCL user guide)

COLLECTIVES = "ipus_per_replica is 1, 2, 4, 8 or 16"
SPLIT = "ipus_per_replica is a number of IPUs that the task can split its model over"
PARTITION_SIZE = "a partition has a power of two of IPUs"
INSTANCE_HAS_REPLICA = "every instance has at least one replica"
EVEN_OVER_INSTANCES = "replicas divide evenly over instances"
PARTITION_HOLDS = "the cluster has IPUs for every replica"
POWER_OF_TWO = "a job uses a power of two of IPUs"
HOSTS_HOLD = "hosts have IPUs for every replica"
ILD_HAS_INSTANCE = "every IPU-Link domain has at least one instance"


def count(site: Site, job: Job, task_stages: tuple[int, ...] | None) -> Counts:
    """Return how many of everything. `task_stages` is None where only the task itself knows. Raises Broken."""
    per_replica = _ipus_per_replica(site, job, task_stages)
    replicas = (
        job.replicas if job.replicas is not None else max(1, _available_ipus(site, job, per_replica) // per_replica)
    )
    ilds = site.ilds or -(-replicas * per_replica // IPUS_PER_ILD)
    hosts = job.hosts if job.hosts is not None else _default_hosts(site, job, replicas * per_replica, replicas)
    instances = job.instances if job.instances is not None else _default_instances(hosts, replicas, ilds)
    counts = Counts(hosts, instances, replicas, per_replica, "IPU", ilds, site.ipus)
    _check(site, counts)
    return counts


def _available_ipus(site: Site, job: Job, per_replica: int) -> int:
    if site.slots is None:
        return site.ipus or 0
    # Slurm gives nodes: as few as hold the instances, and then all their IPUs.
    needed = (job.instances or 1) * per_replica
    return site.slots * (job.hosts or -(-needed // site.slots))


def _default_hosts(site: Site, job: Job, ipus: int, replicas: int) -> int:
    if site.slots is not None:
        return max(1, -(-ipus // site.slots))
    # All of a pod's hosts where they divide what runs on them, else the most that do.
    spread = job.instances if job.instances is not None else replicas
    return next(hosts for hosts in range(site.most_hosts, 0, -1) if spread % hosts == 0)


def _default_instances(hosts: int, replicas: int, ilds: int) -> int:
    fitting = (instances for instances in range(hosts, replicas + 1, hosts) if replicas % instances == 0)
    return next((instances for instances in fitting if instances >= ilds), hosts)


def _ipus_per_replica(site: Site, job: Job, task_stages: tuple[int, ...] | None) -> int:
    possible = task_stages or (1,)
    asked = job.ipus_per_replica if job.ipus_per_replica is not None else possible[0]
    knob = Knob("ipus_per_replica", asked, possible)
    if asked not in IPUS_PER_REPLICA:
        refuse(COLLECTIVES, f"ipus_per_replica is {asked}", knob)
    if task_stages is not None and asked not in possible:
        refuse(SPLIT, f"the task's model is {_split(possible)} and ipus_per_replica is {asked}", knob)
    if asked > (site.ipus or 0):
        refuse(PARTITION_HOLDS, f"one replica on {quantity(asked, 'IPU')}, the cluster has {site.ipus}", knob)
    return asked


def _split(possible: tuple[int, ...]) -> str:
    """Return in words how a model can be split."""
    if possible == (1,):
        return "not split"
    return f"split over {' or '.join(str(stages) for stages in sorted(possible))} IPUs"


def _check(site: Site, counts: Counts) -> None:
    if site.slots is None and not _is_power_of_two(site.ipus or 0):
        refuse(PARTITION_SIZE, f"the cluster file says ipus: {site.ipus}", otherwise=_two_sizes(site.ipus or 0))
    hosts_fit(site, counts.hosts, counts.instances)
    _replicas_divide(counts)
    instances_divide_over_hosts(site, counts.hosts, counts.instances)
    _partition_holds(site, counts)
    _domains_have_instances(counts)


def _replicas_divide(counts: Counts) -> None:
    knobs = (Knob("instances", counts.instances, (counts.replicas,)), Knob("replicas", counts.replicas))
    found = f"{quantity(counts.replicas, 'replica')} on {quantity(counts.instances, 'instance')}"
    if counts.instances > counts.replicas:
        refuse(INSTANCE_HAS_REPLICA, found, *knobs)
    if counts.replicas % counts.instances:
        refuse(EVEN_OVER_INSTANCES, found, *knobs)


def _partition_holds(site: Site, counts: Counts) -> None:
    ipus = counts.replicas * counts.devices_per_replica
    knob = Knob("replicas", counts.replicas, ((site.ipus or 0) // counts.devices_per_replica,))
    product = f"{quantity(counts.replicas, 'replica')} × {quantity(counts.devices_per_replica, 'IPU')} = {ipus}"
    if ipus > (site.ipus or 0):
        refuse(PARTITION_HOLDS, f"{product}, the cluster has {site.ipus}", knob)
    if not _is_power_of_two(ipus):
        refuse(POWER_OF_TWO, f"{product} IPUs", knob)
    if site.slots is not None and ipus > counts.hosts * site.slots:
        there = f"{quantity(counts.hosts, site.host_word)} × {site.slots} = {counts.hosts * site.slots}"
        refuse(HOSTS_HOLD, f"{product} IPUs on {there}", knob, Knob("hosts", counts.hosts, (-(-ipus // site.slots),)))


def _domains_have_instances(counts: Counts) -> None:
    ilds = counts.ilds or 1
    if ilds > counts.instances:
        found = f"{quantity(ilds, 'IPU-Link domain')} and {quantity(counts.instances, 'instance')}"
        knobs = (Knob("instances", counts.instances, (ilds,)), Knob("hosts", counts.hosts))
        refuse(ILD_HAS_INSTANCE, found, *knobs, otherwise="Or fewer replicas, on fewer domains.")


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _two_sizes(ipus: int) -> str:
    below = 1 << (ipus.bit_length() - 1)
    return f"Write ipus: {below} or ipus: {2 * below} there."
