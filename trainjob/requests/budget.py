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
from trainjob.lifecycle.ledger import Charge, Cost, Limit
from trainjob.planning.pack import devices_held
from trainjob.render.request import Request
from trainjob.requests.prepared import Prepared


def charged(prepared: Prepared) -> Charge:
    """Return what a job may cost, and the budgets that must hold it."""
    request, project = prepared.request, prepared.project.top / prepared.project.start
    inside = prepared.inside
    cost = cost_of([request], None if inside is None else inside.allocation.left_s)
    beside, name = _beside(request), request.plan.cluster
    paid_by = None if inside is None else inside.paid_by
    charge = charge_of(cost, request.cluster, name, project, paid_by)._replace(beside=beside)
    if beside is not None and not request.plan.devices:
        charge = charge._replace(cost=cost._replace(device="GPU"), limits=limits(request.cluster, name, project))
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


def charge_of(cost: Cost, cluster: Cluster, name: str, project: Path, paid_by: Path | None = None) -> Charge:
    """Return the charge of runs of this project on this cluster. Raises UserError for a file that can't be read.

    `paid_by`: the project of the reservation in which they run. What that is charged to is not charged for them.
    """
    found = limits(cluster, name, project) if cost.devices else []
    if paid_by is not None:
        found = [limit for limit in found if not limit.counts(paid_by)]
        cost = cost if found else cost._replace(devices=0, hours=0.0)
    return Charge(cost, name, str(project), found, paid_by=None if paid_by is None else str(paid_by))


def cost_of(requests: Sequence[Request], left_s: int | None = None) -> Cost:
    """Return what these requests, and all their elements, may cost: nothing on CPUs, and on this machine.

    `left_s`: what is left of the allocation in which they run.
    """
    every = [one for request in requests for one in (request.elements.values() if request.elements else [request])]
    cluster, device = requests[0].cluster, every[0].plan.topology.device
    if cluster.packs:  # one job, however many of its elements begin
        every = [requests[0]]
    devices = sum(_held(one) for one in every)
    if not devices or cluster.trains_here:
        return Cost(device, 0, 0.0)
    hours = sum(_held(one) * _longest_s(one, left_s) / 3600 for one in every)
    return Cost(device, devices, hours, requests[0].job.max_attempts if cluster.has_scheduler else 1)


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
    return [(limit, hours) for limit, hours in ledger.used(charge.limits) if limit.device == charge.cost.device]


def rows(charge: Charge, budgets: Sequence[tuple[Limit, float]]) -> list[tuple[str, str]]:
    """Return a row of the plan about each budget."""
    most = "any amount" if math.isinf(charge.cost.most) else f"{charge.cost.most:,.1f}"
    starts = f" in {charge.cost.starts} starts" if charge.cost.starts > 1 else ""
    return [
        ("budget", f"{limit}: {hours:,.1f} are charged, and this job may cost {most}{starts}")
        for limit, hours in budgets
    ]


def as_json(charge: Charge, budgets: Sequence[tuple[Limit, float]]) -> dict[str, object]:
    """Return what a job may cost, for `--json`: device-hours; null where it has no time limit."""
    cost = charge.cost
    return {
        "device": cost.device,
        "starts": cost.starts,
        "hours_of_a_start": None if math.isinf(cost.hours) else cost.hours,
        "most_hours": None if math.isinf(cost.most) else cost.most,
        "budgets": [
            {"hours": limit.hours, "per": limit.per, "origin": limit.origin, "charged_hours": hours}
            for limit, hours in budgets
        ],
    }


def refusals(charge: Charge, budgets: Sequence[tuple[Limit, float]]) -> list[ledger.OverBudgetError]:
    """Return the error of each budget that does not hold the job."""
    return [error for limit, hours in budgets if (error := ledger.over(limit, charge, hours)) is not None]
