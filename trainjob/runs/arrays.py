"""The tasks of an array: found below their run, and counted together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trainjob.cluster.array import ranges
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import TASKS, RunPaths

# What the whole is called, by the first of these that any task is; while one is active, so is the whole.
_ORDER = (
    *(states.RUNNING, states.REQUEUED, states.PENDING),
    *(states.FAILED, states.LOST, states.TIMEOUT, states.CANCELLED, states.STOPPED, states.COMPLETED),
)


def tasks(paths: RunPaths) -> list[RunPaths]:
    """Return the tasks of an array in the order of their numbers; none where the run is no array."""
    if paths.task is not None:
        return []
    try:
        found = [RunPaths(folder) for folder in (paths.folder / TASKS).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((one for one in found if one.task is not None), key=lambda one: one.task or 0)


def task(paths: RunPaths, number: int) -> RunPaths:
    """Return one task of an array. Raises UserError where it has none of that number."""
    known = [one.task for one in tasks(paths) if one.task is not None]
    if number not in known:
        has = f"it has tasks {ranges(known)}" if known else "it is no array"
        raise UserError(f"run {paths.id} has no task {number}: {has}")
    return paths.of_task(number)


def refuse_whole(paths: RunPaths, command: str) -> None:
    """Raise UserError for a whole array, where `command` is for one run."""
    found = tasks(paths)
    if found:
        numbers = ranges([one.task for one in found if one.task is not None])
        raise UserError(
            f"run {paths.id} is an array of tasks {numbers}: name one, as in trainjob {command} {found[0].id}"
        )


def overall(words: Sequence[str]) -> str:
    """Return the state of an array whose tasks are in these states."""
    return next(word for word in _ORDER if word in words)


def counted(words: Sequence[str]) -> str:
    """Return how many tasks are in which state: 7 of 10 tasks COMPLETED, 2 RUNNING, 1 PENDING."""
    counts = Counter(words)
    first, *others = [word for word in (states.COMPLETED, *_ORDER[:-1]) if counts[word]]
    return ", ".join([f"{counts[first]} of {len(words)} tasks {first}", *(f"{counts[word]} {word}" for word in others)])
