"""GPUs and CPUs: one instance is one replica, and hosts are filled in order."""

from __future__ import annotations

from trainjob.cluster.job import Job
from trainjob.plan.counts import Counts, hosts_fit, instances_divide_over_hosts
from trainjob.plan.rules import Knob, refuse
from trainjob.plan.sites import Site
from trainjob.plan.words import quantity

ONE_DEVICE = "only a model on IPUs is split by ipus_per_replica"
ONE_REPLICA = "on GPUs and CPUs every instance is one replica"
ROOM = "every instance has a place of its own"


def count(site: Site, job: Job) -> Counts:
    """Return how many of everything. Raises Broken."""
    instances = job.instances if job.instances is not None else (job.hosts or 1) * site.default_instances
    _replicas_are_instances(site, job, instances)
    hosts = job.hosts if job.hosts is not None else _fewest(site, instances)
    if job.hosts is None:
        _instances_have_room(site, site.hosts, instances)
    hosts_fit(site, hosts, instances)
    _instances_have_room(site, hosts, instances)
    instances_divide_over_hosts(site, hosts, instances)
    return Counts(hosts, instances, instances, 0 if site.device_word == "CPU" else 1, site.device_word)


def _fewest(site: Site, instances: int) -> int:
    return 1 if site.slots is None else -(-instances // site.slots)


def _replicas_are_instances(site: Site, job: Job, instances: int) -> None:
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


def _instances_have_room(site: Site, hosts: int, instances: int) -> None:
    if site.slots is None or instances <= hosts * site.slots:
        return
    place = f"{quantity(hosts, site.host_word)} × {quantity(site.slots, _slot(site))} = {hosts * site.slots}"
    refuse(
        ROOM,
        f"{quantity(instances, 'instance')} on {place}",
        Knob("instances", instances, (hosts * site.slots, site.most_hosts * site.slots)),
        Knob("hosts", hosts, (-(-instances // site.slots),)),
    )


def _slot(site: Site) -> str:
    return "instance" if site.host_word == "machine" and site.device_word == "CPU" else site.device_word
