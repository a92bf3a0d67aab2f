"""The servers of a job with roles: their hosts follow those of the role that needs them, in one allocation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

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
    capacity, listed = cluster.capacity, roles.parse(job.roles).servers
    if cluster.trains_here:
        for role in listed:
            if role.gpus:
                refuse(
                    SHARED,
                    f"{role.name}.gpus is {role.gpus}, and this machine's GPUs are not planned",
                    otherwise=_BY_ENV,
                )
            if role.hosts > 1:
                refuse(HOSTS_EXIST, f"{role.name} takes {role.hosts}, and this is one machine", otherwise="Take 1.")
        return {role.name: _on(("localhost",), 0, "CPU") for role in listed}
    apart = [role for role in listed if role.gpus is None]
    total = main.host_count + sum(role.hosts for role in apart)
    if total > capacity.most_hosts:
        each = " + ".join(f"{role.hosts} ({role.name})" for role in apart)
        values = f"{main.host_count} + {each} = {total}, and at most {capacity.most_hosts} are there"
        knob = Knob("hosts", main.host_count, (), capacity.most_hosts)
        fit = " and ".join(role.name for role in apart if role.hosts <= main.host_count)
        cure = f"Or give {fit} gpus: 0, to share the job's hosts without a GPU." if fit else _FEWER
        refuse(HOSTS_EXIST, values, knob, otherwise=cure)
    names, placed, first = cluster.names_of_hosts(total), {}, main.host_count
    # A scheduler gives every host of a job as many devices.
    devices = main.devices // main.host_count if cluster.has_scheduler else cluster.accelerators_per_host or 0
    shared = main.devices // main.host_count
    for role in listed:
        if role.gpus is None:
            placed[role.name] = _on(names[first : first + role.hosts], devices, main.device)
            first += role.hosts
            continue
        if role.gpus == 0:
            if role.hosts > main.host_count:
                values = f"{role.name}.hosts is {role.hosts}, and the job takes {quantity(main.host_count, 'host')}"
                refuse(
                    NO_GPU,
                    values,
                    otherwise=f"Take {main.host_count}, or leave gpus out: {role.name} has hosts of its own then.",
                )
            placed[role.name] = replace(_on(names[: role.hosts], 0, "CPU"), first_shared_device=shared)
            continue
        if role.hosts != main.host_count:
            values = f"{role.name}.hosts is {role.hosts}, and the job takes {quantity(main.host_count, 'host')}"
            refuse(SHARED, values, otherwise=f"Give {role.name} hosts: {main.host_count}, or leave its gpus out.")
        on = _on(names[: role.hosts], role.gpus, main.device)
        placed[role.name] = replace(on, first_shared_device=shared)
        shared += role.gpus
    return placed


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


_FEWER = "Or give the servers fewer hosts."
_BY_ENV = "Give each role its GPUs by env: {CUDA_VISIBLE_DEVICES: ...}."


def _refuse_others(cluster: Cluster, job: Job, main: Topology, engine: str) -> None:
    if cluster.ipu_keys is not None or needs_mpirun(engine):
        starter = "poprun" if cluster.ipu_keys is not None else f"engine {engine}, whose mpirun"
        refuse(ONE_PROGRAM, f"{starter} starts the ranks here", otherwise="Take GPUs or CPUs and another engine.")
    if job.roles and roles.parse(job.roles).has_ray and job.command_per != "node":
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
    for role in parsed.servers:
        on = placed[role.name]
        needed = f", after {' and '.join(role.needs)}" if role.needs else ""
        again = f", restarted at most {quantity(role.restarts, 'time')}" if role.restarts else ""
        within = words.seconds(role.ready_timeout_s)
        share = "" if role.gpus is None else f", with {quantity(role.gpus, 'GPU')}" if role.gpus else ", without a GPU"
        row = f"server on {on.hosts}{share}{needed}, ready within {within} ({role.ready}){again}"
        yield f"role {role.name}", row + (_DRIVES if role.has_ray else "")
    if parsed.main:
        needed = f", after {' and '.join(parsed.needs)}" if parsed.needs else ""
        within = f", whose nodes are in within {words.seconds(parsed.ready_timeout_s)}"
        ray = f"{_DRIVES}{within}" if parsed.has_ray else ""
        yield f"role {parsed.main}", f"the job itself on {main.hosts}{needed}{ray}"


def server_job(job: Job, role: roles.Server, on: Topology, cluster: Cluster) -> Job:
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
