"""From flags to a place where variations of the job can be run: what verify and bench have in common."""

from __future__ import annotations

from trainjob.cli.check import refuse_problems
from trainjob.cli.job_flags import JobFlags
from trainjob.cli.prepared import our_templates, prepare, selected, site_templates
from trainjob.contract.errors import UserError
from trainjob.render.rendered import render
from trainjob.runs.experiment import Workbench


def workbench(flags: JobFlags) -> Workbench:
    """Return the workbench of this machine. Raises UserError for a cluster of another kind."""
    prepared = prepare(flags)
    if prepared.found.cluster.kind != "local":
        raise UserError(
            f"this runs on this machine's CPUs and cluster {prepared.found.name} is of kind "
            f"{prepared.found.cluster.kind}: leave --cluster out; the job's settings decide what is run"
        )
    selection = selected(prepared, untracked=flags.untracked)
    refuse_problems(prepared, selection)
    return Workbench(
        request=prepared.request,
        render=lambda request: render(request, our_templates(), site_templates()),
        runs_dir=prepared.runs_dir,
        project=prepared.project,
        selection=selection,
    )
