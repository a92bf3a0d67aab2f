"""The facts of a cluster file about the site where a batch file is to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainjob.cluster import slurm_text


@dataclass(frozen=True)
class Site:
    """Facts of a cluster; none where no cluster file was named."""

    accelerators: int = 0
    cpus: int | None = None
    max_nodes: int | None = None
    max_time_s: int | None = None
    release: tuple[int, int] | None = None  # of Slurm
    partition: str | None = None
    required: tuple[str, ...] = ()  # directives without which this site refuses a job

    @property
    def srun_inherits_cpus(self) -> bool:
        """True if srun takes over --cpus-per-task: not from Slurm 22.05 to 24.05."""
        return self.release is not None and not (22, 5) <= self.release < (24, 11)


def site_of(cluster: Any) -> Site:
    """Return the facts of a cluster of kind slurm."""
    groups = cluster.nodes if isinstance(cluster.nodes, list) else [cluster.nodes]
    release = cluster.slurm.version if cluster.slurm else None
    partition = cluster.directives.get("partition")
    return Site(
        accelerators=max(group.accelerators for group in groups),
        cpus=max(group.cpus for group in groups),
        max_nodes=cluster.limits.max_nodes or sum(group.count for group in groups),
        max_time_s=None if cluster.limits.max_time is None else slurm_text.seconds(cluster.limits.max_time),
        release=None if release is None else (int(release.split(".")[0]), int(release.split(".")[1])),
        partition=None if partition is None else str(partition),
        required=tuple(cluster.required_directives),
    )
