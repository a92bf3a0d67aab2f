"""The keys that every kind of cluster has."""

from __future__ import annotations

from pydantic import Field

from trainjob.cluster.common import Container, Count, Environment, Line, Network, PlainText, Ssh, Strict
from trainjob.cluster.provisioning import Provision


class Place(Strict):
    """Keys that every kind of cluster has."""

    ssh: Ssh | None = Field(None, description="How to reach it. Absent: already there.")
    network: Network = Field(Network(), description="The network that ranks meet on.")
    runs_dir: Line | None = Field(
        None,
        description="Folder of run directories, on storage all hosts share. Absent on local: the user's data folder.",
    )
    data_dir: Line | None = Field(None, description="Folder of prepared data sets on every host.")
    env: Environment = Field({}, description="Environment of every rank: names and text values.")
    secrets_file: Line | None = Field(
        None, description="File of NAME=VALUE lines, mode 0600, read when ranks start and never before."
    )
    prologue: list[PlainText] = Field(
        [], description="Lines of shell run before the job: the one place that holds shell."
    )
    container: Container = Field(Container(), description="What ranks run inside of.")
    numa_nodes: Count | None = Field(
        None, description="NUMA nodes of one host; more instances than these earn a warning."
    )
    provision: Provision | None = Field(None, description="What `trainjob provision` puts on the hosts.")
