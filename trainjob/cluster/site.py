"""A job's own sbatch options, and the facts about a site that a submission needs and a cluster file may lack."""

from __future__ import annotations

from trainjob.cluster.errors import ClusterError, JobError
from trainjob.cluster.job import Job
from trainjob.cluster.models import Cluster, HostsCluster, PodCluster, SlurmCluster, ipu_place

# Option of sbatch -> the job's setting for it. A cluster file has these options in its directives.
OF_SETTINGS = {"time-min": "time_min", "hint": "hint"}


def with_directives(name: str, cluster: Cluster, job: Job) -> Cluster:
    """Return the cluster called `name`, with the job's own sbatch options overriding the file's. Raises JobError."""
    settings = {option: getattr(job, setting) for option, setting in OF_SETTINGS.items()}
    own = {**job.directives, **{option: value for option, value in settings.items() if value is not None}}
    if not own:
        return cluster
    if not isinstance(cluster, SlurmCluster):
        option = next(iter(own))
        flag = f"--directive {option}" if option in job.directives else f"--{option}"
        raise JobError(
            f"{flag} is an option of sbatch, and cluster {name} is of kind {cluster.kind}",
            "leave it out, or choose a cluster of kind slurm",
        )
    return cluster.changed(directives={**cluster.directives, **own})


def missing_facts(cluster: Cluster) -> tuple[str, ...]:
    """Return the key paths that `submit` needs and `cluster` lacks; none for kind local."""
    match cluster:
        case PodCluster():
            return _of_a_pod(cluster)
        case SlurmCluster():
            return _of_slurm(cluster)
        case HostsCluster():
            present = {"hosts": cluster.hosts, "runs_dir": cluster.runs_dir}
            return tuple(key for key, value in present.items() if not value)
    return ()


def refuse_missing_facts(name: str, cluster: Cluster) -> None:
    """Raise ClusterError, naming every fact that a submission to the cluster `name` needs and its file lacks."""
    missing = missing_facts(cluster)
    if missing:
        under_slurm = isinstance(cluster, SlurmCluster) and ipu_place(cluster) is not None
        source = "--from slurm-ipu" if under_slurm else f"--kind {cluster.kind}"
        raise ClusterError(
            f"cluster {name} can be planned; to submit to it, its file lacks {', '.join(missing)}",
            f"add them, or draft a file that shows where they go: trainjob cluster init NAME {source}",
        )


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
    # true, a bare flag, states the option; false leaves it out.
    lacking = [name for name in cluster.required_directives if cluster.directives.get(name, False) is False]
    ipus = () if ipu_place(cluster) is None else _of_ipus(cluster)
    return (*(f"directives.{name}" for name in lacking), *ipus, *(() if cluster.runs_dir else ("runs_dir",)))


def _of_ipus(cluster: SlurmCluster) -> tuple[str, ...]:
    sdk, vipu = cluster.sdk, cluster.vipu
    present = {
        # Only a job that makes its own partition needs the server.
        "vipu.server": vipu.server or not vipu.allocation,
        "sdk.path": (sdk and sdk.path) or cluster.prologue,
        "sdk.venv": (sdk and sdk.venv) or cluster.python,
        "sdk.version": sdk,
    }
    return tuple(key for key, value in present.items() if not value)
