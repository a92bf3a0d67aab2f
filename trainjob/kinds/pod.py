"""Kind ipu-pod: hosts that share IPUs, launched by poprun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from trainjob.cluster import slurm_text
from trainjob.cluster.base import Cluster, IpuCluster, NamedHosts
from trainjob.cluster.common import Count
from trainjob.cluster.nodes import Capacity
from trainjob.cluster.strict import key, required
from trainjob.contract.quoting import Shell

if TYPE_CHECKING:
    from trainjob.render.request import Request

TEMPLATE, SCRIPT = "jobs/poprun.sh.j2", "job.sh"
# The name of the run's own partition: the run id, with underscores for all but letters and digits.
_OWN_PARTITION = Shell('"trainjob_${TRAINJOB_RUN_ID//[!A-Za-z0-9]/_}"')


class PodCluster(NamedHosts, IpuCluster):
    """An IPU-POD: hosts that share IPUs, launched by poprun."""

    kind: Literal["ipu-pod"] = required("ipu-pod: hosts that share IPUs, launched by poprun.")
    ipus: Count = required("IPUs of the partition; a power of two.")
    ilds: Count | None = key(None, "IPU-Link domains. Absent: one per 64 IPUs.")

    draft = "pod64"

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


MODEL: type[Cluster] = PodCluster


def context(request: Request) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for kind ipu-pod."""
    from trainjob.kinds.poprun import PoprunLine, option
    from trainjob.render.context import common
    from trainjob.render.sourced import Sourced, SourcedShell

    cluster, origin = PodCluster.of(request.cluster), request.cluster_origin
    names, port, vipu = slurm_text.expand(request.plan.topology.hosts), cluster.network.port, cluster.vipu
    hosts = request.plan.topology.hosts if cluster.poprun.host_list == "range" else ",".join(names)
    partition: object = None
    if vipu.partition is not None:
        partition = Sourced(vipu.partition, origin)
    elif vipu.allocation is not None:
        partition = SourcedShell(_OWN_PARTITION, "a partition of the run's own")
    line = PoprunLine(
        request,
        cluster,
        # Without --host poprun runs on the host where it is started.
        hosts=None if cluster.host_names is None and len(names) == 1 else option("host", hosts, origin),
        ilds=None if cluster.ilds is None else option("num-ilds", cluster.ilds, origin),
        partition=partition,
        allocation=vipu.allocation,
    )
    return {
        **common(request, "pod", "on the pod's launch host, bash job.sh"),
        **line.context(),
        "first_host": Sourced(names[0] if len(names) > 1 else "127.0.0.1", origin),
        "fixed_port": None if port is None else Sourced(port, origin),
        "is_group": True,
        "allocation": None,
        "removes_own_partition": False,
    }
