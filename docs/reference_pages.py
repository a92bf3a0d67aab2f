"""The reference pages, from the code."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
import typer.main

from batchfiles.rules.codes import CODES, Severity
from docs import agents_page, machines_page, variables
from trainjob.cli.command import OTHER, Command
from trainjob.cli.main import app
from trainjob.contract import environment, settings
from trainjob.contract.errors import SEVERITIES
from trainjob.contract.settings import SettingRow
from trainjob.kinds.schema import cluster_schema
from trainjob.records import causes


def reference() -> dict[str, str]:
    """Return the text of each generated page by its path below docs/."""
    return {
        "reference/settings.md": _settings(),
        "reference/commands.md": _page("Commands", _commands()),
        "reference/cluster-file.md": _page("Cluster file", _cluster_file(cluster_schema())),
        "reference/environment.md": _page("Environment", _environment()),
        "reference/causes.md": _page("Causes of failure", _causes()),
        "reference/batch-codes.md": _page("Faults of batch files", _batch_codes()),
        "reference/machines.md": _page("Public machines", machines_page.page()),
        "llms.txt": agents_page.pages(),
        "../SKILL.md": agents_page.skill(),
        "reference/problem.schema.json": json.dumps(problem_schema(), indent=1) + "\n",
    }


def problem_schema() -> dict[str, Any]:
    """Return the JSON schema of what `--json` prints of each problem, whichever command finds it."""
    about = {
        "code": "A stable word for machines.",
        "severity": "How much it matters.",
        "where": "A line of a file, a key, a host, a rank and its update; empty where the text says all.",
        "text": "What was read, and the rule that it breaks. Texts may change.",
        "cure": "What to do about it.",
    }
    properties: dict[str, Any] = {name: {"type": "string", "description": text} for name, text in about.items()}
    properties["severity"]["enum"] = list(SEVERITIES)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A problem that trainjob reports",
        "type": "object",
        "required": list(properties),
        "properties": properties,
    }


def _page(title: str, lines: Iterator[str]) -> str:
    return "\n".join([f"# {title}", "", *lines, ""])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"


def _settings() -> str:
    lines = ["# Settings of a job", "", "Each is a flag of every command that takes a job, and a key of a job file."]
    listed = list(settings.rows().values())
    for group in settings.GROUPS:
        lines += ["", f"## {group}", "", "| flag | key | type | default | what |", "|---|---|---|---|---|"]
        lines += [_setting_row(row) for row in listed if row.facts.group == group]
    return "\n".join([*lines, ""])


def _setting_row(row: SettingRow) -> str:
    is_command = row.facts.form == "words"
    kind = "words" if is_command else "NAME=VALUE" if row.is_mapping else row.type_in_words.replace("|", "\\|")
    flag = "-- COMMAND…" if is_command else "" if row.facts.file_only else row.flag
    return f"| {flag and f'`{flag}`'} | `{row.name}` | {kind} | {row.default_in_words} | {row.facts.help} |"


def _commands() -> Iterator[str]:
    yield "The settings of a job, which many commands take, are [listed apart](settings.md)."
    yield ""
    yield "Exit codes: 0 done; 1 you or the cluster can fix it; 2 wrong usage; 3 a bug in trainjob (the message names a"
    yield "log file); 4 a controller or host is out of reach, and later it may succeed; 130 interrupted. A run's own"
    yield "exit code is in `trainjob status`."
    for name, command in _walk(typer.main.get_command(app), "trainjob"):
        usage = " ".join(command.collect_usage_pieces(typer.Context(command)))
        yield from ("", f"## {name}", "", f"`{name} {usage}`", "", inspect.cleandoc(command.help or ""), "")
        rows = [row for parameter in command.params if (row := _option(parameter, typer.Context(command))) is not None]
        yield from _table(("option", "value", "default", "what"), rows)
        yield from ("", *(f"    {line}" for line in command.examples))


def _walk(command: Any, name: str) -> Iterator[tuple[str, Command]]:
    if isinstance(command, Command):
        yield name, command
    else:
        context = typer.Context(command)
        for word in command.list_commands(context):
            yield from _walk(command.get_command(context, word), f"{name} {word}")


def _option(parameter: Any, context: typer.Context) -> tuple[str, str, str, str] | None:
    """Return flags, value, default and help of a command's own parameter; a job's settings have a page of their own."""
    if parameter.rich_help_panel not in (None, OTHER):
        return None
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("-"))
    value, default = parameter.make_metavar(context), parameter.default
    is_flag = getattr(parameter, "is_flag", False)
    shown = "" if is_flag or default in (None, (), []) else f"`{default}`"
    return names or f"`{value}`", "" if is_flag or not names else f"`{value}`", shown, parameter.help or ""


def _cluster_file(schema: Any) -> Iterator[str]:
    parts = schema["$defs"]
    kinds = [branch["$ref"].removeprefix("#/$defs/") for branch in schema["oneOf"]]
    yield "A cluster file has one of these kinds. `trainjob cluster init` drafts a file, and `trainjob cluster schema`"
    yield "prints this as a JSON schema."
    for name in kinds:
        kind = parts[name]["properties"]["kind"]["const"]
        yield from ("", f"## kind: {kind}", "", parts[name].get("description", ""), "")
        yield from _keys(parts[name])
    for name, part in parts.items():
        if name not in kinds and "properties" in part:
            yield from ("", f"## {name}", "", part.get("description", ""), "")
            yield from _keys(part)


def _keys(part: Any) -> Iterator[str]:
    required = part.get("required", ())
    rows = []
    for key, about in part["properties"].items():
        default = "required" if key in required else _default(about.get("default"))
        rows.append((f"`{key}`", _type(about), default, about.get("description", "")))
    yield from _table(("key", "type", "default", "what"), rows)


def _type(about: Any) -> str:
    if "$ref" in about:
        name = about["$ref"].removeprefix("#/$defs/")
        return f"[{name}](#{name.lower()})"
    if "const" in about:
        return f"`{about['const']}`"
    if "enum" in about:
        return ", ".join(f"`{value}`" for value in about["enum"])
    if "anyOf" in about:
        return " or ".join(_type(one) for one in about["anyOf"] if one.get("type") != "null")
    if about.get("type") == "array":
        return f"list of {_type(about['items'])}" if "items" in about else "list"
    return {"object": "mapping", "integer": "whole number", "string": "text", "boolean": "true or false"}.get(
        about.get("type", ""), str(about.get("type", "any"))
    )


def _default(value: Any) -> str:
    if value is None or value in ({}, [], ()):
        return "–"
    if isinstance(value, dict):
        return "see there"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _environment() -> Iterator[str]:
    yield "## What you may set"
    yield ""
    yield from _variables(variables.YOURS)
    yield ""
    yield "## What every rank is given"
    yield ""
    yield "The names that torchrun uses, whatever starts the ranks, and some of ours:"
    yield ""
    yield from _variables({**_RANK_NAMES, **variables.RANKS})
    yield ""
    yield "## What a rehearsal redirects"
    yield ""
    yield "Job scripts read these variables with a default. A real `submit` refuses to start while one of them is set."
    yield ""
    yield from _variables(environment.REDIRECTS)
    yield ""
    yield "## What stand-ins tell each other"
    yield ""
    yield "A rehearsal sets these. They may change at any time."
    yield ""
    yield from _variables(variables.REHEARSALS)
    yield ""
    yield "## What a job script sets for itself"
    yield ""
    yield "The shell library keeps to names that begin with TRAINJOB_, so that no variable of yours changes. They may"
    yield f"change at any time: {', '.join(f'`TRAINJOB_{name}`' for name in variables.LIBRARY)}."


def _variables(texts: Mapping[str, str]) -> Iterator[str]:
    yield from _table(("name", "what"), [(f"`{name}`", text) for name, text in texts.items()])


_RANK_NAMES = {
    environment.RANK: "the number of this rank, from 0",
    environment.LOCAL_RANK: "its number on this host, from 0",
    environment.WORLD_SIZE: "the number of ranks",
    environment.LOCAL_WORLD_SIZE: "the number of ranks on this host",
    environment.MASTER_ADDR: "the address of rank 0's host",
    environment.MASTER_PORT: "the port of the rendezvous there",
}


def _causes() -> Iterator[str]:
    yield "`trainjob status`, `submit --follow` and `report` name the cause of a run that ended early, and what to do"
    yield "about it. The first row that fits is the cause."
    yield ""
    rows = [
        (
            f"`{row.code}`",
            row.text % {"who": "a rank", "node": "NODE", "why": "…", "program": "PROGRAM"},
            row.cure,
            "yes" if row.resume else "no",
        )
        for row in causes.ROWS
    ]
    yield from _table(("code", "cause", "cure", "`resume` can help"), rows)


_MEANS = {
    Severity.ERROR: "The script does not do what its author wants. `trainjob doctor` exits with 1.",
    Severity.WARNING: "It works today, and fails on some day or at some site. With `--strict`, doctor exits with 1.",
    Severity.NOTE: "Worth knowing.",
}


def _batch_codes() -> Iterator[str]:
    yield "`trainjob doctor` finds these in [your own batch file](../your-batch-file.md). `--explain CODE` prints one."
    yield "A comment `# trainjob: ignore=CODE` in the file switches one off."
    for severity, meaning in _MEANS.items():
        yield from ("", f"## {severity.value.capitalize()}s", "", meaning, "")
        rows = [(f"`{row.name}`", row.happens, row.cure) for row in CODES.values() if row.severity is severity]
        yield from _table(("code", "what happens", "cure"), rows)
