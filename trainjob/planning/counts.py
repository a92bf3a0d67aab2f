"""The number of hosts, instances and replicas, their placement, and the rules that all kinds of cluster share."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from trainjob.cluster.job import Job
from trainjob.cluster.nodes import Capacity
from trainjob.planning.rules import Knob, refuse
from trainjob.planning.values import Host, HostGroup, Instance, Replica, Topology
from trainjob.planning.words import quantity

HOSTS_EXIST = "a job uses hosts that the cluster has"
HOSTS_ALLOWED = "a job stays within the site's max_nodes"
EVEN_OVER_HOSTS = "instances divide evenly over hosts"
ONE_DEVICE = "only a model on IPUs is split by ipus_per_replica"
ONE_REPLICA = "on GPUs and CPUs every instance is one replica"
HOSTS_SUFFICE = "every instance has its own place"
NOT_TOO_MANY = "a job has at most 131,072 replicas"

MOST_REPLICAS = 131_072  # far above any cluster: a mistyped number must not exhaust memory


@dataclass(frozen=True)
class Counts:
    """The hosts, instances and replicas of a job.

    All hosts have the same number of instances, except in groups. All instances have the same number of replicas.
    """

    hosts: int
    instances: int
    replicas: int
    devices_per_replica: int  # 0: the replica trains on CPUs
    device_word: str
    ilds: int | None = None
    partition_ipus: int | None = None
    groups: tuple[HostGroup, ...] = ()  # empty unless hosts differ

    @property
    def stages(self) -> int:
        """IPUs that one copy of the model is split over; 1 if it is not split."""
        return max(1, self.devices_per_replica)


def not_too_many(counts: Counts) -> None:
    """Raise Broken if a count is so large that it must be a typing mistake."""
    if counts.replicas > MOST_REPLICAS:
        values = f"{quantity(counts.replicas, 'replica')} on {quantity(counts.instances, 'instance')}"
        refuse(NOT_TOO_MANY, values, otherwise="Ask for fewer instances.")


def hosts_fit(site: Capacity, hosts: int, instances: int) -> None:
    """Raise Broken if the job asks for more hosts than the cluster has, or than one job may have."""
    most_instances = () if site.slots is None else (site.slots * site.most_hosts,)
    knobs = (Knob("hosts", hosts, (site.most_hosts,)), Knob("instances", instances, most_instances))
    if hosts > site.hosts:
        word = site.host_word
        refuse(HOSTS_EXIST, f"{quantity(hosts, word)} asked for, the cluster has {site.hosts}", *knobs)
    if hosts > site.most_hosts:
        refuse(HOSTS_ALLOWED, f"{quantity(hosts, site.host_word)} needed, max_nodes is {site.most_hosts}", *knobs)


def instances_divide_over_hosts(site: Capacity, hosts: int, instances: int) -> None:
    """Raise Broken if hosts would have different numbers of instances: poprun and --ntasks-per-node take only one."""
    if instances % hosts:
        refuse(
            EVEN_OVER_HOSTS,
            f"{quantity(instances, 'instance')} over {quantity(hosts, site.host_word)}",
            Knob("instances", instances, (instances // hosts * hosts, -(-instances // hosts) * hosts)),
            Knob("hosts", hosts),
        )


def count(site: Capacity, job: Job) -> Counts:
    """Return the numbers of hosts, instances and replicas of `job`. Raises Broken."""
    instances = (
        job.instances if job.instances is not None else (job.hosts or site.default_hosts) * site.default_instances
    )
    replicas_are_instances(site, job, instances)
    hosts = job.hosts if job.hosts is not None else _default_hosts(site, instances)
    if job.hosts is None:
        _hosts_suffice(site, site.hosts, instances)
    hosts_fit(site, hosts, instances)
    _hosts_suffice(site, hosts, instances)
    instances_divide_over_hosts(site, hosts, instances)
    return Counts(hosts, instances, instances, 0 if site.device_word == "CPU" else 1, site.device_word)


def _default_hosts(site: Capacity, instances: int) -> int:
    if site.spreads:
        return next(hosts for hosts in range(site.most_hosts, 0, -1) if instances % hosts == 0)
    return 1 if site.slots is None else -(-instances // site.slots)


def replicas_are_instances(site: Capacity, job: Job, instances: int) -> None:
    """Raise Broken if the job asks for replicas that don't match its instances: on GPUs and CPUs each rank is one."""
    if job.ipus_per_replica not in (None, 1):
        values = f"ipus_per_replica is {job.ipus_per_replica} and this cluster has {site.device_word}s"
        refuse(ONE_DEVICE, values, Knob("ipus_per_replica", job.ipus_per_replica), otherwise="Or leave it out.")
    if job.replicas not in (None, instances):
        refuse(
            ONE_REPLICA,
            f"{quantity(job.replicas, 'replica')} on {quantity(instances, 'instance')}",
            Knob("instances", instances, (job.replicas,)),
            Knob("replicas", job.replicas, (instances,)),
            otherwise="Or leave --replicas out.",
        )


def _hosts_suffice(site: Capacity, hosts: int, instances: int) -> None:
    if site.slots is None or instances <= hosts * site.slots:
        return
    slot = "instance" if site.host_word == "machine" and site.device_word == "CPU" else site.device_word
    place = f"{quantity(hosts, site.host_word)} × {quantity(site.slots, slot)} = {hosts * site.slots}"
    refuse(
        HOSTS_SUFFICE,
        f"{quantity(instances, 'instance')} on {place}",
        Knob("instances", instances, (hosts * site.slots, site.most_hosts * site.slots)),
        Knob("hosts", hosts, (-(-instances // site.slots),)),
    )


def place(counts: Counts, names: tuple[str, ...]) -> Topology:
    """Return where everything runs: each host gets its share of instances before the next host gets any."""
    shares = [counts.instances // counts.hosts] * counts.hosts
    if counts.groups:
        shares = [group.instances_per_host for group in counts.groups for _ in range(group.hosts)]
    firsts = accumulate(shares, initial=0)
    hosts = tuple(
        Host(name, tuple(_instance(counts, first + local, local) for local in range(instances)))
        for name, first, instances in zip(names, firsts, shares, strict=False)
    )
    return Topology(
        hosts=hosts,
        instances=counts.instances,
        replicas=counts.replicas,
        devices_per_replica=counts.devices_per_replica,
        device_word=counts.device_word,
        ilds=counts.ilds,
        partition_ipus=counts.partition_ipus,
        groups=counts.groups,
    )


def _instance(counts: Counts, index: int, local_index: int) -> Instance:
    per_instance, per_replica = counts.replicas // counts.instances, counts.devices_per_replica
    # IPUs are numbered across the whole partition, GPUs from 0 on every host.
    first_device = (index if counts.device_word == "IPU" else local_index) * per_instance * per_replica
    replicas = tuple(
        Replica(
            index * per_instance + local,
            tuple(range(first_device + local * per_replica, first_device + (local + 1) * per_replica)),
        )
        for local in range(per_instance)
    )
    return Instance(index, local_index, replicas)
