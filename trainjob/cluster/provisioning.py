"""The section `provision:` of a cluster file: what `trainjob provision` puts on the hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from trainjob.cluster import hostlist
from trainjob.cluster.common import WORDS_OF_PATTERN, Count, Line, Number, Port, Word
from trainjob.cluster.strict import BreachError, Rule, Strict, key, required

_SHA256 = r"^[0-9a-fA-F]{64}$"
WORDS_OF_PATTERN[_SHA256] = "the 64 hexadecimal digits that `sha256sum FILE` prints"
Sha256 = Annotated[str, Rule(_SHA256)]


Hosts = Annotated[str | list[str], Rule(check=hostlist.expand)]


@dataclass(frozen=True, kw_only=True)
class Venv(Strict):
    """The virtualenv that jobs use; its path is the cluster's sdk.venv, or the one that python: lies in."""

    kind: Literal["poplar", "cuda", "cpu"] = required("What torch is for.")
    python: Line = key("python3", "Interpreter on the hosts that the virtualenv is made with.")
    torch: Line | None = key(None, "Release of torch. Absent: ours; with poplar what the SDK needs.")
    archive: Line | None = key(
        None, "The Poplar SDK's tar file: an address, a path on the hosts, or a path on this machine."
    )
    sha256: Sha256 | None = key(None, "SHA-256 of the archive.")
    requirements: Line | None = key(None, "Requirements file with hashes, on this machine.")
    wheelhouse: Line | None = key(None, "Folder of wheels on the hosts, for sites without an index.")
    index_url: Line | None = key(None, "A package index other than pip's own.")
    shared: bool = key(False, "It lies on storage the hosts share: one host builds, all check.")
    needs_gpu: bool = key(True, "With cuda: it is checked on a GPU. false where it is made on a host without.")

    def enforce_rules(self) -> None:
        """Raise BreachError for Poplar without its archive."""
        if self.kind == "poplar" and (self.archive is None or self.sha256 is None):
            missing = "archive" if self.archive is None else "sha256"
            raise BreachError(
                missing, "is missing, and kind poplar is made from the SDK's tar file", "give its path and its SHA-256"
            )


@dataclass(frozen=True, kw_only=True)
class DataSet(Strict):
    """One data set, as `trainjob data prepare` makes it."""

    name: Word = required("digits, cifar10 or synthetic.")
    archive: Line | None = key(None, "An address, a path on the hosts, or a path on this machine.")
    host: Word | None = key(None, "The host that has the archive; the others get it from there.")
    sha256: Sha256 | None = key(None, "SHA-256 of the archive.")
    samples: Count | None = key(None, "Of synthetic: training images.")
    held_out: Count | None = key(None, "Of synthetic: held-out images.")
    shape: Line | None = key(None, "Of synthetic: shape of an image, 3x32x32.")
    classes: Count | None = key(None, "Of synthetic: number of classes.")
    seed: Number | None = key(None, "Of synthetic: seed.")


@dataclass(frozen=True, kw_only=True)
class PodHosts(Strict):
    """What poprun over several hosts needs of them: ssh from each to each, and memory that may be locked."""

    user: Word | None = key(None, "User that launches jobs. Absent: the one who provisions.")
    port: Port = key(22, "Port of the hosts' ssh servers.")


@dataclass(frozen=True, kw_only=True)
class Provision(Strict):
    """What the hosts get."""

    hosts: Hosts | None = key(None, "Hosts, where the cluster's own are not meant: gpu[1-4].")
    interpreter: Line | None = key(None, "Python that Ansible runs on the hosts. Absent: it looks.")
    venv: Venv | None = key(None, "The virtualenv that jobs use.")
    horovod: bool = key(False, "Horovod in the virtualenv, built once for all hosts.")
    data_sets: list[DataSet] = key([], "Data sets under data_dir.")
    shared_data: bool = key(False, "data_dir lies on storage the hosts share: one prepares, all check.")
    pod_hosts: PodHosts | None = key(None, "What poprun over several hosts needs of them.")

    def enforce_rules(self) -> None:
        """Raise BreachError for Horovod without a virtualenv."""
        if self.horovod and self.venv is None:
            raise BreachError("horovod", "goes into the virtualenv, and venv: is missing", "add it")
