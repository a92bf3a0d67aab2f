"""Who rehearses which kind of cluster."""

from __future__ import annotations

from collections.abc import Callable

from trainjob.contract.errors import UserError
from trainjob.rehearse import pod
from trainjob.rehearse.base import Rehearsal, Verdict
from trainjob.rehearse.slurm import rehearsal as slurm

# A new kind is a new row.
KINDS: dict[str, Callable[[Rehearsal], Verdict]] = {"slurm": slurm.rehearse, "ipu-pod": pod.rehearse}


def rehearse(asked: Rehearsal) -> Verdict:
    """Return how the job ended here. Raises UserError for a kind of cluster that can't be rehearsed."""
    kind = asked.request.cluster.kind
    try:
        return KINDS[kind](asked)
    except KeyError:
        raise UserError(_refusal(asked.request.plan.cluster, kind)) from None


def _refusal(name: str, kind: str) -> str:
    if kind == "local":
        return f"cluster {name} is this machine: trainjob submit --cluster {name} is its own rehearsal"
    return f"cluster {name} is of kind {kind}, which this version can't rehearse (it can: {', '.join(KINDS)})"
