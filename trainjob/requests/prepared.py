"""From a cluster and a job to a planned request: the path that every command and every Python call takes.

Jinja and ssh load only when something is rendered or submitted: `plan` needs neither.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from trainjob.backends import project as projects
from trainjob.backends.project import Project, Selection
from trainjob.cluster.base import with_directives
from trainjob.cluster.job import Job
from trainjob.cluster.merging import merge_job
from trainjob.contract import package, tasks
from trainjob.contract.errors import UserError
from trainjob.contract.paths import expanded, home
from trainjob.kinds.choice import choose
from trainjob.kinds.lookup import NamedCluster, find
from trainjob.kinds.table import EVERY_KIND, as_packed, in_allocation
from trainjob.planning.build import plan
from trainjob.planning.pack import refuse_in_allocation
from trainjob.render.request import Request
from trainjob.requests import inside
from trainjob.requests.inside import Held
from trainjob.requests.options import JobOptions

if TYPE_CHECKING:
    from trainjob.machines.machine import Machine
    from trainjob.records.submission import Remote
    from trainjob.render.rendered import Rendered


@dataclass(frozen=True)
class Prepared:
    """A planned request and its project. `untracked`: files that git does not track are copied too."""

    named_cluster: NamedCluster
    request: Request
    project: Project
    untracked: bool = False
    cluster_chosen_by: str = "flag --cluster"
    inside: Held | None = None  # the allocation in which it is a step; None: a job of its own

    @cached_property
    def selection(self) -> Selection | None:
        """The project's files that are copied into the run; None for a built-in task, which needs none."""
        job = self.request.job
        if self.request.cluster.holds_nodes:
            return None
        if not job.command and ":" not in (job.task or ""):
            return None
        return projects.select(self.project, untracked=self.untracked)

    @property
    def runs_dir(self) -> Path:
        """The folder of this cluster's run directories on this machine: its runs_dir, or the user's data folder."""
        cluster = self.named_cluster.cluster
        return home() / "runs" if cluster.ssh else expanded(cluster.runs_folder)

    @property
    def machine(self) -> Machine:
        """The machine on which jobs are submitted."""
        from trainjob.machines.access import machine_of

        return machine_of(self.named_cluster.cluster)

    def remote(self) -> Remote | None:
        """Return the place of run directories on a machine reached by ssh; None for this machine. Raises UserError."""
        cluster = self.named_cluster.cluster
        if cluster.ssh is None:
            return None
        from trainjob.machines import remote_files
        from trainjob.records.submission import Remote

        folder = remote_files.resolved_runs_dir(self.machine, cluster.runs_folder)
        return Remote(cluster.ssh.host, cluster.ssh.user, folder)

    @cached_property
    def _rendered(self) -> Rendered:
        return rendered(self.request)

    def render(self) -> Rendered:
        """Return the files that would run."""
        return self._rendered

    def refuse_conflicts(self) -> None:
        """Raise UserError for settings that a job script can't have together; `render` refuses the same."""
        EVERY_KIND[self.request.cluster.kind].context(self.request)

    def explained(self) -> str:
        """Return the job script with notes about origins and reasons."""
        from trainjob.render import rendered as rendering

        page = EVERY_KIND[self.request.cluster.kind]
        return rendering.script(self.request, page, package.companion("templates"), site_templates(), explain=True)

    def changed(self, **settings: Any) -> Prepared:
        """Return the same request with these settings of the job changed, planned again. Raises Refusal."""
        job = self.request.job.changed(**settings)
        planned = plan(self.named_cluster.name, self.named_cluster.cluster, job)
        return replace(self, request=replace(self.request, job=job, plan=planned))


