"""What can be asked of poprun: rules about a release's options, before anything is rendered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainjob.cluster.job import Job
from trainjob.cluster.models import Cluster, ipu_place
from trainjob.cluster.place import IpuPlace
from trainjob.plan import sdk
from trainjob.plan.rules import refuse

SDK_EXISTS = "an SDK release is one that has poprun"
RANGES = "poprun reads ranges of hosts from SDK 2.5 on"
PLAN_DECIDES = "an option that the plan computes is set where the plan reads it"
OPTION_OF_RELEASE = "--numa-aware is of SDKs before 3.0, --process-placement of those from 3.0 on"
POPRUN_ONLY = "compiling ahead and poprun's options are for IPUs"
TASK_COMPILES = "compiling first is for a task, which can compile without training"

# poprun's option -> where it is said instead.
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
    """Raise Broken where what is asked of poprun can't be had."""
    place = ipu_place(cluster)
    if place is None:
        _refuse_elsewhere(cluster, job)
        return
    _known_release(place)
    _host_list(place)
    _options({**place.poprun.options, **job.poprun}, place)
    if job.compile_first and job.command is not None:
        found = f"--compile-first and the command {job.command[0]}"
        refuse(TASK_COMPILES, found, otherwise="Leave it out, or use --compile-only with a script that only compiles.")


def _refuse_elsewhere(cluster: Cluster, job: Job) -> None:
    asked = {"--compile-first": job.compile_first, "--compile-only": job.compile_only, "--poprun": job.poprun}
    given = next((flag for flag, value in asked.items() if value), None)
    if given is not None:
        refuse(
            POPRUN_ONLY, f"{given} on a cluster of kind {cluster.kind}, which has no IPUs", otherwise="Leave it out."
        )


def _known_release(cluster: IpuPlace) -> None:
    if cluster.sdk is not None and not sdk.is_known(cluster.sdk.version):
        found = f"sdk.version is {cluster.sdk.version}"
        refuse(SDK_EXISTS, found, otherwise=f"Give the release that is on the hosts: {sdk.known()}.")


def _host_list(cluster: IpuPlace) -> None:
    if cluster.poprun.host_list == "range" and cluster.sdk and sdk.release(cluster.sdk.version) < sdk.RANGES_FROM:
        found = f"poprun.host_list is range and sdk.version is {cluster.sdk.version}"
        refuse(RANGES, found, otherwise="Write host_list: comma, or leave it out.")


def _options(names: Iterable[str], cluster: IpuPlace) -> None:
    release = sdk.release(cluster.sdk.version) if cluster.sdk else None
    for name in names:
        if name in OURS:
            refuse(PLAN_DECIDES, f"poprun option {name}", otherwise=f"Give {OURS[name]} instead.")
        if release and name == ("numa-aware" if release >= sdk.PLACEMENT_FROM else "process-placement"):
            found = f"poprun option {name} and sdk.version {cluster.sdk.version if cluster.sdk else '?'}"
            refuse(OPTION_OF_RELEASE, found, otherwise="Say numa: spread or numa: disabled, which every release has.")


def numa(setting: str, release: sdk.Release) -> tuple[str, Any]:
    """Return the option by which a release places instances on NUMA nodes, and its value."""
    if release < sdk.PLACEMENT_FROM:
        return "numa-aware", setting == "spread"
    return "process-placement", {"spread": "spreadnuma", "disabled": "disabled"}[setting]
