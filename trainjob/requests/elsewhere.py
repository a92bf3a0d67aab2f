"""A run goes on elsewhere: its job planned anew on another cluster, and a copy of its run directory there."""

from __future__ import annotations

import os
from collections.abc import Callable

from trainjob.backends.project import Project
from trainjob.cluster.base import OF_SETTINGS
from trainjob.cluster.faults import InvalidError
from trainjob.cluster.job import Job
from trainjob.contract import roles
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds.lookup import NamedCluster, find, refuse_missing_facts
from trainjob.lifecycle import ledger, start
from trainjob.lifecycle import resume as resuming
from trainjob.lifecycle.lock import locked
from trainjob.observe import notify
from trainjob.observe.status import Snapshot, status
from trainjob.planning.build import plan
from trainjob.records import job as jobs
from trainjob.records.job import JobRecord
from trainjob.render.request import Request
from trainjob.requests.prepared import Prepared
from trainjob.requests.resumption import charge_of_run
from trainjob.requests.submission import refuse_problems, refuse_secrets

# Settings of a job that speak of the cluster that it ran on: its hosts, and what its sbatch was told.
_OF_ITS_CLUSTER = ("hosts", "least_hosts", "directives", *OF_SETTINGS.values())


def resume(
    paths: RunPaths,
    cluster: str,
    *,
    instances: int | None = None,
    completed: bool = False,
    over_budget: bool = False,
    warn: Callable[[str], None],
) -> RunPaths:
    """Return the new run on `cluster`, a name or a path, that continues the ended run at `paths` from its checkpoint.

    It has the instances of the old run, or `instances`; a task keeps its global batch. `completed`: one that is called
    COMPLETED may go on. `warn` is called with lines about what is not taken along. The old run stays as it is, and
    notes the new one. Raises UserError for a run that has not ended or is an array, a job that does not fit the
    cluster, every problem that `check` would find there, and a run directory that can't be copied.
    """
    start.refuse_redirects(os.environ)
    named = find(cluster)
    with locked(paths.whole, "trainjob resume"):
        now = status(paths)
        resuming.refuse_unless_ended(now, completed=completed)
        _refuse_others(now)
        prepared = _prepared(now, named, instances, warn)
        record = jobs.read(now.paths.job)
        servers = roles.parse(record.request.job.get("roles", {})).servers
        refuse_secrets(prepared, passed={*record.environment, *(name for one in servers for name in one.env)})
        files = prepared.render()
        refuse_missing_facts(named.name, named.cluster, named.path)
        refuse_problems(prepared, over_budget=over_budget)
        handover = start.Handover(
            rendered=files,
            name=prepared.request.plan.name,
            cluster=named.name,
            backend=named.cluster.back_end,
            runs_dir=prepared.runs_dir,
            share=named.cluster.share,
            project=prepared.project,
            selection=None,  # the project comes with the run directory
            remote=prepared.remote(),
            charge=charge_of_run(now, [now], [prepared.request], over_budget=over_budget),
        )
        ledger.release(now)
        moved = start.go_on(now, handover, warn)
    notify.watch(moved)
    return moved


def _refuse_others(now: Snapshot) -> None:
    """Raise UserError for a run that can't be taken elsewhere, or may still begin again where it is."""
    if now.elements or now.paths.element is not None:
        raise UserError(
            f"run {now.id}: the elements of an array have one job, and go on where they are",
            "leave --cluster out, or submit a new array",
        )
    if now.submission is None:
        raise UserError(f"run {now.id} was started by hand", "submit a new run")
    if now.submission.holds_nodes:
        raise UserError(f"run {now.id} is a reservation", "make another one there: trainjob reserve CLUSTER")
    if now.is_held or now.submission.is_unknown:
        raise UserError(
            f"run {now.id}: its scheduler may still have its job, and two would train",
            f"Cancel it first: trainjob cancel {now.id}",
        )


def _prepared(now: Snapshot, named: NamedCluster, instances: int | None, warn: Callable[[str], None]) -> Prepared:
    record = jobs.read(now.paths.job)
    stated = _job(record, now.id, instances)
    left = {key: stated.pop(key) for key in _OF_ITS_CLUSTER if key in stated}
    if left:
        warn(f"{', '.join(left)} of the job were meant for cluster {record.request.cluster.name}: not taken along")
    if record.command is not None:
        warn("files that the command keeps outside of its run directory are not copied")
    try:
        job = Job.of({**stated, "name": record.name})
    except InvalidError as refused:
        raise UserError(f"{now.paths.job} is damaged: {refused}", "submit a new run") from None
    folder = "." if now.submission is None else str(now.submission.project.get("start") or ".")
    origins = {key: origin for key, origin in record.request.origins.items() if key.partition(".")[0] in stated}
    request = Request(
        cluster=named.cluster,
        cluster_origin=named.origin_word,
        job=job,
        origins={**origins, "instances": "flag --instances" if instances else f"run {now.id}"},
        plan=plan(named.name, named.cluster, job),
        project_folder=folder,
    )
    return Prepared(named, request, Project(now.paths.project, folder, in_git=False))


def _job(record: JobRecord, run_id: str, instances: int | None) -> dict[str, object]:
    if record.train is not None:
        of_task = resuming.with_its_batch(record, record.train)
        return {**of_task, "instances": instances or record.plan.topology.instances}
    if instances is not None:
        raise UserError(f"run {run_id} runs a command of your own", f"submit it again with --instances {instances}")
    return {**record.request.job, "instances": record.plan.topology.instances}
