"""The flags that describe a job, shared by every command that takes one.

They are made from the rows of `trainjob.contract.settings`, which takes no pydantic: `--help` must stay quick.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from trainjob.cli import complete
from trainjob.contract.settings import HOST_RANGE, Row, rows
from trainjob.requests.options import JobOptions

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_FRACTION = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")

# Of the commands that write a script to stay.
AllowSecretEnv = Annotated[
    bool, typer.Option("--allow-secret-env", help="Let --env set a variable whose name looks like a secret's.")
]

_HOST_COUNT = "host-count"

# Neither a value nor a list of NAME=VALUE: the command stands after --.
_WORDS = "command"


def takes_a_job(
    command: Callable[..., None], *, without: Iterable[str] = (), groups_without: Iterable[str] = ()
) -> Callable[..., None]:
    """Give `command` the flags of a job; its first parameter receives them as JobOptions.

    Left out are the settings named by `without`, those in the groups of `groups_without` (they would have no effect),
    and what the command declares itself.
    """
    left_out = {*without, *(row.name for row in rows().values() if row.facts.group in set(groups_without))}

    @functools.wraps(command)
    def wrapper(**arguments: Any) -> None:
        own = {name: arguments.pop(name) for name in list(arguments) if name in own_parameters}
        command(_collected(arguments), **own)

    _, *rest = inspect.signature(command, eval_str=True).parameters.values()
    own_parameters = {parameter.name for parameter in rest}
    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in rest]
    shared = [parameter for parameter in _parameters() if parameter.name not in own_parameters | left_out]
    wrapper.__signature__ = inspect.Signature([*shared, *keyword_only])  # type: ignore[attr-defined] # read by typer
    wrapper.__annotations__ = {}
    del wrapper.__wrapped__  # or inspect would look through to `command`
    return wrapper


def _parameters() -> list[inspect.Parameter]:
    return [
        _parameter(
            "words", list[str], typer.Argument(metavar="[-- COMMAND…]", help="A command of your own, after --.")
        ),
        _parameter(
            "cluster",
            str,
            typer.Option("--cluster", "-c", help="Cluster file: a name or a path.", autocompletion=complete.clusters),
            "local",
        ),
        _parameter("job_file", Path, typer.Option("--job", help="Job file; flags override it.")),
        *(_of_setting(row) for row in rows().values() if row.name != _WORDS),
        _parameter("project", Path, typer.Option("--project", help="Top folder of your project.")),
        _parameter(
            "untracked", bool, typer.Option("--untracked", help="Copy files that git does not track, too."), False
        ),
    ]


def _of_setting(row: Row) -> inspect.Parameter:
    is_text = not isinstance(row.type, type) or row.facts.form == _HOST_COUNT
    kind = list[str] if row.is_mapping else str if is_text else row.type
    choices = f" One of {', '.join(row.choices)}." if row.choices else ""
    option = typer.Option(
        row.flag,
        metavar="NAME=VALUE" if row.is_mapping else None,
        help=f"{row.facts.help}{choices} Default: {row.default_in_words}.",
        rich_help_panel=row.facts.group,
        autocompletion=_completion(row),
    )
    return _parameter(row.name, kind, option)


def _completion(row: Row) -> Callable[..., list[str]] | None:
    named: dict[str, Callable[..., list[str]]] = {"task": complete.tasks, "set": complete.options_of_task}
    return named.get(row.name) or (complete.one_of(row.choices) if row.choices else None)


def _parameter(name: str, kind: Any, option: Any, default: Any = None) -> inspect.Parameter:
    annotation = kind if default is not None else kind | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, option]
    )


def _collected(arguments: Mapping[str, Any]) -> JobOptions:
    values: dict[str, Any] = {}
    for row in rows().values():
        value = arguments.get(row.name)
        if value is not None and not (row.is_mapping and not value):
            values[row.name] = dict(_pair(text, row) for text in value) if row.is_mapping else _value(value, row)
    words = tuple(arguments["words"] or ())
    if words:
        values[_WORDS] = list(words)
    return JobOptions(
        arguments["cluster"], arguments["job_file"], values, words, arguments["project"], arguments["untracked"]
    )


def _value(value: Any, row: Row) -> Any:
    """Return a number for text where the setting takes numbers beside words."""
    if row.facts.form == "updates-or-auto" and _WHOLE.fullmatch(value):
        return int(value)
    if row.facts.form != _HOST_COUNT or HOST_RANGE.fullmatch(value):
        return value
    if not _WHOLE.fullmatch(value):
        raise typer.BadParameter(f"{row.flag} {value!r}: expected a whole number, or a range as in 2-8")
    return int(value)


def _pair(text: str, row: Row) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"{row.flag} {text!r}: expected NAME=VALUE")
    if row.facts.form == "environment" or (row.facts.form == "directives" and value not in ("true", "false")):
        return key, value
    return key, _scalar(value)


def _scalar(text: str) -> str | int | float | bool:
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    # 007 is as likely a name as a number, and so are nan and inf.
    return float(text) if _FRACTION.fullmatch(text) else text
