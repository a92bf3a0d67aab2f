"""The line that starts poprun, for a release of the SDK, ready for templates to print."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainjob.cluster.base import IpuCluster
from trainjob.contract.quoting import Shell
from trainjob.planning import poprun as rules
from trainjob.render.record import environment
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced, SourcedShell

OWN_CACHE = Shell('"$TRAINJOB_RUN_DIR"/executables')


class PoprunOption(NamedTuple):
    """One option of poprun; `value` None is a bare flag."""

    flag: Shell
    value: object | None


def option(name: str, value: object, origin: str) -> PoprunOption:
    """Return the option --`name`; its origin names the option, because a line holds several."""
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return PoprunOption(Shell(f"--{name}"), Sourced(value, f"--{name}: {origin}"))


@dataclass(frozen=True)
class PoprunLine:
    """The line's options that a pod and Slurm state in different ways: hosts, IPU-Link domains and the partition.

    `allocation` is where poprun makes the partition.
    """

    request: Request
    cluster: IpuCluster
    hosts: PoprunOption | None
    ilds: PoprunOption | None
    partition: object | None
    allocation: str | None

    def context(self) -> dict[str, Any]:
        """Return the names for the poprun line and the lines around it."""
        request, cluster, origin = self.request, self.cluster, self.request.cluster_origin
        sdk_path, venv = (cluster.sdk.path, cluster.sdk.venv) if cluster.sdk else (None, None)
        interface, vipu, settings = cluster.network.interface, cluster.vipu, cluster.poprun
        compiles = request.job.compile_first or request.job.compile_only
        return {
            "sdk_path": None if sdk_path is None else request.path("sdk.path", sdk_path),
            "venv": None if venv is None else request.path("sdk.venv", venv),
            "vipu_server": None if vipu.server is None else Sourced(vipu.server, origin),
            "partition": self.partition,
            "removes_partition": vipu.remove_partition is not False,
            "executable_cache": self._cache,
            "mpi_interface": None if interface is None else Sourced(interface, origin),
            "mpi_global_args": Sourced(" ".join(settings.mpi_global_args), origin),
            "mpi_local_args": Sourced(" ".join(settings.mpi_local_args), origin),
            # On one host the ranks inherit mpirun's environment.
            "forwards": request.plan.topology.host_count > 1,
            "forwarded": [Sourced(name, origin) for name in (*environment(request), *settings.forward)],
            "poprun_rows": [row for row in map(list, self._rows()) if row],
            "compile_first": bool(request.job.compile_first),
            # A task has a setting to compile and end; a user's command has none.
            "compiles_ahead": request.job.command is None and bool(compiles),
            "compile_origin": request.origin("compile_first" if request.job.compile_first else "compile_only"),
        }

    @property
    def _cache(self) -> SourcedShell | None:
        """The folder of compiled executables, if one is needed."""
        folder = self.cluster.poprun.executable_cache
        if folder is not None:
            return self.request.path("poprun.executable_cache", folder)
        if self.request.job.compile_first or self.request.job.compile_only:
            return SourcedShell(OWN_CACHE, "the run's own, for what is compiled ahead")
        return None

    def _rows(self) -> Iterator[Iterator[PoprunOption]]:
        """Yield lines of options."""
        yield self._size()
        yield self._vipu()
        yield self._settings()
        yield self._of_mpirun()

    def _size(self) -> Iterator[PoprunOption]:
        topology, request = self.request.plan.topology, self.request
        word = {1: "--verbose", 2: "--vv"}.get(self.cluster.poprun.verbosity)
        if word:
            yield PoprunOption(SourcedShell(Shell(word), request.cluster_origin), None)
        if self.hosts is not None:
            yield self.hosts
        yield option("num-instances", topology.instances, request.origin("instances"))
        yield option("num-replicas", topology.replicas, request.origin("replicas"))
        yield option("ipus-per-replica", topology.devices_per_replica, request.origin("ipus_per_replica"))
        if self.ilds is not None:
            yield self.ilds

    def _vipu(self) -> Iterator[PoprunOption]:
        vipu, release, origin = self.cluster.vipu, self.cluster.sdk, self.request.cluster_origin
        if vipu.server is not None:
            yield option("vipu-server-host", vipu.server, origin)
        # poprun has the same defaults, so the line has only what the cluster file states.
        if "port" in vipu.stated:
            yield option("vipu-server-port", vipu.port, origin)
        if "timeout_s" in vipu.stated:
            yield option("vipu-server-timeout", vipu.timeout_s, origin)
        if self.partition is not None:
            yield PoprunOption(Shell("--vipu-partition"), Shell('"$TRAINJOB_PARTITION"'))
        if self.allocation is not None:
            is_old = release is not None and rules.release(release.version) < rules.ALLOCATIONS_FROM
            yield option("vipu-cluster" if is_old else "vipu-allocation", self.allocation, origin)
        for name in ("update_partition", "reset_partition", "remove_partition"):
            choice = getattr(vipu, name)
            if choice is not None:
                yield option(name.replace("_", "-"), choice, origin)

    def _settings(self) -> Iterator[PoprunOption]:
        request, settings, release = self.request, self.cluster.poprun, self.cluster.sdk
        origin, job = request.cluster_origin, request.job
        if settings.print_topology:
            yield option("print-topology", True, "default")
        if settings.numa is not None and release is not None:
            yield option(*rules.numa(settings.numa, release.version), origin)
        if self._cache is not None:
            yield PoprunOption(Shell("--executable-cache-path"), Shell('"$POPTORCH_CACHE_DIR"'))
        for name, value in {**settings.options, **job.poprun}.items():
            yield option(name, value, request.origin(f"poprun.{name}") if name in job.poprun else origin)
        if job.compile_only:
            yield option("offline-mode", True, request.origin("compile_only"))

    def _of_mpirun(self) -> Iterator[PoprunOption]:
        settings = self.cluster.poprun
        if self.cluster.network.interface is not None or settings.mpi_global_args:
            yield PoprunOption(Shell("--mpi-global-args"), Shell('"$TRAINJOB_MPI_GLOBAL"'))
        if self.request.plan.topology.host_count > 1 or settings.mpi_local_args:
            yield PoprunOption(Shell("--mpi-local-args"), Shell('"$TRAINJOB_MPI_LOCAL"'))
