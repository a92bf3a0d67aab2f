"""What a submission needs to know of a site, and a cluster file may lack: hosts, V-IPU server, partition, account."""

from __future__ import annotations

from trainjob.cluster.errors import ClusterError
from trainjob.cluster.models import Cluster, PodCluster, SlurmCluster, ipu_place


def missing_facts(cluster: Cluster) -> tuple[str, ...]:
    """Return the key paths that `submit` needs and that `cluster` lacks; none on this machine."""
    match cluster:
        case PodCluster():
            return _of_a_pod(cluster)
        case SlurmCluster():
            return _of_slurm(cluster)
    return ()


def refuse_missing_facts(name: str, cluster: Cluster) -> None:
    """Raise ClusterError naming every fact that submitting to the cluster called `name` needs and its file lacks."""
    missing = missing_facts(cluster)
    if missing:
        raise ClusterError(
            f"cluster {name} can be planned. To submit, its file lacks {', '.join(missing)}: "
            f"fill them in, or draft a file that shows where: trainjob cluster init NAME {_draft(cluster)}"
        )


def _draft(cluster: Cluster) -> str:
    under_slurm = isinstance(cluster, SlurmCluster) and ipu_place(cluster) is not None
    return "--from slurm-ipu" if under_slurm else f"--kind {cluster.kind}"


def _of_a_pod(cluster: PodCluster) -> tuple[str, ...]:
    sdk, vipu = cluster.sdk, cluster.vipu
    present = {
        "hosts": cluster.hosts,
        "vipu.server": vipu.server,
        "vipu.partition": vipu.partition or vipu.allocation,
        "sdk.path": sdk and sdk.path,
        "sdk.venv": sdk and sdk.venv,
        "runs_dir": cluster.runs_dir,
    }
    return tuple(key for key, value in present.items() if not value)


def _of_slurm(cluster: SlurmCluster) -> tuple[str, ...]:
    needed = dict.fromkeys(("partition", *cluster.required_directives))
    # A bare flag is a fact too; false says that the option is left out.
    lacking = [name for name in needed if cluster.directives.get(name, False) is False]
    ipus = () if ipu_place(cluster) is None else _of_ipus(cluster)
    return (*(f"directives.{name}" for name in lacking), *ipus, *(() if cluster.runs_dir else ("runs_dir",)))


def _of_ipus(cluster: SlurmCluster) -> tuple[str, ...]:
    sdk, vipu = cluster.sdk, cluster.vipu
    present = {
        # Only a job that makes its partition itself has to know who makes them.
        "vipu.server": vipu.server or not vipu.allocation,
        "sdk.path": (sdk and sdk.path) or cluster.prologue,
        "sdk.venv": (sdk and sdk.venv) or cluster.python,
        "sdk.version": sdk,
    }
    return tuple(key for key, value in present.items() if not value)
