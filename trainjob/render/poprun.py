"""The options of the poprun line for a release of the SDK, ready for templates to print."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from trainjob.cluster import hostlist
from trainjob.cluster.models import PodCluster, SlurmCluster
from trainjob.contract import quoting
from trainjob.contract.quoting import Shell
from trainjob.planning import poprun as rules
from trainjob.planning import sdk
from trainjob.render.record import environment
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced, SourcedShell

# The name of the run's own partition: the run id, with underscores for all but letters and digits.
OWN_PARTITION = Shell('"trainjob_${TRAINJOB_RUN_ID//[!A-Za-z0-9]/_}"')
# All attempts of a run share one Slurm job id, and each element of an array has its own.
_OWN_UNDER_SLURM = "trainjob_%j"
OWN_CACHE = Shell('"$TRAINJOB_RUN_DIR"/executables')


class Option(NamedTuple):
    """One option of poprun; `value` None is a bare flag."""

    flag: Shell
    value: object | None


class _Launch(NamedTuple):
    request: Request
    cluster: PodCluster | SlurmCluster

    @property
    def origin(self) -> str:
        return self.request.cluster_origin

    @property
    def under_slurm(self) -> bool:
        return isinstance(self.cluster, SlurmCluster)


def context(request: Request, cluster: PodCluster) -> dict[str, Any]:
    """Return the names that only templates of pods have."""
    launch = _Launch(request, cluster)
    topology = request.plan.topology
    return {
        **of_the_line(request, cluster),
        "first_host": Sourced(topology.hosts[0].name if len(topology.hosts) > 1 else "127.0.0.1", launch.origin),
        "fixed_port": None if cluster.network.port is None else Sourced(cluster.network.port, launch.origin),
        "is_group": True,
        "allocation": None,
        "removes_own_partition": False,
    }


def of_the_line(request: Request, cluster: PodCluster | SlurmCluster) -> dict[str, Any]:
    """Return the names for the poprun line and the lines around it, in the script of a pod or of Slurm."""
    launch, interface = _Launch(request, cluster), cluster.network.interface
    return {
        "sdk_path": _path(launch, "sdk.path", cluster.sdk.path if cluster.sdk else None),
        "venv": _path(launch, "sdk.venv", cluster.sdk.venv if cluster.sdk else None),
        "vipu_server": None if cluster.vipu.server is None else Sourced(cluster.vipu.server, launch.origin),
        "partition": _partition(launch),
        "removes_partition": cluster.vipu.remove_partition is not False,
        "executable_cache": _cache(launch),
        "mpi_interface": None if interface is None else Sourced(interface, launch.origin),
        "mpi_global_args": Sourced(" ".join(cluster.poprun.mpi_global_args), launch.origin),
        "mpi_local_args": Sourced(" ".join(cluster.poprun.mpi_local_args), launch.origin),
        # On one host the ranks inherit mpirun's environment.
        "forwards": len(request.plan.topology.hosts) > 1,
        "forwarded": [Sourced(name, launch.origin) for name in (*environment(request), *cluster.poprun.forward)],
        "poprun_rows": [row for row in _rows(launch) if row],
        "compile_first": bool(request.job.compile_first),
        # A task can be told to compile and end; a user's command can't.
        "compiles_ahead": request.job.command is None and bool(request.job.compile_first or request.job.compile_only),
        "compile_origin": request.origin("compile_first" if request.job.compile_first else "compile_only"),
    }


def _path(launch: _Launch, key: str, path: str | None) -> SourcedShell | None:
    return None if path is None else launch.request.path(key, path)


def _partition(launch: _Launch) -> object | None:
    vipu = launch.cluster.vipu
    if vipu.partition is not None and launch.under_slurm:
        return SourcedShell(quoting.with_job_id(vipu.partition), launch.origin)
    if vipu.partition is not None:
        return Sourced(vipu.partition, launch.origin)
    if launch.under_slurm and vipu.allocation is not None:
        return SourcedShell(quoting.with_job_id(_OWN_UNDER_SLURM), "a partition of the job's own")
    return None if vipu.allocation is None else SourcedShell(OWN_PARTITION, "a partition of the run's own")


def _cache(launch: _Launch) -> SourcedShell | None:
    folder = launch.cluster.poprun.executable_cache
    if folder is not None:
        return _path(launch, "poprun.executable_cache", folder)
    if launch.request.job.compile_first or launch.request.job.compile_only:
        return SourcedShell(OWN_CACHE, "the run's own, for what is compiled ahead")
    return None


def _rows(launch: _Launch) -> Iterator[list[Option]]:
    """Yield lines of options: hosts and counts, the partition, further settings, mpirun's arguments."""
    yield [*_verbosity(launch), *_hosts(launch), *_topology(launch)]
    yield list(_vipu(launch))
    yield list(_settings(launch))
    yield list(_of_mpirun(launch))