def prepare(options: JobOptions) -> Prepared:
    """Return the planned request for `options`. Raises UserError for every mistake in them."""
    choice = choose(options.cluster, options.file)
    named_cluster = find(choice.value)
    merged = merge_job(options.file, options.values)
    named_cluster = named_cluster._replace(
        cluster=with_directives(named_cluster.name, named_cluster.cluster, merged.job)
    )
    project = projects.find(Path.cwd(), options.project, named_cluster.cluster.secrets_file)
    found = _with_folders(project, _with_absolute_paths(named_cluster, merged.job))
    job, origins = _with_counted_samples(named_cluster, found, dict(merged.origins))
    held = inside.chosen(options.inside, named_cluster.name, named_cluster.cluster)
    if held is not None:
        refuse_in_allocation(job, str(held))
        named_cluster = named_cluster._replace(cluster=in_allocation(named_cluster.name, named_cluster.cluster))
    elif job.pack is not None:
        named_cluster = named_cluster._replace(cluster=as_packed(named_cluster.name, named_cluster.cluster, job.pack))
    array = None
    if job.array is not None or job.sweep is not None:
        from trainjob.render import elements  # slow to load, and only arrays need it

        array = elements.read(job, Path.cwd())
    request = Request(
        cluster=named_cluster.cluster,
        cluster_origin=named_cluster.origin_word,
        job=array.job if array else job,
        origins=origins,
        plan=plan(named_cluster.name, named_cluster.cluster, array.job if array else job),
        project_folder=project.start,
    )
    planned = array.planned(request) if array else request
    if held is not None:
        inside.refuse_misfit(held.allocation, named_cluster.cluster, planned)
    return Prepared(named_cluster, planned, project, options.untracked, choice.chosen_by, held)


def rendered(request: Request) -> Rendered:
    """Return the files of a planned request, rendered from our templates and the site's."""
    from trainjob.render.rendered import render

    return render(request, EVERY_KIND[request.cluster.kind], package.companion("templates"), site_templates())


def _with_absolute_paths(named_cluster: NamedCluster, job: Job) -> Job:
    """Return the job with absolute paths, because ranks start in a copy of the project.

    Raises UserError for a relative path on a cluster reached by ssh.
    """
    if job.init_from is None or job.init_from.startswith(("/", "~")):
        return job
    if named_cluster.cluster.ssh is not None:
        raise UserError(
            f"init_from is {job.init_from}, a relative path, and cluster {named_cluster.name} is another machine",
            "give the absolute path on that machine, starting with / or ~/",
        )
    return job.changed(init_from=str(Path.cwd() / job.init_from))


def _with_folders(project: Project, job: Job) -> Job:
    """Return the job with the folder of each module that is beside the user, and not at the top of the project."""
    changes = {}
    for setting in ("task", "optimizer"):
        value = getattr(job, setting) or ""
        module = value.partition(":")[0].partition(".")[0]
        if ":" not in value or "/" in value or project.start == ".":
            continue
        top, here = ((folder / module) for folder in (project.top, project.top / project.start))
        is_at_top, is_here = (path.is_dir() or path.with_name(f"{module}.py").is_file() for path in (top, here))
        if is_here and not is_at_top:
            changes[setting] = f"{project.start}/{value}"
    return job.changed(**changes) if changes else job


def _with_counted_samples(named_cluster: NamedCluster, job: Job, origins: dict[str, str]) -> tuple[Job, dict[str, str]]:
    """Fill in the number of samples from the data set's manifest, if the data set is prepared on this machine."""
    if job.samples is not None or job.command or job.data is None:
        return job, origins
    facts = tasks.facts(job.task or tasks.DEFAULT_TASK)
    if facts is not None and facts.data == job.data and facts.samples is not None:
        return job, origins
    from trainjob.data import manifest

    folder = manifest.find(job.data, data_dir(named_cluster))
    prepared = manifest.read_manifest(folder) if folder else None
    if prepared is None or prepared.kind == manifest.TOKENS:  # the task says how many tokens make a sample
        return job, origins
    counted = job.changed(samples=prepared.splits["train"].samples)
    return counted, {**origins, "samples": f"manifest of {job.data}"}


def data_dir(named_cluster: NamedCluster) -> Path | None:
    """Return the cluster file's data_dir as a path of this machine; None if the file has none."""
    return expanded(named_cluster.cluster.data_dir) if named_cluster.cluster.data_dir else None


def site_templates() -> list[Path]:
    """Return the site's template folder if it exists; its files override ours."""
    folder = platformdirs.user_config_path("trainjob") / "templates"
    return [folder] if folder.is_dir() else []
