"""What was asked: a job file, and flags that override it, with where each setting came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainjob.cluster.errors import JobError
from trainjob.cluster.faults import Fault, faults
from trainjob.cluster.job import EXCLUSIVE, Job
from trainjob.cluster.reading import read_job

# These hold names of their own: flags and file are merged name by name.
_NAMED = ("set", "env", "poprun")
_PARTNER = {one: other for pair in EXCLUSIVE for one, other in (pair, pair[::-1])}


@dataclass(frozen=True)
class Asked:
    """A job, and for each setting that was given its origin: "flag --hosts", "job file mine.yaml".

    Keys of `origins` are those of the job, and set.NAME and env.NAME. What is not in it is a default.
    """

    job: Job
    origins: Mapping[str, str]


def merge_job(file: Path | None, flags: Mapping[str, object]) -> Asked:
    """Return the job that `file` and `flags` ask for; a flag that is None or holds nothing was not given.

    A flag overrides the file's key, and the key that excludes it: global_batch puts accumulation aside.
    Raises JobError, naming the flag, or the file and line.
    """
    given = {key: _plain(value) for key, value in flags.items() if value is not None and not _holds_nothing(value)}
    _check_flags(given)
    asked = _from_file(file)
    merged = overridden(asked, given)
    origins = dict.fromkeys(by_setting(asked), f"job file {file.name}" if file else "")
    origins |= {setting: f"flag {_flag(setting)}" for setting in by_setting(given)}
    kept = {setting: origin for setting, origin in origins.items() if setting.partition(".")[0] in merged}
    return Asked(Job.model_validate(merged), kept)


def overridden(asked: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Return `asked` with what is `given` in its place; a key puts aside the one that excludes it."""
    merged = dict(asked)
    for key, value in given.items():
        merged.pop(_PARTNER.get(key, ""), None)
        merged[key] = {**_mapping(merged.get(key)), **_mapping(value)} if key in _NAMED else value
    return merged


def _holds_nothing(value: object) -> bool:
    return isinstance(value, list | tuple | Mapping) and not value


def _plain(value: object) -> object:
    """Return lists and dictionaries where a command line has tuples and other mappings."""
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _from_file(file: Path | None) -> dict[str, object]:
    if file is None:
        return {}
    values = read_job(file).model_dump(exclude_unset=True)
    return {key: value for key, value in values.items() if value is not None}


def by_setting(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every setting in `values`, with one for each name in set, env and poprun: set.width."""
    plain = {key: value for key, value in values.items() if key not in _NAMED}
    named = {f"{key}.{name}": value for key in _NAMED for name, value in _mapping(values.get(key)).items()}
    return plain | named


def _check_flags(given: dict[str, object]) -> None:
    try:
        Job.model_validate(given)
    except ValidationError as refused:
        found = faults(Job, given, refused, lambda _path: None)
        raise JobError("\n".join(_of_a_flag(fault) for fault in found)) from None


def _of_a_flag(fault: Fault) -> str:
    key, *rest = fault.path
    if key == "command":
        place = f", word {int(rest[0]) + 1}" if rest else ""
        return f"{_flag('command')}{place}: {fault.text}"
    return f"{_flag('.'.join(str(step) for step in fault.path))}: {fault.text}"


def _flag(setting: str) -> str:
    """Return how a setting is written on the command line."""
    if setting == "command":
        return "-- command"
    key, _, name = setting.partition(".")
    return f"--{key} {name}" if name else f"--{key.replace('_', '-')}"
