"""From flags to a planned request: what plan, render, check and submit have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import platformdirs

import trainjob
from trainjob.cli.job_flags import JobFlags
from trainjob.cluster.asked import merge_job
from trainjob.cluster.job import Job
from trainjob.cluster.lookup import Found, find
from trainjob.contract import manifest, tasks
from trainjob.contract.errors import UserError
from trainjob.plan.build import plan
from trainjob.render import tasks as tasks_of
from trainjob.render.rendered import Rendered, explained, render
from trainjob.render.request import Request
from trainjob.runs import index
from trainjob.submit import machines, runs_folder
from trainjob.submit import project as projects
from trainjob.submit.base import Remote
from trainjob.submit.machine import Machine
from trainjob.submit.project import Project, Selection


@dataclass(frozen=True)
class Prepared:
    """A planned request and the project it was asked from."""

    found: Found
    request: Request
    project: Project

    @property
    def runs_dir(self) -> Path:
        """Where run directories of this cluster lie here: its runs_dir, or the user's data folder."""
        asked = None if self.found.cluster.ssh else self.found.cluster.runs_dir
        return Path(asked).expanduser() if asked else index.home() / "runs"

    @property
    def machine(self) -> Machine:
        """The machine that jobs are handed over on."""
        ssh = self.found.cluster.ssh
        return machines.reached(ssh.host, ssh.user) if ssh else machines.HERE

    def remote(self) -> Remote | None:
        """Return where run directories lie over there; None where that is here. Raises UserError."""
        cluster = self.found.cluster
        if cluster.ssh is None:
            return None
        folder = runs_folder.resolved(self.machine, cluster.runs_dir or "~/trainjob-runs")
        return Remote(cluster.ssh.host, cluster.ssh.user, folder)

    def render(self) -> Rendered:
        """Return the bytes that would run."""
        return render(self.request, our_templates(), site_templates())

    def explained(self) -> str:
        """Return the job script with origin marks."""
        return explained(self.request, our_templates(), site_templates())


def prepare(flags: JobFlags) -> Prepared:
    """Return the plan and all that it was made from. Raises UserError for whatever is wrong with what was asked."""
    found = find(flags.cluster)
    asked = merge_job(flags.file, flags.values)
    project = projects.find(Path.cwd(), flags.project, found.cluster.secrets_file)
    job, origins = _with_known_samples(found, _with_whole_paths(found, asked.job), dict(asked.origins))
    array = tasks_of.read(job, Path.cwd())
    request = Request(
        cluster=found.cluster,
        cluster_origin=found.origin_word,
        job=array.job,
        origins=origins,
        plan=plan(found.name, found.cluster, array.job),
        project_folder=project.start,
    )
    return Prepared(found, array.planned(request), project)


def selected(prepared: Prepared, *, untracked: bool) -> Selection | None:
    """Return the project's files that the run takes along; None where a built-in task needs none of them."""
    job = prepared.request.job
    if not job.command and ":" not in (job.task or ""):
        return None
    return projects.select(prepared.project, untracked=untracked)


def _with_whole_paths(found: Found, job: Job) -> Job:
    """Make a path that ranks read whole: they start in a copy of the project. On a cluster elsewhere it must be so."""
    if job.init_from is None or job.init_from.startswith(("/", "~")):
        return job
    if found.cluster.ssh is not None:
        raise UserError(
            f"init_from is {job.init_from} and cluster {found.name} is another machine: give the whole path there, "
            "from / or ~/ on"
        )
    return job.model_copy(update={"init_from": str(Path.cwd() / job.init_from)})


def _with_known_samples(found: Found, job: Job, origins: dict[str, str]) -> tuple[Job, dict[str, str]]:
    """Fill in the number of samples from the data set's manifest, where it is prepared here."""
    if job.samples is not None or job.command or job.data is None:
        return job, origins
    facts = tasks.facts(job.task or "digits-cnn")
    if facts is not None and facts.data == job.data and facts.samples is not None:
        return job, origins
    folder = manifest.find(job.data, Path(found.cluster.data_dir).expanduser() if found.cluster.data_dir else None)
    known = manifest.read_manifest(folder) if folder else None
    if known is None:
        return job, origins
    counted = job.model_copy(update={"samples": known.splits["train"].samples})
    return counted, {**origins, "samples": f"manifest of {job.data}"}


def our_templates() -> Path:
    """Return the folder of our templates: in the wheel inside the package, in a checkout beside it."""
    package = Path(trainjob.__file__).parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


def site_templates() -> list[Path]:
    """Return the site's template folder, where there is one; its files come before ours."""
    folder = platformdirs.user_config_path("trainjob") / "templates"
    return [folder] if folder.is_dir() else []
