"""Pieces that several kinds of cluster share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints


class Strict(BaseModel):
    """A frozen value whose unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _number_as_text(value: object) -> object:
    # YAML reads OMP_NUM_THREADS: 4 as a number; an environment holds text. A boolean is left to
    # be refused: nobody can know whether "true", "True" or "1" was meant.
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


PlainText = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
EnvironmentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
EnvironmentValue = Annotated[PlainText, BeforeValidator(_number_as_text)]
Environment = dict[EnvironmentName, EnvironmentValue]
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$")]
Count = Annotated[int, Field(ge=1, strict=True)]


class Ssh(Strict):
    """How to reach the host that launches. The system's ssh and the user's own configuration are used."""

    host: Line = Field(description="Host name, or an alias of ~/.ssh/config.")
    user: Line | None = Field(None, description="User there. Absent: as ssh decides.")


class Network(Strict):
    """The network that ranks meet on."""

    interface: Line | None = Field(None, description="Interface name (eno1) or, on a pod, a CIDR (10.5.0.0/16).")
    port: int | None = Field(
        None, ge=1024, le=65535, description="Fixed rendezvous port. Absent: a free one is chosen."
    )


class Container(Strict):
    """What ranks run inside of."""

    runtime: Literal["none", "apptainer", "pyxis", "docker", "podman"] = Field(
        "none", description="Which program starts the container."
    )
    image: Line | None = Field(None, description="Image file or reference; needed unless runtime is none.")


class Place(Strict):
    """Keys that every kind of cluster has."""

    ssh: Ssh | None = Field(None, description="How to reach it. Absent: already there.")
    network: Network = Field(Network(), description="The network that ranks meet on.")
    runs_dir: Line | None = Field(
        None, description="Folder of run directories, on storage that all hosts share. Absent on local: the user's data folder."
    )
    data_dir: Line | None = Field(None, description="Folder of prepared data sets on every host.")
    env: Environment = Field({}, description="Environment of every rank: names and text values.")
    secrets_file: Line | None = Field(
        None, description="File of NAME=VALUE lines, mode 0600, read when ranks start and never before."
    )
    prologue: list[PlainText] = Field([], description="Lines of shell run before the job: the one place that holds shell.")
    container: Container = Field(Container(), description="What ranks run inside of.")
    numa_nodes: Count | None = Field(None, description="NUMA nodes of one host; more instances than these earn a warning.")
