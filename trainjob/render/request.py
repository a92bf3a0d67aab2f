"""What one rendering is made from, and where each of its values came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainjob.cluster.job import Job
from trainjob.cluster.models import Cluster
from trainjob.contract import quoting
from trainjob.contract.errors import UserError
from trainjob.contract.paths import USER_DATA
from trainjob.plan.values import Plan
from trainjob.render.sourced import SourcedShell

DEFAULT = "default"
# A key of the cluster that may come from the run itself: `origins` then says so.
MARGIN = "time_limit_signal.margin_s"


class PlaceError(UserError):
    """A path that means something else where the script runs."""


@dataclass(frozen=True)
class Request:
    """A plan, the job and cluster it was made for, and where each value of the job came from.

    `origins` maps a job's key to "flag --instances" or "job file x.yaml"; a key that is missing is a default. It has
    MARGIN where that follows from the run's own checkpoints.
    `project_folder` is where in the copied project a user's command starts, relative: "." for its top.
    `elements` are those of an array by number, each with a job and a plan of its own; `swept` is what they differ
    in. `runtime` is the module of ours that ranks run when there is no command, and its arguments before RUN_DIR.
    """

    cluster: Cluster
    cluster_origin: str
    job: Job
    origins: Mapping[str, str]
    plan: Plan
    project_folder: str = "."
    runtime: tuple[str, ...] = ("trainjob.train",)
    elements: Mapping[int, Request] = field(default_factory=dict)
    swept: tuple[str, ...] = ()

    def origin(self, key: str) -> str:
        """Return where the job's `key` came from."""
        return self.origins.get(key, DEFAULT)

    def cluster_key(self, key: str) -> str:
        """Return where the cluster's `key` came from: a file says only what is written in it."""
        return self.cluster_origin if key in self.cluster.stated else DEFAULT

    @property
    def hosts_origin(self) -> str:
        """Where the number of hosts came from: as few as hold the instances, unless the job says."""
        if self.job.hosts is not None:
            return self.origin("hosts")
        return f"{self.origin('instances')}, {self.cluster_origin}"

    def path(self, key: str, path: str) -> SourcedShell:
        """Return the cluster file's `path` as a shell word. Raises PlaceError for one that is not whole."""
        if not path.startswith(("/", "~/", f"{USER_DATA}/")):
            raise PlaceError(
                f"{key} is {path} in {self.cluster_origin}, and a script runs in its run directory",
                "write the whole path, from / or ~/ on",
            )
        return SourcedShell(quoting.path(path), self.cluster_origin)
