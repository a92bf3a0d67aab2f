"""What one rendering is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainjob.cluster.job import Job
from trainjob.cluster.models import Cluster
from trainjob.plan.values import Plan


@dataclass(frozen=True)
class Request:
    """A plan, what was asked for it, and where each asked value came from.

    `origins` maps a job's key to "flag --instances" or "job file x.yaml"; a key that isn't there is a default.
    `project_folder` is where in the copied project a user's command starts, relative: "." for its top.
    `tasks` are those of an array by number, each with a job and a plan of its own; `swept` is what they differ in.
    `runtime` is the module of ours that ranks run when there is no command, and its arguments before RUN_DIR.
    """

    cluster: Cluster
    cluster_origin: str
    job: Job
    origins: Mapping[str, str]
    plan: Plan
    project_folder: str = "."
    runtime: tuple[str, ...] = ("trainjob.train",)
    tasks: Mapping[int, Request] = field(default_factory=dict)
    swept: tuple[str, ...] = ()

    def origin(self, key: str) -> str:
        """Return where the job's `key` came from."""
        return self.origins.get(key, "default")
