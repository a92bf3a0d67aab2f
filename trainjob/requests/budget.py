"""What a submission may cost at most, and the budgets that must hold it: the user's, the project's, the cluster's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from trainjob.cluster import preferences
from trainjob.cluster.base import Cluster
from trainjob.cluster.common import Budget
from trainjob.cluster.reading import read_preferences
from trainjob.cluster.slurm_text import seconds
from trainjob.contract.programs.slurm_options import asks_for_devices
from trainjob.contract.steps import parse_retry
from trainjob.kinds.choice import project_settings
from trainjob.lifecycle import ledger
from trainjob.lifecycle.ledger import Charge, Limit
from trainjob.planning.pack import devices_held
from trainjob.render.request import Request
from trainjob.requests.prepared import Prepared


def charged(prepared: Prepared) -> Charge:
    """Return what a job may cost, and the budgets that must hold it."""
    request, project, held = prepared.request, prepared.project.top / prepared.project.start, prepared.inside
    job_id, left_s = (None, None) if held is None else (held.allocation.job_id, held.allocation.left_s)
    charge = charge_of([request], project, job_id, left_s)._replace(beside=_beside(request))
    if charge.beside is not None and not request.plan.devices:
        found = limits(request.cluster, request.plan.cluster, project)
        charge = charge._replace(device="GPU", limits=found)
    return charge


def _beside(request: Request) -> str | None:
    """Return a directive by which a job may have more devices than its plan says; None without one."""
    stated, plan, cluster = request.job.directives, request.plan, request.cluster
    found = sorted(name for name, value in stated.items() if asks_for_devices(name, value))
    if not plan.devices:  # of a job on CPUs, `exclusive` takes none
        found = [name for name in found if cluster.has_scheduler and name != "exclusive"]
    elif _held(request) >= plan.host_count * (cluster.accelerators_per_host or 0):
        found = []
    return found[0] if found else None


def charge_of(
    requests: Sequence[Request], project: Path, inside: str | None = None, left_s: int | None = None
) -> Charge:
    """Return the charge of these requests of a project, and all their elements: nothing on CPUs, and on this machine.

    `inside` is the job that holds their nodes, and `left_s` the time that it has left: what a reservation of another
    project, or of this one, is charged to is not charged once more. Raises UserError for a file that can't be read.
    """
    every = [one for request in requests for one in (request.elements.values() if request.elements else [request])]
    cluster, name, device = requests[0].cluster, requests[0].plan.cluster, every[0].plan.topology.device
    if cluster.packs:  # one job, however many of its elements begin
        every = [requests[0]]
    devices = 0 if cluster.trains_here else sum(_held(one) for one in every)
    found = limits(cluster, name, project) if devices else []
    paid_by = None
    if devices and inside is not None:
        from trainjob.observe import reservations  # loads the back ends, which `plan` does not need

        paid_by = reservations.jobs(name).get(inside)
    if paid_by is not None:
        found = [limit for limit in found if not limit.counts(paid_by)]
        devices = devices if found else 0
    hours = sum(_held(one) * _longest_s(one, left_s) / 3600 for one in every) if devices else 0.0
    starts = requests[0].job.max_attempts if devices and cluster.has_scheduler else 1
    payer = None if paid_by is None else str(paid_by)
    return Charge(device, devices, hours, starts, name, str(project), found, paid_by=payer)


def _held(request: Request) -> int:
    return devices_held(request.cluster, request.job, request.plan.topology, request.plan.servers)


def _longest_s(request: Request, left_s: int | None) -> float:
    """Return the longest that one start may take."""
    times, least = request.times, math.inf if left_s is None else left_s
    if times.limit_s is None:
        return least if times.longest_s is None else min(least, times.longest_s)
    longer = times.longer(parse_retry(request.job.retry)) if request.job.retry else []
    return min(least, max([times.limit_s, *filter(None, map(seconds, longer))]))


def limits(cluster: Cluster, name: str, project: Path) -> list[Limit]:
    """Return every budget that counts runs of this project on this cluster. Raises UserError for a damaged file."""
    stated: list[tuple[Budget | None, str, str | None, str | None]] = [
        (read_preferences().budget, str(preferences.file()), None, None),
        *((one.budget, str(path), None, str(path.parent)) for path, one in project_settings(project)),
        (cluster.budget, f"the file of cluster {name}", name, None),
    ]
    return [
        Limit(hours, device, budget.per, origin, of_cluster, folder)
        for budget, origin, of_cluster, folder in stated
        if budget is not None
        for device, hours in (("GPU", budget.gpu_hours), ("IPU", budget.ipu_hours))
        if hours is not None
    ]


def standing(charge: Charge) -> list[tuple[Limit, float]]:
    """Return the budgets of a job's devices with the hours that are charged to each now."""
    return [(limit, hours) for limit, hours in ledger.used(charge.limits) if limit.device == charge.device]


def rows(charge: Charge, budgets: Sequence[tuple[Limit, float]]) -> list[tuple[str, str]]:
    """Return a row of the plan about each budget."""
    most = "any amount" if math.isinf(charge.most) else f"{charge.most:,.1f}"
    starts = f" in {charge.starts} starts" if charge.starts > 1 else ""
    return [
        ("budget", f"{limit}: {hours:,.1f} are charged, and this job may cost {most}{starts}")
        for limit, hours in budgets
    ]


def as_json(charge: Charge, budgets: Sequence[tuple[Limit, float]]) -> dict[str, object]:
    """Return what a job may cost, for `--json`: device-hours; null where it has no time limit."""
    return {
        "device": charge.device,
        "starts": charge.starts,
        "hours_of_a_start": None if math.isinf(charge.hours) else charge.hours,
        "most_hours": None if math.isinf(charge.most) else charge.most,
        "budgets": [
            {"hours": limit.hours, "per": limit.per, "origin": limit.origin, "charged_hours": hours}
            for limit, hours in budgets
        ],
    }


def refusals(charge: Charge, budgets: Sequence[tuple[Limit, float]]) -> list[ledger.OverBudgetError]:
    """Return the error of each budget that does not hold the job."""
    return [error for limit, hours in budgets if (error := ledger.over(limit, charge, hours)) is not None]
