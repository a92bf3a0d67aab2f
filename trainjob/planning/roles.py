"""The servers of a job with roles: their hosts follow those of the role that needs them, in one allocation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.cluster.nodes import Capacity
from trainjob.cluster.slurm_text import compress
from trainjob.contract import roles
from trainjob.planning import words
from trainjob.planning.engines import needs_mpirun
from trainjob.planning.rules import Knob, refuse
from trainjob.planning.words import quantity
from trainjob.records.job import Topology

ONE_PROGRAM = "each role of a job is started by a program of its own"
ONE_SIZE = "a job with roles is one job on a fixed number of equal hosts"
SHARED = "servers with gpus share every host of the job, and leave GPUs of it to the ranks"
NO_GPU = "servers with gpus: 0 share hosts of the job, and take no GPU of them"
ONE_RAY = "a role with ray: true starts one node of Ray on each of its hosts"
OUTSIDE = "roles run outside of containers"
HOSTS_EXIST = "all roles together use hosts that one job may have"


def servers(cluster: Cluster, job: Job, main: Topology, engine: str) -> dict[str, Topology]:
    """Return where the servers run, in the order in which they start. Raises Broken if this cluster can't run them."""
    if not job.roles:
        return {}
    _refuse_others(cluster, job, main, engine)
    listed = roles.parse(job.roles).servers
    if cluster.trains_here:
        return {role.name: _here(role) for role in listed}
    total = main.host_count + sum(role.hosts for role in listed if role.gpus is None)
    if total > cluster.capacity.most_hosts:
        _refuse_hosts(cluster, main, [role for role in listed if role.gpus is None], total)
    names, placed, first = cluster.names_of_hosts(total), {}, main.host_count
    # A scheduler gives every host of a job as many devices.
    devices = main.devices // main.host_count if cluster.has_scheduler else cluster.accelerators_per_host or 0
    shared = main.devices // main.host_count
    for role in listed:
        if role.gpus is None:
            placed[role.name] = _on(names[first : first + role.hosts], devices, main.device)
            first += role.hosts
            continue
        _refuse_other_hosts(role, main)
        on = _on(names[: role.hosts], role.gpus, main.device if role.gpus else "CPU")
        placed[role.name] = replace(on, first_shared_device=shared)
        shared += role.gpus
    return placed


def _here(role: roles.JobRole) -> Topology:
    if role.gpus:
        values = f"{role.name}.gpus is {role.gpus}, and this machine's GPUs are not planned"
        refuse(SHARED, values, otherwise="Give each role its GPUs by env: {CUDA_VISIBLE_DEVICES: ...}.")
    if role.hosts > 1:
        refuse(HOSTS_EXIST, f"{role.name} takes {role.hosts}, and this is one machine", otherwise="Take 1.")
    return _on(("localhost",), 0, "CPU")


def _refuse_hosts(cluster: Cluster, main: Topology, apart: Sequence[roles.JobRole], total: int) -> NoReturn:
    most, each = cluster.capacity.most_hosts, " + ".join(f"{role.hosts} ({role.name})" for role in apart)
    values = f"{main.host_count} + {each} = {total}, and at most {most} are there"
    fit = " and ".join(role.name for role in apart if role.hosts <= main.host_count)
    cure = f"give {fit} gpus: 0, to share the job's hosts without a GPU" if fit else "give the servers fewer hosts"
    refuse(HOSTS_EXIST, values, Knob("hosts", main.host_count, (), most), otherwise=f"Or {cure}.")


def _refuse_other_hosts(role: roles.JobRole, main: Topology) -> None:
    """Raise Broken for a server that is to share hosts of the job, and not these: all, or without a GPU some."""
    values = f"{role.name}.hosts is {role.hosts}, and the job takes {quantity(main.host_count, 'host')}"
    if role.gpus == 0 and role.hosts > main.host_count:
        cure = f"Take {main.host_count}, or leave gpus out: {role.name} has hosts of its own then."
        refuse(NO_GPU, values, otherwise=cure)
    if role.gpus and role.hosts != main.host_count:
        refuse(SHARED, values, otherwise=f"Give {role.name} hosts: {main.host_count}, or leave its gpus out.")


