"""The names and values of the template of kind ipu-pod."""

from __future__ import annotations

from typing import Any

from trainjob.cluster import slurm_text
from trainjob.contract.quoting import Shell
from trainjob.kinds.pod.model import PodCluster
from trainjob.kinds.poprun import PoprunLine, option
from trainjob.render.context import common
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced, SourcedShell

TEMPLATE, SCRIPT = "jobs/poprun.sh.j2", "job.sh"
# The name of the run's own partition: the run id, with underscores for all but letters and digits.
_OWN_PARTITION = Shell('"trainjob_${TRAINJOB_RUN_ID//[!A-Za-z0-9]/_}"')


def context(request: Request) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for kind ipu-pod."""
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
