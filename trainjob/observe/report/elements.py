"""The settings of one element of an array that differ from those of the whole array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.cluster.merging import by_setting
from trainjob.contract.paths import RunPaths
from trainjob.records import job as jobs


def own(element: RunPaths) -> dict[str, Any]:
    """Return the settings that differ from the whole array's, by key: learning_rate, set.width, env.NAME, arguments."""
    return differing(*(jobs.read(paths.job).request.job for paths in (element, element.whole)))


def differing(one: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the job `one`, as requested, that `whole` lacks or has with another value."""
    mine, all_of = by_setting(one), by_setting(whole)
    settings = {key: value for key, value in mine.items() if all_of.get(key) != value}
    if "command" in settings:
        settings["arguments"] = settings.pop("command")[len(all_of.get("command") or ()) :]
    return settings


def in_words(settings: Mapping[str, Any]) -> str:
    """Return settings as one line: learning_rate 0.1 · set.width 32."""
    return " · ".join(
        f"{key} {' '.join(value) if isinstance(value, list) else value}" for key, value in settings.items()
    )
