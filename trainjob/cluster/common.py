"""Pieces that several kinds of cluster share: types of text and number, and the keys that every kind has."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from trainjob.cluster import environment_names

_PLAIN = r"^[^\x00]*$"
_LINE = r"^[^\x00-\x1f\x7f]+$"
_WORD = r"^[^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f]*$"
_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
_DIRECTIVE = r"^[a-z][a-z0-9-]*$"
_INTERFACE = r"^[A-Za-z0-9^=][A-Za-z0-9._:,/@-]*$"
_SLURM_TIME = r"^([0-9]+(:[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}|UNLIMITED|INFINITE)$"
_VERSION = r"^[0-9]+\.[0-9]+(\.[0-9]+)?([+-][A-Za-z0-9.+-]+)?$"
JOB_NAME = r"^[^\x00-\x1f\x7f/]{1,200}$"

# What an error says was expected, where pydantic would show the expression.
WORDS_OF_PATTERN = {
    _PLAIN: "text without the character NUL",
    _LINE: "one line of text that is not empty",
    _WORD: "one word that begins with no dash",
    _NAME: "a name of letters, digits and underscores that begins with no digit",
    _DIRECTIVE: "an sbatch option by its long name, without the dashes (cpus-per-task)",
    _INTERFACE: "a network interface (eno1) or a CIDR (10.5.0.0/16)",
    _SLURM_TIME: 'a time as Slurm writes it: "04:00:00", "1-12:00:00", or minutes: "90"',
    _VERSION: 'a release: "3.3.0"',
    JOB_NAME: "one line of at most 200 characters without a slash",
}


class Strict(BaseModel):
    """A frozen value: unknown keys are refused, and so is "4" or true where a number belongs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def breach(key: str, message: str) -> PydanticCustomError:
    """Return the error of a rule between keys, to be reported at the line of `key`."""
    return PydanticCustomError("breach", "{message}", {"message": message, "key": key})


def _interface_or_cidr(text: str) -> str:
    for part in text.split(","):
        if "/" in part:
            _check_cidr(part)
    return text


def _check_cidr(text: str) -> None:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f'read "{text}", expected an address and its bits (10.5.0.0/16), or a name (eno1)') from None


PlainText = Annotated[str, StringConstraints(pattern=_PLAIN)]
Line = Annotated[str, StringConstraints(pattern=_LINE)]
Word = Annotated[str, StringConstraints(pattern=_WORD)]
OptionName = Annotated[str, StringConstraints(pattern=_NAME)]
DirectiveName = Annotated[str, StringConstraints(pattern=_DIRECTIVE)]
Interface = Annotated[str, StringConstraints(pattern=_INTERFACE), AfterValidator(_interface_or_cidr)]
SlurmTime = Annotated[str, StringConstraints(pattern=_SLURM_TIME)]
Version = Annotated[str, StringConstraints(pattern=_VERSION)]
EnvironmentName = Annotated[str, StringConstraints(pattern=_NAME), AfterValidator(environment_names.checked)]
# The reader hands numbers over as they are written (3.10 stays "3.10"), so a file may hold them unquoted.
WrittenText = Annotated[PlainText, WithJsonSchema({"type": ["string", "number"]})]
Environment = dict[EnvironmentName, WrittenText]
Count = Annotated[int, Field(ge=1)]


class Ssh(Strict):
    """How to reach the host that launches. The system's ssh and the user's own configuration are used."""

    host: Word = Field(description="Host name, or an alias of ~/.ssh/config.")
    user: Word | None = Field(None, description="User there. Absent: as ssh decides.")


class Network(Strict):
    """The network that ranks meet on."""

    interface: Interface | None = Field(None, description="Interface name (eno1) or, on a pod, a CIDR (10.5.0.0/16).")
    port: int | None = Field(
        None, ge=1024, le=65535, description="Fixed rendezvous port, 1024 to 65535. Absent: a free one is chosen."
    )


class Container(Strict):
    """What ranks run inside of."""

    runtime: Literal["none", "apptainer", "pyxis", "docker", "podman"] = Field(
        "none", description="Which program starts the container."
    )
    image: Line | None = Field(None, description="Image file or reference; needed unless runtime is none.")
    mounts: list[Line] = Field(
        [], description="Folders and files that ranks see at the same path; the run directory and data_dir always are."
    )

    @model_validator(mode="after")
    def _has_an_image(self) -> Container:
        if self.runtime != "none" and self.image is None:
            raise breach("image", f"is missing, and runtime is {self.runtime}: give the image, or runtime: none")
        return self