def _of_mpirun(launch: _Launch) -> Iterator[Option]:
    settings = launch.cluster.poprun
    if launch.cluster.network.interface is not None or settings.mpi_global_args:
        yield Option(Shell("--mpi-global-args"), Shell('"$TRAINJOB_MPI_GLOBAL"'))
    if len(launch.request.plan.topology.hosts) > 1 or settings.mpi_local_args:
        yield Option(Shell("--mpi-local-args"), Shell('"$TRAINJOB_MPI_LOCAL"'))


def _verbosity(launch: _Launch) -> Iterator[Option]:
    word = {1: "--verbose", 2: "--vv"}.get(launch.cluster.poprun.verbosity)
    if word:
        yield Option(SourcedShell(Shell(word), launch.origin), None)


def _hosts(launch: _Launch) -> Iterator[Option]:
    names = [host.name for host in launch.request.plan.topology.hosts]
    if isinstance(launch.cluster, PodCluster):
        yield from _hosts_of_pod(launch.cluster, names, launch.origin)
    elif len(names) > 1:
        shown = Shell(f'"$(hosts_of_job {launch.cluster.poprun.host_list})"')
        yield Option(Shell("--host"), SourcedShell(shown, launch.origin))


def _hosts_of_pod(cluster: PodCluster, names: list[str], origin: str) -> Iterator[Option]:
    # Without --host poprun runs on the host where it is started.
    if cluster.host_names is None and len(names) == 1:
        return
    as_range = cluster.poprun.host_list == "range"
    yield _option("host", hostlist.compress(names) if as_range else ",".join(names), origin)


def _topology(launch: _Launch) -> Iterator[Option]:
    topology, request = launch.request.plan.topology, launch.request
    yield _option("num-instances", topology.instances, request.origin("instances"))
    yield _option("num-replicas", topology.replicas, request.origin("replicas"))
    yield _option("ipus-per-replica", topology.devices_per_replica, request.origin("ipus_per_replica"))
    if isinstance(launch.cluster, PodCluster) and launch.cluster.ilds is not None:
        yield _option("num-ilds", launch.cluster.ilds, launch.origin)
    elif launch.under_slurm and (topology.ilds or 1) > 1:
        yield _option("num-ilds", topology.ilds, "64 IPUs to an IPU-Link domain")


def _vipu(launch: _Launch) -> Iterator[Option]:
    vipu = launch.cluster.vipu
    if vipu.server is not None:
        yield _option("vipu-server-host", vipu.server, launch.origin)
    # poprun has the same defaults, so the line has only what the cluster file states.
    if "port" in vipu.stated:
        yield _option("vipu-server-port", vipu.port, launch.origin)
    if "timeout_s" in vipu.stated:
        yield _option("vipu-server-timeout", vipu.timeout_s, launch.origin)
    yield from _partition_options(launch)


def _partition_options(launch: _Launch) -> Iterator[Option]:
    vipu = launch.cluster.vipu
    if _partition(launch) is not None:
        yield Option(Shell("--vipu-partition"), Shell('"$TRAINJOB_PARTITION"'))
    release = launch.cluster.sdk
    is_old = release is not None and sdk.release(release.version) < sdk.ALLOCATIONS_FROM
    # Under Slurm the job script makes the partition before it starts poprun.
    if vipu.allocation is not None and not launch.under_slurm:
        yield _option("vipu-cluster" if is_old else "vipu-allocation", vipu.allocation, launch.origin)
    for name in ("update_partition", "reset_partition", "remove_partition"):
        choice = getattr(vipu, name)
        if choice is not None:
            yield _option(name.replace("_", "-"), choice, launch.origin)


def _settings(launch: _Launch) -> Iterator[Option]:
    cluster, job = launch.cluster, launch.request.job
    if cluster.poprun.print_topology:
        yield _option("print-topology", True, "default")
    if cluster.poprun.numa is not None and cluster.sdk is not None:
        yield _option(*rules.numa(cluster.poprun.numa, sdk.release(cluster.sdk.version)), launch.origin)
    if _cache(launch) is not None:
        yield Option(Shell("--executable-cache-path"), Shell('"$POPTORCH_CACHE_DIR"'))
    for name, value in {**cluster.poprun.options, **job.poprun}.items():
        yield _option(name, value, launch.request.origin(f"poprun.{name}") if name in job.poprun else launch.origin)
    if job.compile_only:
        yield _option("offline-mode", True, launch.request.origin("compile_only"))


def _option(name: str, value: object, origin: str) -> Option:
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return Option(Shell(f"--{name}"), Sourced(value, f"--{name}: {origin}"))
