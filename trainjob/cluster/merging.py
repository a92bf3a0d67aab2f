"""A job from its file and the flags that override it, with the origin of each setting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trainjob.cluster.faults import InvalidError, JobError
from trainjob.cluster.job import Job
from trainjob.cluster.reading import read_job
from trainjob.contract import settings
from trainjob.contract.errors import Problem

# These settings are mappings: flags and file are merged name by name.
_NAMED = tuple(row.name for row in settings.rows().values() if row.is_mapping)
_PARTNER = {one: other for pair in settings.EXCLUSIVE for one, other in (pair, pair[::-1])}


class MergedJob(NamedTuple):
    """A job, and the origin of each setting that was given: "flag --hosts", "job file mine.yaml".

    Keys of `origins` are the job's keys, set.NAME and env.NAME. Settings without an origin have their defaults.
    """

    job: Job
    origins: Mapping[str, str]


def merge_job(file: Path | None, flags: Mapping[str, object]) -> MergedJob:
    """Return the job that `file` and `flags` describe; flags that are None or empty were not given.

    A flag overrides the same key of the file, and the key that excludes it: --global-batch overrides accumulation.
    Raises JobError, which names the flag, or the file and line.
    """
    given: dict[str, object] = {}
    for key, value in flags.items():
        if value is not None and value not in ((), [], {}):
            # As a file has them: lists and dictionaries.
            plain = dict(value) if isinstance(value, Mapping) else value
            given[key] = list(plain) if isinstance(plain, tuple) else plain
    from_flags = dict(Job.spelled_out(given))
    try:
        Job.of(from_flags)
    except InvalidError as refused:
        problems = []
        for fault in refused.faults:
            key, *rest = (str(step) for step in fault.path)
            where = _flag(key) if key == "command" else _flag(".".join((key, *rest)))
            where += f", word {int(rest[0]) + 1}" if key == "command" and rest else ""
            problems.append(Problem(JobError.code, f"{where}: {fault.text}", fault.cure, where=where))
        raise JobError.of_all(problems) from None
    from_file = read_job(file).given() if file is not None else {}
    in_file = {key: value for key, value in from_file.items() if value is not None}
    merged = overridden(in_file, from_flags)
    origins = dict.fromkeys(by_setting(in_file), f"job file {file.name}" if file else "")
    origins |= {setting: f"flag {_flag(setting)}" for setting in by_setting(from_flags)}
    kept = {setting: origin for setting, origin in origins.items() if setting.partition(".")[0] in merged}
    return MergedJob(Job.of(merged), kept)


def overridden(settings_below: Mapping[str, object], settings_above: Mapping[str, object]) -> dict[str, object]:
    """Return both settings merged: those above override those below, and remove the settings that they exclude."""
    merged = dict(settings_below)
    if "hosts" in settings_above:
        merged.pop("least_hosts", None)  # a range of hosts is one value
    for key, value in settings_above.items():
        merged.pop(_PARTNER.get(key, ""), None)
        merged[key] = {**_mapping(merged.get(key)), **_mapping(value)} if key in _NAMED else value
    return merged


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def by_setting(values: Mapping[str, object]) -> dict[str, Any]:
    """Return every setting in `values`, with the names in set, env and poprun as separate settings: set.width."""
    plain = {key: value for key, value in values.items() if key not in _NAMED}
    named = {f"{key}.{name}": value for key in _NAMED for name, value in _mapping(values.get(key)).items()}
    return plain | named


def _flag(setting: str) -> str:
    """Return the flag that states a setting on the command line."""
    if setting == "command":
        return "-- command"
    key, _, name = setting.partition(".")
    return f"{settings.flag(key)} {name}" if name else settings.flag(key)
