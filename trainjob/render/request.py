"""The input of a rendering: cluster, job and plan, and the origin of each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from trainjob.cluster.base import Cluster, Starter
from trainjob.cluster.job import Job
from trainjob.contract import quoting
from trainjob.contract.errors import UserError
from trainjob.contract.paths import USER_DATA
from trainjob.contract.roles import parse
from trainjob.planning.engines import needs_mpirun
from trainjob.planning.limits import TimeLimits
from trainjob.planning.roles import server_job
from trainjob.records.job import Plan
from trainjob.render.sourced import SourcedShell

DEFAULT = "default"
# A key of the cluster that a run may derive from its own checkpoints; `origins` has an entry for it then.
MARGIN = "time_limit_signal.margin_s"


class PlaceError(UserError):
    """A path that would mean another place where the script runs."""


class DirectiveError(UserError):
    """A directive of the cluster file that contradicts the plan."""

    code = "directive"


@dataclass(frozen=True)
class Request:
    """A plan, the job and cluster it was made for, and the origin of each value of the job.

    `origins` maps a job's key to "flag --instances" or "job file x.yaml"; a missing key has its default. It has MARGIN
    if the run's own checkpoints decide the margin.
    `project_folder` is the folder in the copied project in which a user's command starts, relative: "." for its top.
    `elements` are those of an array by number, each with its own job and plan; `swept` names the settings in which
    they differ. `runtime` is our module that ranks run if there is no command, and its arguments before RUN_DIR.
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
    is_server: bool = False  # of one of the servers of a job with roles

    def origin(self, key: str) -> str:
        """Return where the job's `key` came from."""
        return self.origins.get(key, DEFAULT)

    def cluster_key(self, key: str) -> str:
        """Return where the cluster's `key` came from: its file, or a default if the file does not state it."""
        return self.cluster_origin if key in self.cluster.stated else DEFAULT

    @cached_property
    def times(self) -> TimeLimits:
        """The job's time limit, the site's longest and the margin."""
        return TimeLimits.of(self.cluster, self.job)

    @cached_property
    def servers(self) -> dict[str, Request]:
        """The request of each server of a job with roles, in the order in which they start."""
        made = {}
        for role in parse(self.job.roles).servers:
            name, topology = role.name, self.plan.servers[role.name]
            plan = replace(self.plan, name=name, topology=topology, facts={}, warnings=[], servers={})
            origins = {**self.origins, **dict.fromkeys(("command", "hosts", "instances"), self.origin(f"roles.{name}"))}
            made[name] = replace(
                self, job=server_job(self.job, role, topology, self.cluster), plan=plan, origins=origins, is_server=True
            )
        return made

    @property
    def starter(self) -> Starter:
        """The program that starts the ranks."""
        return "mpirun" if needs_mpirun(self.plan.engine) else self.cluster.ranks_by

    @property
    def hosts_origin(self) -> str:
        """The origin of the number of hosts: the job, or else its instances and the cluster."""
        if self.job.hosts is not None:
            return self.origin("hosts")
        return f"{self.origin('instances')}, {self.cluster_origin}"

    def path(self, key: str, path: str) -> SourcedShell:
        """Return the cluster file's `path` as a shell word. Raises PlaceError if it is relative."""
        if not path.startswith(("/", "~/", f"{USER_DATA}/")):
            raise PlaceError(
                f"{key} is {path} in {self.cluster_origin}, and a script runs in its run directory",
                "write the whole path, from / or ~/ on",
            )
        return SourcedShell(quoting.path(path), self.cluster_origin)
