"""The cluster file of an IPU-POD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from trainjob.cluster.base import IpuCluster, NamedHosts
from trainjob.cluster.common import Count
from trainjob.cluster.nodes import Capacity
from trainjob.cluster.strict import key, required


class PodCluster(NamedHosts, IpuCluster):
    """An IPU-POD: hosts that share IPUs, launched by poprun."""

    kind: Literal["ipu-pod"] = required("ipu-pod: hosts that share IPUs, launched by poprun.")
    ipus: Count = required("IPUs of the partition; a power of two.")
    ilds: Count | None = key(None, "IPU-Link domains. Absent: one per 64 IPUs.")

    @property
    def capacity(self) -> Capacity:
        """All hosts and IPUs of the pod."""
        hosts = self.number_of_hosts
        return Capacity("IPU", "host", hosts, hosts, None, 1, self.ipus, self.ilds)

    @property
    def needs(self) -> Mapping[str, object]:
        """The value of each key path that `submit` needs."""
        return {
            "hosts": self.hosts,
            "vipu.server": self.vipu.server,
            "vipu.partition": self.vipu.partition or self.vipu.allocation,
            "sdk.path": self.sdk and self.sdk.path,
            "sdk.venv": self.sdk and self.sdk.venv,
            "runs_dir": self.runs_dir,
        }

    @property
    def ipu_keys(self) -> IpuCluster:
        """The pod itself."""
        return self

    @property
    def interpreter(self) -> str | None:
        """The interpreter of the SDK's virtualenv."""
        return self.sdk.python if self.sdk else None

    @property
    def interpreter_key(self) -> str:
        """The key that names the interpreter, for messages."""
        return "sdk.venv:"

    @property
    def venv(self) -> str | None:
        """The SDK's virtualenv."""
        return self.sdk.venv if self.sdk else None
