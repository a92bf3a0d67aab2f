"""The options of doctor that stand in a file: .trainjob-doctor.toml, or [tool.trainjob.doctor] of pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import typer

from trainjob.contract.errors import did_you_mean, joined
from trainjob.records.files import DamagedError, read_small
from trainjob.records.own import put_by_another

_FILE, _PROJECT = ".trainjob-doctor.toml", "pyproject.toml"
_MOST_BYTES = 1 << 20


class UsageError(typer.BadParameter):
    """A command that was called wrongly: it ends with 2."""

    def __init__(self, text: str, cure: str = "") -> None:
        super().__init__(joined(text, cure))


@dataclass(frozen=True)
class DoctorSettings:
    """The settings that a file has, and the command line does not."""

    cluster: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    strict: bool = False


def read(folder: Path) -> DoctorSettings:
    """Return the settings for files of `folder`, from the nearest file above it. Raises UsageError for a wrong one."""
    for path in (place / name for place in (folder, *folder.parents) for name in (_FILE, _PROJECT)):
        if not path.is_file() or put_by_another(path):
            continue
        stated: Any = _parsed(path)
        for table in ("tool", "trainjob", "doctor") if path.name == _PROJECT else ():
            stated = stated.get(table) if isinstance(stated, dict) else None
        if stated is not None:
            return _settings(path, stated)
    return DoctorSettings()


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_small(path, _MOST_BYTES).decode())
    except ValueError as error:
        if path.name == _PROJECT:
            return {}
        what = "can't be used: it" if isinstance(error, DamagedError) else "is no TOML:"
        raise UsageError(f"{path} {what} {error}", "correct it") from None


def _settings(path: Path, stated: Any) -> DoctorSettings:
    known = {field.name: field.type for field in fields(DoctorSettings)}
    if not isinstance(stated, dict):
        raise UsageError(f"{path}: tool.trainjob.doctor is {stated!r}", "make it a table")
    for name, value in stated.items():
        if name not in known:
            raise UsageError(
                f"{path}: doctor has no setting {name}", f"{did_you_mean(name, known)}it has {', '.join(known)}"
            )
        right = {"cluster": str, "strict": bool}.get(name, list)
        items = value if isinstance(value, list) else ()
        if not isinstance(value, right) or not all(isinstance(one, str) for one in items):
            raise UsageError(
                f"{path}: {name} is {value!r}", f"give a {right.__name__}{' of texts' if right is list else ''}"
            )
    lists = {name: codes(stated.get(name)) for name in ("select", "ignore")}
    return DoctorSettings(stated.get("cluster"), lists["select"], lists["ignore"], stated.get("strict", False))


def codes(given: Iterable[str] | None) -> tuple[str, ...]:
    """Return the codes in lists with commas. Raises UsageError for one that there is not."""
    from batchfiles.rules.codes import CODES

    names = tuple(name.strip() for text in given or () for name in text.split(",") if name.strip())
    for name in names:
        if name not in CODES:
            cure = did_you_mean(name, CODES) or "docs/reference/batch-codes.md lists all"
            raise UsageError(f'no fault is called "{name}"', cure)
    return names
