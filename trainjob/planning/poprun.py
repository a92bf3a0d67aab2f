"""Rules about poprun's options: those of each SDK release, and those that the plan sets itself."""

from __future__ import annotations

from collections.abc import Iterable

from trainjob.cluster.base import Cluster, IpuCluster
from trainjob.cluster.job import Job
from trainjob.planning import sdk
from trainjob.planning.rules import refuse

SDK_EXISTS = "an SDK release is one that includes poprun"
RANGES = "poprun reads ranges of hosts from SDK 2.5 on"
PLAN_DECIDES = "an option that the plan computes is set by the plan's own setting"
OPTION_OF_RELEASE = "SDKs before 3.0 have --numa-aware, and from 3.0 on --process-placement"
POPRUN_ONLY = "only IPU jobs compile ahead and take poprun's options"
TASK_COMPILES = "only a task compiles first, because it can compile without training"

# poprun's option -> the setting or flag that replaces it.
OURS = {
    "host": "hosts:, or --hosts",
    "num-replicas": "--replicas",
    "num-instances": "--instances",
    "ipus-per-replica": "--ipus-per-replica",
    "num-ilds": "ilds: in the cluster file",
    "vipu-server-host": "vipu: server:",
    "vipu-server-port": "vipu: port:",
    "vipu-server-timeout": "vipu: timeout_s:",
    "vipu-partition": "vipu: partition:",
    "vipu-allocation": "vipu: allocation:",
    "vipu-cluster": "vipu: allocation:",
    "update-partition": "vipu: update_partition:",
    "reset-partition": "vipu: reset_partition:",
    "remove-partition": "vipu: remove_partition:",
    "executable-cache-path": "poprun: executable_cache:",
    "mpi-global-args": "poprun: mpi_global_args:",
    "mpi-local-args": "poprun: mpi_local_args:",
    "print-topology": "poprun: print_topology:",
    "verbose": "poprun: verbosity: 1",
    "vv": "poprun: verbosity: 2",
    "offline-mode": "--compile-only",
}


def check(cluster: Cluster, job: Job) -> None:
    """Raise Broken if the cluster or its SDK release does not support the job's options of poprun."""
    with_ipus = cluster.ipu_keys
    if with_ipus is None:
        _refuse_without_ipus(cluster, job)
        return
    if with_ipus.sdk is not None:
        _check_release(with_ipus.sdk.version, with_ipus.poprun.host_list)
    _options({**with_ipus.poprun.options, **job.poprun}, with_ipus)
    if job.compile_first and job.command is not None:
        values = f"--compile-first and the command {job.command[0]}"
        refuse(TASK_COMPILES, values, otherwise="Leave it out, or use --compile-only with a script that only compiles.")


def _refuse_without_ipus(cluster: Cluster, job: Job) -> None:
    flags = {"--compile-first": job.compile_first, "--compile-only": job.compile_only, "--poprun": job.poprun}
    for flag, value in flags.items():
        if value:
            values = f"{flag} on a cluster of kind {cluster.kind}, which has no IPUs"
            refuse(POPRUN_ONLY, values, otherwise="Leave it out.")


def _check_release(version: str, host_list: str) -> None:
    if not sdk.is_known(version):
        values = f"sdk.version is {version}"
        refuse(SDK_EXISTS, values, otherwise=f"Give the release that is on the hosts: {sdk.known()}.")
    if host_list == "range" and sdk.release(version) < sdk.RANGES_FROM:
        values = f"poprun.host_list is range and sdk.version is {version}"
        refuse(RANGES, values, otherwise="Write host_list: comma, or leave it out.")


def _options(names: Iterable[str], cluster: IpuCluster) -> None:
    release = sdk.release(cluster.sdk.version) if cluster.sdk else None
    for name in names:
        if name in OURS:
            refuse(PLAN_DECIDES, f"poprun option {name}", otherwise=f"Give {OURS[name]} instead.")
        if release and name == ("numa-aware" if release >= sdk.PLACEMENT_FROM else "process-placement"):
            values = f"poprun option {name} and sdk.version {cluster.sdk.version if cluster.sdk else '?'}"
            cure = "Write numa: spread or numa: disabled, which every release has."
            refuse(OPTION_OF_RELEASE, values, otherwise=cure)


def numa(setting: str, release: sdk.Release) -> tuple[str, bool | str]:
    """Return the option with which a release places instances on NUMA nodes, and its value."""
    if release < sdk.PLACEMENT_FROM:
        return "numa-aware", setting == "spread"
    return "process-placement", {"spread": "spreadnuma", "disabled": "disabled"}[setting]
