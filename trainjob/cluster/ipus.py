"""Sections of a cluster file for launching on IPUs: V-IPU, the SDK, poprun."""

from __future__ import annotations

from typing import Annotated, Literal

from trainjob.cluster.common import Count, DirectiveName, EnvironmentName, Line, Port, Version, Word
from trainjob.cluster.strict import Rule, Strict, key, required

Verbosity = Annotated[int, Rule(at_least=0, at_most=2)]


class Vipu(Strict):
    """The V-IPU controller and the partition (reference: poprun's --vipu options)."""

    server: Word | None = key(None, "Host of the V-IPU controller.")
    port: Port = key(8090, "Its port; 8090 is poprun's own default.")
    partition: Word | None = key(
        None, "Partition to use, or to create if poprun may; under Slurm %j stands for the job's id."
    )
    allocation: Word | None = key(
        None, "Allocation to create a partition in (a V-IPU cluster before SDK 2.6); %j as in partition."
    )
    timeout_s: Count = key(120, "Seconds that a request may take; 120 is poprun's own default.")
    update_partition: bool | None = key(None, "Let poprun change a partition to fit. Absent: poprun decides.")
    reset_partition: bool | None = key(None, "Reset the partition before the run. Absent: poprun decides.")
    remove_partition: bool | None = key(None, "At the end, remove a partition that poprun made. Absent: it does.")


class Sdk(Strict):
    """The Poplar SDK on the hosts."""

    version: Version = required('SDK release, quoted: "3.3.0".')
    path: Line | None = key(None, "Unpacked SDK: the folder whose enable script is sourced.")
    venv: Line | None = key(None, "Virtualenv that has poptorch.")

    @property
    def python(self) -> str | None:
        """The virtualenv's interpreter; None if the file names no virtualenv."""
        return None if self.venv is None else f"{self.venv.rstrip('/')}/bin/python"


class Poprun(Strict):
    """The options of poprun, which decides whatever is absent."""

    host_list: Literal["comma", "range"] = key(
        "comma", "How hosts are listed for poprun: a,b or a[1-2]; ranges from SDK 2.5 on."
    )
    numa: Literal["spread", "disabled"] | None = key(
        None, "Bind instances to NUMA nodes: --numa-aware before SDK 3.0, --process-placement from 3.0 on."
    )
    print_topology: bool = key(True, "Print hosts, ILDs, instances and replicas as a table.")
    verbosity: Verbosity = key(0, "0: poprun's default; 1: --verbose; 2: --vv.")
    executable_cache: Line | None = key(None, "Folder of compiled executables, on every host.")
    mpi_global_args: list[Line] = key([], "Options for mpirun as a whole: --mca plm_rsh_num_concurrent 4")
    mpi_local_args: list[Line] = key([], "Options for every instance: -x NAME=VALUE")
    forward: list[EnvironmentName] = key([], "Further environment variables to pass to other hosts, by name.")
    options: dict[DirectiveName, Line | int | bool] = key(
        {}, "Any poprun option by its long name; true is yes, false is no."
    )
