"""The table of back ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainjob.backends import detached
from trainjob.backends.base import Answer, Liveness
from trainjob.backends.slurm import backend as slurm
from trainjob.backends.slurm import packs, steps
from trainjob.contract.errors import UserError

if TYPE_CHECKING:
    from trainjob.backends.base import BackEnd
    from trainjob.contract.paths import RunPaths
    from trainjob.records.submission import Native, Submission

# The type checker proves that every module fits the Protocol. Run directories of earlier versions name the detached
# back end "local" or "poprun".
BACK_ENDS: dict[str, BackEnd] = {
    "detached": detached,
    "slurm": slurm,
    "allocation": steps,
    "pack": packs,
    "local": detached,
    "poprun": detached,
}


def get(name: str) -> BackEnd:
    """Return the back end called `name`. Raises UserError if this version has none of that name."""
    try:
        return BACK_ENDS[name]
    except KeyError:
        raise UserError(
            f"this run was submitted by back end {name}, and this trainjob has only {', '.join(BACK_ENDS)}",
            "Use the trainjob that submitted it",
        ) from None


def has_scheduler(name: str) -> bool:
    """Return whether a scheduler keeps the jobs of this back end; True for a back end unknown to this version."""
    return name not in BACK_ENDS or BACK_ENDS[name].HAS_SCHEDULER


def identify(name: str, native: Native | None) -> dict[str, str]:
    """Return the scheduler's name for a run; empty without a scheduler, or for an unknown back end."""
    try:
        return {} if native is None or name not in BACK_ENDS else BACK_ENDS[name].identify(native)
    except (LookupError, TypeError, ValueError, AttributeError):
        return {}  # `ask` reports the damage


def ask(name: str, natives: Sequence[Native]) -> list[Answer]:
    """Return a back end's answer about each native id; an empty one with a note for an unknown back end."""
    try:
        return get(name).ask(natives)
    except UserError as error:
        return [Answer(Liveness.UNKNOWN, note=str(error)) for _ in natives]
    except (LookupError, TypeError, ValueError, AttributeError):
        # A native id is damaged: ask about each by itself, so that one run does not hide the others.
        if len(natives) > 1:
            return [answer for native in natives for answer in ask(name, [native])]
        return [Answer(Liveness.UNKNOWN, note=f"damaged: submission.json: native is {natives[0]!r}")]


def adopt(paths: RunPaths, submission: Submission) -> Submission | None:
    """Return the submission with its job in the scheduler, and record it; None if the scheduler has none.

    Raises UserError if the scheduler can't be asked.
    """
    native = get(submission.backend).look_for(paths, submission)
    if native is None:
        return None
    adopted = submission.replace(native=native)
    adopted.write(paths)
    return adopted
