"""Releases of the Poplar SDK, and rules about poprun's options: those of each release, and those that the plan sets."""

from __future__ import annotations

from typing import NamedTuple

from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.planning.rules import refuse

Release = tuple[int, int]


class Supported(NamedTuple):
    """The torch and Python that one release supports."""

    torch: str
    python: str  # of the Ubuntu that its hosts run


# poprun came with 2.0; 3.4 is the last (numbers of poptorch's release branches).
RELEASES: dict[Release, Supported] = {
    (2, 0): Supported("1.7.1", "3.6"),
    (2, 1): Supported("1.7.1", "3.6"),
    (2, 2): Supported("1.9.0", "3.8"),
    (2, 3): Supported("1.9.0", "3.8"),
    (2, 4): Supported("1.10.0", "3.8"),
    (2, 5): Supported("1.10.0", "3.8"),
    (2, 6): Supported("1.10.0", "3.8"),
    (3, 0): Supported("1.10.0", "3.8"),
    (3, 1): Supported("1.13.0", "3.8"),
    (3, 2): Supported("1.13.1", "3.8"),
    (3, 3): Supported("2.0.1", "3.8"),
    (3, 4): Supported("2.0.1", "3.8"),
}

RANGES_FROM: Release = (2, 5)  # the first whose --host accepts host[0-2]
ALLOCATIONS_FROM: Release = (2, 6)  # before: --vipu-cluster
PLACEMENT_FROM: Release = (3, 0)  # before: --numa-aware


def release(version: str) -> Release:
    """Return the major and minor number of a version in a cluster file: (3, 3) for 3.3.0+1403."""
    major, minor = version.split(".")[:2]
    digits = len(minor) - len(minor.lstrip("0123456789"))
    return int(major), int(minor[:digits])


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


def check_poprun(cluster: Cluster, job: Job) -> None:
    """Raise Broken if the cluster or its SDK release does not support the job's options of poprun."""
    ipus = cluster.ipu_keys
    if ipus is None:
        flags = {"--compile-first": job.compile_first, "--compile-only": job.compile_only, "--poprun": job.poprun}
        for flag, value in flags.items():
            if value:
                values = f"{flag} on a cluster of kind {cluster.kind}, which has no IPUs"
                refuse(POPRUN_ONLY, values, otherwise="Leave it out.")
        return
    version = ipus.sdk.version if ipus.sdk else ""
    if version and release(version) not in RELEASES:
        known = ", ".join(f"{major}.{minor}" for major, minor in RELEASES)
        cure = f"Give the release that is on the hosts: {known}."
        refuse(SDK_EXISTS, f"sdk.version is {version}", otherwise=cure)
    if version and ipus.poprun.host_list == "range" and release(version) < RANGES_FROM:
        values = f"poprun.host_list is range and sdk.version is {version}"
        refuse(RANGES, values, otherwise="Write host_list: comma, or leave it out.")
    for name in {**ipus.poprun.options, **job.poprun}:
        if name in OURS:
            refuse(PLAN_DECIDES, f"poprun option {name}", otherwise=f"Give {OURS[name]} instead.")
        if version and name == ("numa-aware" if release(version) >= PLACEMENT_FROM else "process-placement"):
            values = f"poprun option {name} and sdk.version {version}"
            cure = "Write numa: spread or numa: disabled, which every release has."
            refuse(OPTION_OF_RELEASE, values, otherwise=cure)
    if job.compile_first and job.command is not None:
        values = f"--compile-first and the command {job.command[0]}"
        refuse(TASK_COMPILES, values, otherwise="Leave it out, or use --compile-only with a script that only compiles.")


def numa(setting: str, version: str) -> tuple[str, bool | str]:
    """Return the option with which the poprun of an SDK places instances on NUMA nodes, and its value."""
    if release(version) < PLACEMENT_FROM:
        return "numa-aware", setting == "spread"
    return "process-placement", {"spread": "spreadnuma", "disabled": "disabled"}[setting]
