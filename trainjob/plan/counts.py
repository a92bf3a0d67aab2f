"""How many of everything, before anything has a place; and the rules all kinds of cluster share."""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.plan.rules import Knob, refuse
from trainjob.plan.sites import Site
from trainjob.plan.words import quantity

HOSTS_EXIST = "a job uses hosts that the cluster has"
HOSTS_ALLOWED = "a job stays within the site's max_nodes"
EVEN_OVER_HOSTS = "instances divide evenly over hosts"
NOT_TOO_MANY = "a job has at most 131,072 replicas"

MOST_REPLICAS = 131_072  # far above any cluster: a slip must not fill the memory


@dataclass(frozen=True)
class Counts:
    """Hosts, instances and replicas of a job. Every host has as many instances, every instance as many replicas."""

    hosts: int
    instances: int
    replicas: int
    devices_per_replica: int  # 0: trains on CPUs
    device_word: str
    ilds: int | None = None
    partition_ipus: int | None = None

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
