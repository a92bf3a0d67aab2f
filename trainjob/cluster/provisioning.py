"""The section `provision:` of a cluster file: what `trainjob provision` puts on the hosts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainjob.cluster import hostlist
from trainjob.cluster.common import WORDS_OF_PATTERN, Count, Line, Strict, Word, breach

_SHA256 = r"^[0-9a-fA-F]{64}$"
WORDS_OF_PATTERN[_SHA256] = "the 64 hexadecimal digits that `sha256sum FILE` prints"
Sha256 = Annotated[str, StringConstraints(pattern=_SHA256)]


def readable_hosts(hosts: str | list[str]) -> str | list[str]:
    """Return `hosts` as written; raises HostlistError where they can't be read."""
    hostlist.expand(hosts)
    return hosts


Hosts = Annotated[str | list[str], AfterValidator(readable_hosts)]


class Venv(Strict):
    """The virtualenv that jobs use; its path is the cluster's sdk.venv, or the one that python: lies in."""

    kind: Literal["poplar", "cuda", "cpu"] = Field(description="What torch is for.")
    python: Line = Field("python3", description="Interpreter on the hosts that the virtualenv is made with.")
    torch: Line | None = Field(None, description="Release of torch. Absent: ours; with poplar what the SDK needs.")
    archive: Line | None = Field(
        None, description="The Poplar SDK's tar file: an address, a path on the hosts, or a path on this machine."
    )
    sha256: Sha256 | None = Field(None, description="SHA-256 of the archive.")
    requirements: Line | None = Field(None, description="Requirements file with hashes, on this machine.")
    wheelhouse: Line | None = Field(None, description="Folder of wheels on the hosts, for sites without an index.")
    index_url: Line | None = Field(None, description="A package index other than pip's own.")
    shared: bool = Field(False, description="It lies on storage the hosts share: one host builds, all check.")
    needs_gpu: bool = Field(
        True, description="With cuda: it is checked on a GPU. false where it is made on a host without."
    )

    @model_validator(mode="after")
    def _poplar_has_its_archive(self) -> Venv:
        if self.kind == "poplar" and (self.archive is None or self.sha256 is None):
            missing = "archive" if self.archive is None else "sha256"
            raise breach(missing, "is missing: kind poplar is made from the SDK's tar file, known by its SHA-256")
        return self


class DataSet(Strict):
    """One data set, as `trainjob data prepare` makes it."""

    name: Word = Field(description="digits, cifar10 or synthetic.")
    archive: Line | None = Field(None, description="An address, a path on the hosts, or a path on this machine.")
    host: Word | None = Field(None, description="The host that has the archive; the others get it from there.")
    sha256: Sha256 | None = Field(None, description="SHA-256 of the archive.")
    samples: Count | None = Field(None, description="Of synthetic: training images.")
    held_out: Count | None = Field(None, description="Of synthetic: held-out images.")
    shape: Line | None = Field(None, description="Of synthetic: shape of an image, 3x32x32.")
    classes: Count | None = Field(None, description="Of synthetic: number of classes.")
    seed: int | None = Field(None, ge=0, description="Of synthetic: seed.")


class PodHosts(Strict):
    """What poprun over several hosts needs of them: ssh from each to each, and memory that may be locked."""

    user: Word | None = Field(None, description="User that launches jobs. Absent: the one who provisions.")
    port: int = Field(22, ge=1, le=65535, description="Port of the hosts' ssh servers.")


class Provision(Strict):
    """What the hosts get."""

    hosts: Hosts | None = Field(None, description="Hosts, where the cluster's own are not meant: gpu[1-4].")
    interpreter: Line | None = Field(None, description="Python that Ansible runs on the hosts. Absent: it looks.")
    venv: Venv | None = Field(None, description="The virtualenv that jobs use.")
    horovod: bool = Field(False, description="Horovod in the virtualenv, built once for all hosts.")
    data_sets: list[DataSet] = Field([], description="Data sets under data_dir.")
    shared_data: bool = Field(False, description="data_dir lies on storage the hosts share: one prepares, all check.")
    pod_hosts: PodHosts | None = Field(None, description="What poprun over several hosts needs of them.")

    @model_validator(mode="after")
    def _horovod_has_a_virtualenv(self) -> Provision:
        if self.horovod and self.venv is None:
            raise breach("horovod", "goes into the virtualenv, and venv: is missing: add it")
        return self
