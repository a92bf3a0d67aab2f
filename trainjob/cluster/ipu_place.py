"""What it takes to launch on IPUs, on a pod of one's own or on nodes that Slurm gives: V-IPU, the SDK, poprun."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainjob.cluster.common import Count, DirectiveName, EnvironmentName, Line, Strict, Version, Word
from trainjob.cluster.place import Place


class Vipu(Strict):
    """The V-IPU controller and what is asked of it (reference: poprun's --vipu options)."""

    server: Word | None = Field(None, description="Host of the V-IPU controller.")
    port: int = Field(8090, ge=1, le=65535, description="Its port; 8090 is poprun's own default.")
    partition: Word | None = Field(
        None, description="Partition to use, or to create where poprun may; under Slurm %j stands for the job's id."
    )
    allocation: Word | None = Field(
        None, description="Allocation to create a partition in (a V-IPU cluster before SDK 2.6); %j as in partition."
    )
    timeout_s: Count = Field(120, description="Seconds a request may take; 120 is poprun's own default.")
    update_partition: bool | None = Field(None, description="Let poprun change a partition to fit. Absent: as poprun.")
    reset_partition: bool | None = Field(None, description="Reset it before the run. Absent: as poprun decides.")
    remove_partition: bool | None = Field(
        None, description="Remove at the end what poprun made. Absent: as poprun, which does."
    )


class Sdk(Strict):
    """The Poplar SDK on the hosts."""

    version: Version = Field(description='SDK release, quoted: "3.3.0".')
    path: Line | None = Field(None, description="Unpacked SDK: the folder whose enable script is sourced.")
    venv: Line | None = Field(None, description="Virtualenv that has poptorch.")

    @property
    def python(self) -> str | None:
        """The virtualenv's interpreter; None where the file names no virtualenv."""
        return None if self.venv is None else f"{self.venv.rstrip('/')}/bin/python"


class Poprun(Strict):
    """How poprun is started: what is absent is left to poprun."""

    host_list: Literal["comma", "range"] = Field(
        "comma", description="How hosts are written for poprun: a,b or a[1-2]; ranges from SDK 2.5 on."
    )
    numa: Literal["spread", "disabled"] | None = Field(
        None, description="Bind instances to NUMA nodes: --numa-aware before SDK 3, --process-placement from there."
    )
    print_topology: bool = Field(True, description="Print hosts, ILDs, instances and replicas as a table.")
    verbosity: int = Field(0, ge=0, le=2, description="0: as poprun; 1: --verbose; 2: --vv.")
    executable_cache: Line | None = Field(None, description="Folder of compiled executables, on every host.")
    mpi_global_args: list[Line] = Field([], description="Options for mpirun as a whole: --mca plm_rsh_num_concurrent 4")
    mpi_local_args: list[Line] = Field([], description="Options for every instance: -x NAME=VALUE")
    forward: list[EnvironmentName] = Field([], description="Further environment names handed to other hosts.")
    options: dict[DirectiveName, Line | int | bool] = Field(
        {}, description="Any poprun option by its long name; true is yes, false is no."
    )


class IpuPlace(Place):
    """Keys of a place that may have IPUs."""

    vipu: Vipu = Field(Vipu(), description="The V-IPU controller.")
    sdk: Sdk | None = Field(None, description="The Poplar SDK on the hosts.")
    poprun: Poprun = Field(Poprun(), description="How poprun is started.")
