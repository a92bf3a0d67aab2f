"""sacct: how jobs ended that squeue has forgotten. Used where it works, and never needed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainjob.contract.errors import UserError
from trainjob.submit.machine import Machine
from trainjob.submit.slurm import commands

# An overloaded data base may take minutes: what it knows is not worth that.
LIMIT_S = 10
# A job, or a task of an array; neither a step nor a part of a heterogeneous job.
_JOB = re.compile(r"[0-9]+(_[0-9]+)?")
# Where there is `timeout`, the hanging sacct ends over there, too.
_SACCT = """
if command -v timeout >/dev/null; then set -- timeout -k 1 "$@"; else shift; fi
exec "$@"
"""


def states_of(machine: Machine, job_ids: Sequence[str]) -> dict[str, str]:
    """Return the state of each job that accounting knows; nothing at all where it is off, errs or hangs."""
    asked = [
        "sacct",
        "--noheader",
        "--parsable2",
        "--allocations",
        "--format=JobID,State",
        f"--jobs={','.join(job_ids)}",
    ]
    try:
        said = commands.call(machine, ["sh", "-c", _SACCT, "sh", str(LIMIT_S), *asked], timeout_s=2.0 * LIMIT_S).text
    except UserError:
        return {}
    return dict(parse(said))


def parse(text: str) -> list[tuple[str, str]]:
    """Return job ids and states from what sacct has printed."""
    pairs = [line.strip().split("|", 1) for line in text.splitlines() if "|" in line]
    return [(job_id, state) for job_id, state in pairs if _JOB.fullmatch(job_id) and state]