def beside_servers(capacity: Capacity, job: Job) -> Capacity:
    """Return what servers that share the job's hosts leave to its ranks. Raises Broken if that is nothing."""
    gpus = roles.parse(job.roles).shared_gpus
    if not gpus:
        return capacity
    slots = capacity.slots or 0
    if capacity.device_word != "GPU" or capacity.groups or gpus >= slots:
        values = f"they take {quantity(gpus, 'GPU')}, and a host has {quantity(slots, capacity.device_word)}"
        refuse(SHARED, values, otherwise="Leave gpus out: a server has hosts of its own then.")
    return capacity._replace(slots=slots - gpus, default_instances=min(capacity.default_instances, slots - gpus))


def _refuse_others(cluster: Cluster, job: Job, main: Topology, engine: str) -> None:
    if cluster.ipu_keys is not None or needs_mpirun(engine):
        starter = "poprun" if cluster.ipu_keys is not None else f"engine {engine}, whose mpirun"
        refuse(ONE_PROGRAM, f"{starter} starts the ranks here", otherwise="Take GPUs or CPUs and another engine.")
    if roles.parse(job.roles).main.ray and job.command_per != "node":
        refuse(ONE_RAY, f"command_per is {job.command_per}", otherwise="Leave command_per out.")
    many = [setting for setting in ("array", "sweep", "pack") if getattr(job, setting) is not None]
    if many:
        values = " and ".join(f"{setting} is {getattr(job, setting)}" for setting in many)
        refuse(ONE_SIZE, values, otherwise=f"Leave {' and '.join(many)} out, or roles.")
    if job.least_hosts is not None:
        refuse(ONE_SIZE, f"hosts is {job.least_hosts}-{job.hosts}", otherwise="Give hosts as one number.")
    if main.groups:
        refuse(ONE_SIZE, "nodes is a list of groups", otherwise="Take nodes that are all alike.")
    if cluster.container.runtime != "none":
        refuse(OUTSIDE, f"container.runtime is {cluster.container.runtime}", otherwise="Leave roles out.")


def _on(names: tuple[str, ...], devices: int, device: str) -> Topology:
    """Return one process on each of these hosts, which has all devices there."""
    count = len(names)
    return Topology(
        hosts=compress(names),
        host_count=count,
        instances=count,
        instances_per_host=1,
        replicas=count,
        replicas_per_instance=1,
        devices_per_replica=devices,
        device=device,
    )


_DRIVES = ", as the driver of a Ray cluster on its hosts"


def rows(job: Job, main: Topology, placed: Mapping[str, Topology]) -> Iterator[tuple[str, str]]:
    """Yield a row of the plan for each role."""
    parsed = roles.parse(job.roles)
    for role in [*parsed.servers, parsed.main] if job.roles else ():
        needed = f", after {' and '.join(role.needs)}" if role.needs else ""
        within = words.seconds(role.ready_timeout_s)
        if role is parsed.main:
            ray = f"{_DRIVES}, whose nodes are in within {within}" if role.ray else ""
            yield f"role {role.name}", f"the job itself on {main.hosts}{needed}{ray}"
            continue
        share = "" if role.gpus is None else f", with {quantity(role.gpus, 'GPU')}" if role.gpus else ", without a GPU"
        again = f", restarted at most {quantity(role.restarts, 'time')}" if role.restarts else ""
        row = f"server on {placed[role.name].hosts}{share}{needed}, ready within {within} ({role.ready}){again}"
        yield f"role {role.name}", row + (_DRIVES if role.ray else "")


def server_job(job: Job, role: roles.JobRole, on: Topology, cluster: Cluster) -> Job:
    """Return the job of one server: its own command on its own hosts, in the environment of `job`."""
    share = {}
    # A scheduler gives each step its own GPUs, if it knows them; what takes none sees none anywhere.
    if role.gpus == 0 or (on.first_shared_device is not None and not cluster.has_scheduler):
        first = on.first_shared_device or 0
        devices = range(first, first + on.devices_per_replica)
        share = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, devices))}
    return Job.of(
        {
            "name": role.name,
            "command": role.command,
            "command_per": "rank",
            "hosts": role.hosts,
            "instances": role.hosts,
            "env": {**share, **job.env, **role.env},
            **({"environment": job.environment} if job.environment else {}),
        }
    )
