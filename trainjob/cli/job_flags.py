"""The flags that describe a job, shared by every command that takes one.

They are made from the rows of `trainjob.contract.settings`, without reading any file: `--help` must stay quick.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainjob.cli import complete
from trainjob.cli.command import cluster_option
from trainjob.contract.settings import HOST_RANGE, Scalar, SettingRow, rows
from trainjob.requests.options import JobOptions

if TYPE_CHECKING:
    from trainjob.requests.prepared import Prepared

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_FRACTION = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")

# Of the commands that write a script to stay.
AllowSecretEnv = Annotated[
    bool,
    typer.Option("--allow-secret-env", help="Let environment, command and steps hold what looks like a secret."),
]

_HOST_COUNT = "host-count"


def in_allocation(
    inside: Annotated[
        str | None,
        typer.Option(
            "--in",
            metavar="JOBID|last|any|none",
            help="Slurm: run as a step of this job, which you hold. last: in your newest reservation (trainjob "
            "reserve). any: plan, render or rehearse it before you hold one. none: in a job of its own. Default: the "
            "job that trainjob is called in, if any.",
        ),
    ] = None,
) -> str | None:
    """Return the allocation that a run is to be inside of, for `takes_a_job(also=…)`."""
    return inside


# Neither a value nor a list of NAME=VALUE: the command stands after --.
_WORDS = "command"


def _source(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND…]", help="A command of your own, after --.")
    ] = None,
    cluster: Annotated[str | None, cluster_option()] = None,
    job: Annotated[Path | None, typer.Option(help="Job file; flags override it.")] = None,
    project: Annotated[Path | None, typer.Option(help="Top folder of your project.")] = None,
    untracked: Annotated[bool, typer.Option("--untracked", help="Copy files that git does not track, too.")] = False,
) -> JobOptions:
    """Return where a job comes from, without its settings."""
    return JobOptions(cluster, job, {_WORDS: words} if words else {}, project, untracked)


def say_inside(prepared: Prepared) -> None:
    """Say on standard error that a run goes into an allocation that nobody has named."""
    if prepared.inside is not None and prepared.inside.because:
        typer.echo(prepared.inside.because, err=True)


def propose_site(prepared: Prepared) -> None:
    """Say on standard error which public machine's file would do, where nobody has chosen a cluster."""
    from trainjob.kinds.choice import BY_DEFAULT

    if prepared.cluster_chosen_by == BY_DEFAULT:
        from trainjob.requests.login_node import login_node

        if (found := login_node()) is not None:
            typer.echo(f"cluster {prepared.named_cluster.name} is the default, and {found}", err=True)


def takes_a_job(
    without: Collection[str] = (), groups_without: Collection[str] = (), also: Sequence[Callable[..., object]] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of a job; its first parameter receives them as JobOptions.

    The parameters after it receive what each function of `also` returns, whose own parameters are further flags.

    Left out are the settings named by `without`, and those in the groups of `groups_without`: they would have no
    effect, or the command has an option of that name.
    """
    settings = [
        row
        for row in rows().values()
        if row.name not in (_WORDS, *without) and row.facts.group not in groups_without and not row.facts.file_only
    ]
    of_source = inspect.signature(_source, eval_str=True).parameters
    others = [(one, inspect.signature(one, eval_str=True).parameters) for one in also]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_flags(**arguments: Any) -> None:
            source = _source(**{name: arguments.pop(name) for name in of_source})
            values = {row.name: _value(row, arguments.pop(row.name)) for row in settings}
            given = {name: value for name, value in values.items() if value is not None}
            more = [one(**{name: arguments.pop(name) for name in names}) for one, names in others]
            command(source._replace(values={**given, **source.values}), *more, **arguments)

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1 + len(also) :]
        of_others = [parameter for _, names in others for parameter in names.values()]
        parameters = [*of_source.values(), *map(_parameter, settings), *of_others, *own]
        keyword_only = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        with_flags.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]  # any function takes it
        return with_flags

    return decorated


def _parameter(row: SettingRow) -> inspect.Parameter:
    """Return the option of a setting. A word that is none of its choices is refused when the job is read."""
    is_text = not isinstance(row.type, type) or row.facts.form == _HOST_COUNT
    choices = f" One of {', '.join(row.choices)}." if row.choices else ""
    completions = {"task": complete.tasks, "set": complete.options_of_task}
    option = typer.Option(
        row.flag,
        metavar="NAME=VALUE" if row.is_mapping else None,
        help=f"{row.facts.help}{choices} Default: {row.default_in_words}.",
        rich_help_panel=row.facts.group,
        autocompletion=completions.get(row.name) or (complete.completer(lambda _ctx: row.choices) if choices else None),
    )
    kind: Any = list[str] if row.is_mapping else str if is_text else row.type
    return inspect.Parameter(
        row.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _value(row: SettingRow, value: Any) -> Any:
    """Return the value of a setting; None if it was not given."""
    if row.is_mapping:
        return dict(pair(text, row) for text in value or ()) or None
    if value is None or row.facts.form not in (_HOST_COUNT, "updates-or-auto"):
        return value
    # A number is as good as a word here.
    if _WHOLE.fullmatch(value):
        return int(value)
    if row.facts.form == _HOST_COUNT and not HOST_RANGE.fullmatch(value):
        raise typer.BadParameter(f"{row.flag} {value!r}: expected a whole number, or a range as in 2-8")
    return value


def pair(text: str, row: SettingRow) -> tuple[str, Scalar]:
    """Return name and value of NAME=VALUE, the value as the type that it is written in where the setting wants that."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{row.flag} {text!r}: expected NAME=VALUE")
    if row.facts.form == "environment" or (row.facts.form == "directives" and value not in ("true", "false")):
        return name, value
    if value in ("true", "false"):
        return name, value == "true"
    if _WHOLE.fullmatch(value):
        return name, int(value)
    # 007 is as likely a name as a number, and so are nan and inf.
    return name, float(value) if _FRACTION.fullmatch(value) else value
