"""The elements of an array: their run directories, their combined state, and the settings in which each differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trainjob.cluster.slurm_text import ranges
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths

# The state of the array is the first of these that any element has: while one element is active, so is the array.
_ORDER = (
    *(states.RUNNING, states.REQUEUED, states.PENDING),
    *(states.FAILED, states.LOST, states.TIMEOUT, states.CANCELLED, states.STOPPED, states.COMPLETED),
)


def numbers_of(elements: Sequence[RunPaths]) -> list[int]:
    """Return the numbers of these elements."""
    return [paths.element for paths in elements if paths.element is not None]


def element(paths: RunPaths, number: int) -> RunPaths:
    """Return one element of an array. Raises UserError if the array has no element with this number."""
    numbers = numbers_of(paths.elements())
    if not numbers:
        raise UserError(f"run {paths.id} is not an array, so it has no element {number}", f"Name the run: {paths.id}")
    if number not in numbers:
        raise UserError(f"run {paths.id} has no element {number}", f"it has {ranges(numbers)}")
    return paths.of_element(number)


def refuse_whole(paths: RunPaths, command: str) -> None:
    """Raise UserError for a whole array, because `command` takes a single run."""
    of_array = paths.elements()
    if of_array:
        raise UserError(
            f"run {paths.id} is an array with elements {ranges(numbers_of(of_array))}",
            f"Name one of them, as in trainjob {command} {of_array[0].id}",
        )


def overall(words: Sequence[str]) -> str:
    """Return the state of an array whose elements are in these states."""
    return next(word for word in _ORDER if word in words)


def counted(words: Sequence[str]) -> str:
    """Return how many elements are in which state: 7 of 10 elements COMPLETED, 2 RUNNING, 1 PENDING."""
    counts = Counter(words)
    first, *others = [word for word in (states.COMPLETED, *_ORDER[:-1]) if counts[word]]
    return ", ".join(
        [f"{counts[first]} of {len(words)} elements {first}", *(f"{counts[word]} {word}" for word in others)]
    )


def own_settings(element: RunPaths) -> dict[str, Any]:
    """Return the settings that differ from the whole array's, by key: learning_rate, set.width, env.NAME, arguments."""
    from trainjob.records import job as jobs  # `list` does without

    return differing(*(jobs.read(paths.job).request.job for paths in (element, element.whole)))


def differing(one: Mapping[str, object], whole: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings of the job `one`, as requested, that `whole` lacks or has with another value."""
    from trainjob.cluster.merging import by_setting  # loads a YAML parser

    mine, all_of = by_setting(one), by_setting(whole)
    settings = {key: value for key, value in mine.items() if all_of.get(key) != value}
    if "command" in settings:
        settings["arguments"] = settings.pop("command")[len(all_of.get("command") or ()) :]
    return settings


def in_words(settings: Mapping[str, object]) -> str:
    """Return settings as one line: learning_rate 0.1 · set.width 32."""
    return " · ".join(
        f"{key} {' '.join(value) if isinstance(value, list) else value}" for key, value in settings.items()
    )
