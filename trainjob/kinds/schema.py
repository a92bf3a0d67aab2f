"""The JSON Schemas of cluster and job files, for editors, and the reference page of settings, for readers."""

from __future__ import annotations

from typing import Annotated, Any, Union

from pydantic import Field, TypeAdapter

from trainjob.cluster.job import Job
from trainjob.cluster.validation import model_of
from trainjob.contract import settings
from trainjob.contract.settings import Row
from trainjob.kinds.table import KINDS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def cluster_schema() -> dict[str, Any]:
    """Return the schema of a cluster file, whose key `kind` decides the other keys."""
    kinds: Any = Union[tuple(model_of(kind.MODEL) for kind in KINDS.values())]  # noqa: UP007 - made from a tuple
    of_its_kind: TypeAdapter[Any] = TypeAdapter(Annotated[kinds, Field(discriminator="kind")])
    return {"$schema": _DIALECT, "title": "trainjob cluster file", **of_its_kind.json_schema()}


def job_schema() -> dict[str, Any]:
    """Return the schema of a job file (--job)."""
    return {"$schema": _DIALECT, **model_of(Job).model_json_schema(), "title": "trainjob job file"}


def settings_page() -> str:
    """Return the reference page of a job's settings, in Markdown: docs/reference/settings.md."""
    lines = ["# Settings of a job", "", "Each is a flag of every command that takes a job, and a key of a job file."]
    listed = list(settings.rows().values())
    for group in settings.GROUPS:
        lines += ["", f"## {group}", "", "| flag | key | type | default | what |", "|---|---|---|---|---|"]
        lines += [_table_row(row) for row in listed if row.facts.group == group]
    return "\n".join([*lines, ""])


def _table_row(row: Row) -> str:
    is_command = row.facts.form == "words"
    kind = "words" if is_command else "NAME=VALUE" if row.is_mapping else row.type_in_words.replace("|", "\\|")
    flag = "-- COMMAND…" if is_command else row.flag
    return f"| `{flag}` | `{row.name}` | {kind} | {row.default_in_words} | {row.facts.help} |"
