"""IPUs: the rules of replicas, instances and hosts, from the PopDist and PopRun User Guide and the V-IPU User Guide."""

from __future__ import annotations

from trainjob.cluster.job import Job
from trainjob.cluster.nodes import Capacity
from trainjob.planning.counts import hosts_fit, instances_divide_over_hosts, topology
from trainjob.planning.rules import Knob, refuse
from trainjob.planning.words import quantity
from trainjob.records.job import Topology

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


def count_ipus(capacity: Capacity, job: Job, task_stages: tuple[int, ...] | None) -> Topology:
    """Return the numbers of hosts, instances, replicas and IPUs. Raises Broken.

    `task_stages` are the numbers of IPUs that the model can be split over; None if only the task itself knows them.
    """
    per_replica = _ipus_per_replica(capacity, job, task_stages)
    slots, replicas, hosts, instances = capacity.slots, job.replicas, job.hosts, job.instances
    if replicas is None:
        available = capacity.ipus or 0
        if slots is not None:
            # Slurm allocates whole nodes: take as few as hold the instances, and use all their IPUs.
            available = slots * (hosts or -(-(instances or 1) * per_replica // slots))
        replicas = max(1, available // per_replica)
    if hosts is None and slots is not None:
        hosts = max(1, -(-replicas * per_replica // slots))
    elif hosts is None:
        # All of a pod's hosts if the instances divide evenly over them, else the largest number of hosts that does.
        spread = instances if instances is not None else replicas
        hosts = next(hosts for hosts in range(capacity.most_hosts, 0, -1) if spread % hosts == 0)
    ilds = capacity.ilds or -(-replicas * per_replica // IPUS_PER_ILD)
    if instances is None:
        fitting = (number for number in range(hosts, replicas + 1, hosts) if replicas % number == 0)
        instances = next((number for number in fitting if number >= ilds), hosts)
    counts = topology(hosts, instances, replicas, per_replica, "IPU", ilds, capacity.ipus)
    _check_counts(capacity, counts, ilds)
    return counts


def _ipus_per_replica(capacity: Capacity, job: Job, task_stages: tuple[int, ...] | None) -> int:
    possible = task_stages or (1,)
    per_replica = job.ipus_per_replica if job.ipus_per_replica is not None else possible[0]
    knob = Knob("ipus_per_replica", per_replica, possible)
    if per_replica not in IPUS_PER_REPLICA:
        refuse(COLLECTIVES, f"ipus_per_replica is {per_replica}", knob)
    if task_stages is not None and per_replica not in possible:
        split = f"split over {' or '.join(str(stages) for stages in sorted(possible))} IPUs"
        model = "not split" if possible == (1,) else split
        refuse(SPLIT, f"the task's model is {model} and ipus_per_replica is {per_replica}", knob)
    if per_replica > (capacity.ipus or 0):
        refuse(PARTITION_HOLDS, f"one replica on {quantity(per_replica, 'IPU')}, the cluster has {capacity.ipus}", knob)
    return per_replica


def _check_counts(capacity: Capacity, counts: Topology, ilds: int) -> None:
    """Raise Broken for the first rule that the numbers break."""
    ipus, hosts, instances, replicas = capacity.ipus or 0, counts.host_count, counts.instances, counts.replicas
    if capacity.slots is None and not _is_power_of_two(ipus):
        below = 1 << (ipus.bit_length() - 1)
        cure = f"Write ipus: {below} or ipus: {2 * below} there."
        refuse(PARTITION_SIZE, f"the cluster file says ipus: {ipus}", otherwise=cure)
    hosts_fit(capacity, hosts, instances)
    knobs = (Knob("instances", instances, (replicas,)), Knob("replicas", replicas))
    if replicas % instances:
        values = f"{quantity(replicas, 'replica')} on {quantity(instances, 'instance')}"
        refuse(INSTANCE_HAS_REPLICA if instances > replicas else EVEN_OVER_INSTANCES, values, *knobs)
    instances_divide_over_hosts(capacity, hosts, instances)
    knob = Knob("replicas", replicas, (ipus // counts.devices_per_replica,))
    product = f"{quantity(replicas, 'replica')} × {quantity(counts.devices_per_replica, 'IPU')} = {counts.devices}"
    if counts.devices > ipus:
        refuse(PARTITION_HOLDS, f"{product}, the cluster has {capacity.ipus}", knob)
    if not _is_power_of_two(counts.devices):
        refuse(POWER_OF_TWO, f"{product} IPUs", knob)
    if capacity.slots is not None and counts.devices > hosts * capacity.slots:
        place = f"{quantity(hosts, capacity.host_word)} × {capacity.slots} = {hosts * capacity.slots}"
        more_hosts = Knob("hosts", hosts, (-(-counts.devices // capacity.slots),))
        refuse(HOSTS_HOLD, f"{product} IPUs on {place}", knob, more_hosts)
    if ilds > instances:
        values = f"{quantity(ilds, 'IPU-Link domain')} and {quantity(instances, 'instance')}"
        knobs = (Knob("instances", instances, (ilds,)), Knob("hosts", hosts))
        refuse(ILD_HAS_INSTANCE, values, *knobs, otherwise="Or fewer replicas, on fewer domains.")


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0
