"""The flags that describe a job, shared by every command that takes one.

They are made from the rows of `trainjob.contract.settings`, without reading any file: `--help` must stay quick.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from trainjob.cli import complete
from trainjob.cli.command import PATH, Option, cluster_option
from trainjob.contract.settings import HOST_RANGE, Scalar, SettingRow, rows
from trainjob.requests.options import JobOptions

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_FRACTION = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")

# Of the commands that write a script to stay.
secret_option = click.option(
    "--allow-secret-env", is_flag=True, help="Let the environment have variables whose names look like secrets'."
)

_HOST_COUNT = "host-count"

# Neither a value nor a list of NAME=VALUE: the command stands after --.
_WORDS = "command"

_OPTIONS = (
    click.argument("words", nargs=-1, metavar="[-- COMMAND…]", help="A command of your own, after --."),
    cluster_option(default="local", show_default=True),
    click.option("--job", "job_file", type=PATH, help="Job file; flags override it."),
    click.option("--project", type=PATH, help="Top folder of your project."),
    click.option("--untracked", is_flag=True, help="Copy files that git does not track, too."),
)


def takes_a_job(
    without: Collection[str] = (), groups_without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of a job; its first parameter receives them as JobOptions.

    Left out are the settings named by `without`, and those in the groups of `groups_without`: they would have no
    effect, or the command has an option of that name.
    """
    settings = [
        row
        for row in rows().values()
        if row.name not in (_WORDS, *without) and row.facts.group not in groups_without and not row.facts.file_only
    ]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_flags(
            words: tuple[str, ...],
            cluster: str,
            job_file: Path | None,
            project: Path | None,
            untracked: bool,
            **arguments: Any,
        ) -> None:
            values = {row.name: _value(row, arguments.pop(row.name)) for row in settings}
            given = {name: value for name, value in values.items() if value is not None}
            if words:
                given[_WORDS] = list(words)
            command(JobOptions(cluster, job_file, given, words, project, untracked), **arguments)

        for add in reversed((*_OPTIONS, *map(_option, settings))):
            add(with_flags)
        return with_flags

    return decorated


def _option(row: SettingRow) -> Callable[..., Any]:
    """Return the option of a setting. A word that is none of its choices is refused when the job is read."""
    is_text = row.is_mapping or not isinstance(row.type, type) or row.facts.form == _HOST_COUNT
    choices = f" One of {', '.join(row.choices)}." if row.choices else ""
    completions = {"task": complete.tasks, "set": complete.options_of_task}
    return click.option(
        row.flag,
        row.name,
        cls=Option,
        group=row.facts.group,
        type=str if is_text else row.type,
        is_flag=row.type is bool,
        default=None,
        multiple=row.is_mapping,
        metavar="NAME=VALUE" if row.is_mapping else None,
        help=f"{row.facts.help}{choices} Default: {row.default_in_words}.",
        shell_complete=completions.get(row.name) or complete.completer(lambda _ctx: row.choices),
    )


def _value(row: SettingRow, value: Any) -> Any:
    """Return the value of a setting; None if it was not given."""
    if row.is_mapping:
        return dict(pair(text, row) for text in value) or None
    if value is None or row.facts.form not in (_HOST_COUNT, "updates-or-auto"):
        return value
    # A number is as good as a word here.
    if _WHOLE.fullmatch(value):
        return int(value)
    if row.facts.form == _HOST_COUNT and not HOST_RANGE.fullmatch(value):
        raise click.BadParameter(f"{row.flag} {value!r}: expected a whole number, or a range as in 2-8")
    return value


def pair(text: str, row: SettingRow) -> tuple[str, Scalar]:
    """Return name and value of NAME=VALUE, the value as the type that it is written in where the setting wants that."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{row.flag} {text!r}: expected NAME=VALUE")
    if row.facts.form == "environment" or (row.facts.form == "directives" and value not in ("true", "false")):
        return name, value
    if value in ("true", "false"):
        return name, value == "true"
    if _WHOLE.fullmatch(value):
        return name, int(value)
    # 007 is as likely a name as a number, and so are nan and inf.
    return name, float(value) if _FRACTION.fullmatch(value) else value
