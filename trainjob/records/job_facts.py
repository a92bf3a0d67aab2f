"""The facts of job.json that a launcher needs, read without checking the whole record.

The ranks' own runtime checks it. The dataclasses of the record and the checks of their types would take a launcher
longer to load than everything else that it does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from trainjob.contract.paths import CONTRACT
from trainjob.records.files import DamagedError, load_json


class JobFacts(NamedTuple):
    """Some facts of a job."""

    command: Optional[List[str]]  # None for a task
    environment: Dict[str, str]
    trains: bool  # a task of our runtime
    uses_data: bool  # for a command, which may use any, True
    stall_timeout_s: Optional[float]  # as the job states it
    exit_grace_s: Optional[float]  # as the job states it, as the next two
    on_stall: Optional[str]
    idle_timeout_s: Optional[float]
    progress: Optional[str]  # the expression by which a command's progress is read, as the job states it
    python_environment: Dict[str, str]  # what the ranks run in, as the job states it; empty: the launcher's own
    same_packages: Optional[str]  # as the cluster file states it
    once: Mapping[str, List[Dict[str, Any]]]  # the steps before ranks, as the job states them
    roles: Mapping[str, Mapping[str, Any]]  # as the job states them


def read(path: Path) -> JobFacts:
    """Return the facts in the file `path`. Raises ContractError."""
    try:
        return _facts(load_json(path))
    except (OSError, DamagedError, LookupError, TypeError, AttributeError, ValueError):
        from trainjob.records import job

        job.read(path)  # it says what is wrong
        return _facts(load_json(path))  # the file could not be read a moment ago


def _facts(fields: Mapping[str, Any]) -> JobFacts:
    if fields["contract"] != CONTRACT:
        raise ValueError(fields["contract"])
    train, command, job = fields["train"], fields["command"], fields["asked"]["job"]
    progress, environment = job.get("progress"), fields.get("environment", {})
    seconds = {name: job.get(name) for name in ("stall_timeout_s", "exit_grace_s", "idle_timeout_s")}
    return JobFacts(
        command=None if command is None else [_text(word) for word in command],
        environment={name: _text(value) for name, value in environment.items()},
        trains=train is not None,
        uses_data=train is None or train["data"] is not None,
        **{name: None if value is None else float(value) for name, value in seconds.items()},
        on_stall=job.get("on_stall"),
        progress=None if progress is None else _text(progress),
        python_environment={name: _text(value) for name, value in job.get("environment", {}).items()},
        same_packages=fields["asked"]["cluster"]["file"].get("same_packages"),
        once=job.get("once", {}),
        roles=job.get("roles", {}),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
