"""The back ends by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainjob.contract.errors import UserError
from trainjob.submit import local
from trainjob.submit.poprun import backend as poprun
from trainjob.submit.slurm import backend as slurm

if TYPE_CHECKING:
    from trainjob.submit.base import BackEnd

# The type checker proves that every module fits the Protocol.
BACK_ENDS: dict[str, BackEnd] = {"local": local, "slurm": slurm, "poprun": poprun}


def get(name: str) -> BackEnd:
    """Return the back end called `name`. Raises UserError where this version has none."""
    try:
        return BACK_ENDS[name]
    except KeyError:
        raise UserError(f"back end {name} is not in this version: it has {', '.join(BACK_ENDS)}") from None
