"""The Python stacks of a run's ranks, which their launchers write down on request."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from trainjob.backends.base import place_of
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines import remote_files
from trainjob.machines.machine import Machine
from trainjob.observe.status import between_looks_s, status
from trainjob.records import job as jobs
from trainjob.records import stacks as stack_records
from trainjob.records.stacks import RankStacks

_MOST_NAMED = 8


@dataclass(frozen=True)
class Answers:
    """The stacks of those ranks that answered, in order; or, of a run that does not run, those that were kept last."""

    stacks: list[RankStacks]
    are_current: bool
    limit_s: float = 0.0

    def refuse_silent(self, paths: RunPaths, rank: int | None = None) -> None:
        """Raise UserError where a rank, or this `rank`, has not answered."""
        wanted = _ranks(paths) if rank is None else [rank]
        silent = sorted(set(wanted) - {one.rank for one in self.stacks})
        if not silent:
            return
        named = ", ".join(map(str, silent[:_MOST_NAMED])) + (" …" if len(silent) > _MOST_NAMED else "")
        if not self.are_current:
            raise UserError(
                f"of run {paths.id}, no stacks of rank {named} were kept",
                f"see its output: trainjob logs {paths.id} --rank {silent[0]}",
            )
        raise UserError(
            f"rank {named} of run {paths.id} did not answer within {self.limit_s:g} s",
            "Its launcher has not begun, its host is frozen, or an earlier version of trainjob submitted the run",
        )


def of_run(paths: RunPaths, limit_s: float) -> Answers:
    """Return where the ranks of a run are, of those that answer within `limit_s`.

    Of a run that does not run, what was kept last. Raises UserError where nothing is known.
    """
    now = status(paths)
    if now.state == states.PENDING:
        raise UserError(
            f"run {paths.id} waits to run: its ranks have not begun",
            f"`trainjob status {paths.id}` says what it waits for",
        )
    machine, folder = place_of(paths)
    if now.state == states.RUNNING:
        word = f"ask-{secrets.token_hex(8)}"
        request = f"{folder}/{paths.stacks_request.name}"
        # Moved into place, so that no launcher reads half a word.
        machine.run(["sh", "-c", 'printf "%s\\n" "$1" >"$2.part" && mv -f -- "$2.part" "$2"', "sh", word, request])
        deadline = time.monotonic() + limit_s
        while True:
            answers = [one for one in _recorded(paths, machine, folder) if one.word == word]
            if len(answers) == len(_ranks(paths)) or time.monotonic() > deadline:
                return Answers(answers, are_current=True, limit_s=limit_s)
            time.sleep(between_looks_s(paths))
    kept = _recorded(paths, machine, folder)
    if not kept:
        raise UserError(
            f"run {paths.id} does not run ({now.state}), and no stacks of its ranks were kept",
            f"see its output: trainjob logs {paths.id}",
        )
    return Answers(kept, are_current=False)


def _recorded(paths: RunPaths, machine: Machine, folder: str) -> list[RankStacks]:
    """Return what launchers wrote down last of each rank, in order."""
    names = [f"{folder}/{paths.rank_stacks(rank).relative_to(paths.folder)}" for rank in _ranks(paths)]
    parsed = (stack_records.parse(text) for text in remote_files.present(machine, names).values())
    return sorted((one for one in parsed if one is not None), key=lambda one: one.rank)


def _ranks(paths: RunPaths) -> range:
    return range(jobs.read(paths.job).plan.topology.instances)
