"""How many of everything, where it all goes, and the rules that all kinds of cluster share."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from trainjob.cluster.job import Job
from trainjob.plan.rules import Knob, refuse
from trainjob.plan.sites import Site
from trainjob.plan.values import Host, HostGroup, Instance, Replica, Topology
from trainjob.plan.words import quantity

HOSTS_EXIST = "a job uses hosts that the cluster has"
HOSTS_ALLOWED = "a job stays within the site's max_nodes"
EVEN_OVER_HOSTS = "instances divide evenly over hosts"
ONE_DEVICE = "only a model on IPUs is split by ipus_per_replica"
ONE_REPLICA = "on GPUs and CPUs every instance is one replica"
HOSTS_SUFFICE = "every instance has a place of its own"
NOT_TOO_MANY = "a job has at most 131,072 replicas"

MOST_REPLICAS = 131_072  # far above any cluster: a slip must not fill the memory


@dataclass(frozen=True)
class Counts:
    """Hosts, instances and replicas of a job. Every host has as many instances, unless there are groups of them.

    Every instance has as many replicas.
    """

    hosts: int
    instances: int
    replicas: int
    devices_per_replica: int  # 0: trains on CPUs
    device_word: str
    ilds: int | None = None
    partition_ipus: int | None = None
    groups: tuple[HostGroup, ...] = ()  # where hosts differ

    @property
    def stages(self) -> int:
        """IPUs that one copy of the model is split over; 1 where it is not split."""
        return max(1, self.devices_per_replica)


def not_too_many(counts: Counts) -> None:
    """Raise Broken where a count can only be a slip of the keyboard."""
    if counts.replicas > MOST_REPLICAS:
        found = f"{quantity(counts.replicas, 'replica')} on {quantity(counts.instances, 'instance')}"
        refuse(NOT_TOO_MANY, found, otherwise="Ask for fewer instances.")


def hosts_fit(site: Site, hosts: int, instances: int) -> None:
    """Raise Broken where the job asks for more hosts than there are, or than one job may have."""
    knobs = (Knob("hosts", hosts, (site.most_hosts,)), Knob("instances", instances, _full(site)))
    if hosts > site.hosts:
        word = site.host_word
        refuse(HOSTS_EXIST, f"{quantity(hosts, word)} asked for, the cluster has {site.hosts}", *knobs)
    if hosts > site.most_hosts:
        refuse(HOSTS_ALLOWED, f"{quantity(hosts, site.host_word)} needed, max_nodes is {site.most_hosts}", *knobs)


def instances_divide_over_hosts(site: Site, hosts: int, instances: int) -> None:
    """Raise Broken where hosts would have different numbers of instances (poprun and --ntasks-per-node want one)."""
    if instances % hosts:
        refuse(
            EVEN_OVER_HOSTS,
            f"{quantity(instances, 'instance')} over {quantity(hosts, site.host_word)}",
            Knob("instances", instances, (instances // hosts * hosts, -(-instances // hosts) * hosts)),
            Knob("hosts", hosts),
        )


def _full(site: Site) -> tuple[int, ...]:
    return () if site.slots is None else (site.slots * site.most_hosts,)


def count(site: Site, job: Job) -> Counts:
    """Return how many of everything. Raises Broken."""
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


def _default_hosts(site: Site, instances: int) -> int:
    if site.spreads:
        return next(hosts for hosts in range(site.most_hosts, 0, -1) if instances % hosts == 0)
    return 1 if site.slots is None else -(-instances // site.slots)


def replicas_are_instances(site: Site, job: Job, instances: int) -> None:
    """Raise Broken where a rank is asked for another number of replicas than the one it is."""
    if job.ipus_per_replica not in (None, 1):
        found = f"ipus_per_replica is {job.ipus_per_replica} and this cluster has {site.device_word}s"
        refuse(ONE_DEVICE, found, Knob("ipus_per_replica", job.ipus_per_replica), otherwise="Or leave it out.")
    if job.replicas not in (None, instances):
        refuse(
            ONE_REPLICA,
            f"{quantity(job.replicas, 'replica')} on {quantity(instances, 'instance')}",
            Knob("instances", instances, (job.replicas,)),
            Knob("replicas", job.replicas, (instances,)),
            otherwise="Or leave --replicas out.",
        )


def _hosts_suffice(site: Site, hosts: int, instances: int) -> None:
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
    """Return where everything runs: each host is filled with its share before the next."""
    each = [counts.instances // counts.hosts] * counts.hosts
    if counts.groups:
        each = [group.instances_per_host for group in counts.groups for _ in range(group.hosts)]
    firsts = accumulate(each, initial=0)
    hosts = tuple(
        Host(name, tuple(_instance(counts, first + local, local) for local in range(here)))
        for name, first, here in zip(names, firsts, each, strict=False)
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
    each = counts.replicas // counts.instances
    # IPUs are numbered through the partition, GPUs anew on every host.
    first_device = (index if counts.device_word == "IPU" else local_index) * each * counts.devices_per_replica
    replicas = tuple(
        Replica(index * each + local, _devices(first_device, local, counts.devices_per_replica))
        for local in range(each)
    )
    return Instance(index, local_index, replicas)


def _devices(first: int, replica: int, each: int) -> tuple[int, ...]:
    return tuple(range(first + replica * each, first + (replica + 1) * each))
