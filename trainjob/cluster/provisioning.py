"""The section `provision:` of a cluster file: what `trainjob provision` installs on the hosts."""

from __future__ import annotations

from typing import Annotated, Literal

from trainjob.cluster import slurm_text
from trainjob.cluster.common import Count, Line, Number, Port, Word
from trainjob.cluster.strict import BreachError, Rule, Strict, key, required

_SHA256 = r"^[0-9a-fA-F]{64}$"
Sha256 = Annotated[str, Rule(_SHA256, "the 64 hexadecimal digits that `sha256sum FILE` prints")]


Hosts = Annotated[str | list[str], Rule(check=slurm_text.expand)]


class Venv(Strict):
    """The virtualenv that jobs use. Its path is the cluster's sdk.venv, or that of the cluster's python."""

    kind: Literal["poplar", "cuda", "cpu"] = required("The devices that torch is built for.")
    python: Line = key("python3", "Interpreter on the hosts that creates the virtualenv.")
    torch: Line | None = key(None, "Release of torch. Absent: ours; with poplar the one that the SDK needs.")
    archive: Line | None = key(
        None, "The Poplar SDK's tar file: an address, a path on the hosts, or a path on this machine."
    )
    sha256: Sha256 | None = key(None, "SHA-256 of the archive.")
    requirements: Line | None = key(None, "Requirements file with hashes, on this machine.")
    wheelhouse: Line | None = key(None, "Folder of wheels on the hosts, for sites without an index.")
    index_url: Line | None = key(None, "A package index other than pip's default.")
    shared: bool = key(False, "The virtualenv is on storage that the hosts share: one host builds it, all check it.")
    needs_gpu: bool = key(True, "With cuda: check it on a GPU. false: it is built on a host without one.")

    def enforce_rules(self) -> None:
        """Raise BreachError for Poplar without its archive."""
        if self.kind == "poplar" and (self.archive is None or self.sha256 is None):
            missing = "archive" if self.archive is None else "sha256"
            raise BreachError(
                missing, "is missing, and kind poplar is built from the SDK's tar file", "give its path and its SHA-256"
            )


class ProvisionedDataSet(Strict):
    """One data set, as `trainjob data prepare` writes it."""

    name: Word = required("digits, cifar10 or synthetic.")
    archive: Line | None = key(None, "An address, a path on the hosts, or a path on this machine.")
    host: Word | None = key(None, "The host that has the archive; the others copy it from there.")
    sha256: Sha256 | None = key(None, "SHA-256 of the archive.")
    samples: Count | None = key(None, "Of synthetic: training images.")
    held_out: Count | None = key(None, "Of synthetic: held-out images.")
    shape: Line | None = key(None, "Of synthetic: shape of an image, 3x32x32.")
    classes: Count | None = key(None, "Of synthetic: number of classes.")
    seed: Number | None = key(None, "Of synthetic: seed.")


class PodHosts(Strict):
    """Requirements of poprun over several hosts: ssh from each host to each, and permission to lock memory."""

    user: Word | None = key(None, "User that launches jobs. Absent: the user that provisions.")
    port: Port = key(22, "Port of the hosts' ssh servers.")


class Provision(Strict):
    """The software and data that provisioning installs on the hosts."""

    hosts: Hosts | None = key(None, "Hosts to provision, if not those of the cluster: gpu[1-4].")
    interpreter: Line | None = key(None, "Python that Ansible runs on the hosts. Absent: Ansible finds one.")
    venv: Venv | None = key(None, "The virtualenv that jobs use.")
    horovod: bool = key(False, "Horovod in the virtualenv, built once for all hosts.")
    data_sets: list[ProvisionedDataSet] = key([], "Data sets under data_dir.")
    shared_data: bool = key(False, "data_dir is on storage that the hosts share: one host prepares it, all check it.")
    pod_hosts: PodHosts | None = key(None, "What poprun over several hosts needs.")

    def enforce_rules(self) -> None:
        """Raise BreachError for Horovod without a virtualenv."""
        if self.horovod and self.venv is None:
            raise BreachError("horovod", "is installed in the virtualenv, and venv: is missing", "add it")
