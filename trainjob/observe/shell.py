"""A shell, or a command, next to a rank of a run: on its host, in its folder, with its environment."""

from __future__ import annotations

from collections.abc import Sequence

from trainjob.backends import registry
from trainjob.backends.base import place_of
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds import table
from trainjob.machines.processes import entering
from trainjob.observe.status import status
from trainjob.records import job as jobs

_ENGINES = ("docker", "podman")


def command(paths: RunPaths, rank: int, words: Sequence[str], *, terminal: bool) -> list[str]:
    """Return the command that runs `words`, or a shell where there are none, next to rank `rank`. Raises UserError.

    `terminal`: it gets one.
    """
    record = jobs.read(paths.job)
    record.plan.topology.refuse_unknown_rank(paths.id, rank)
    now = status(paths)
    submission = now.submission
    if now.state != states.RUNNING or submission is None or submission.native is None:
        raise UserError(
            f"run {paths.id} is {now.state}: a shell is opened next to a rank that runs",
            f"look at its output: trainjob logs {paths.id}",
        )
    runtime = table.recorded_cluster(record).container.runtime
    machine, folder = place_of(paths)
    entered = entering(runtime if runtime in _ENGINES else "", folder, rank, words)
    there = registry.get(submission.backend).next_to(paths, submission.native, rank, entered, terminal=terminal)
    return machine.interactive(there, terminal=terminal)
