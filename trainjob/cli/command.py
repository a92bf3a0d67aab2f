"""Declares commands: typer's, with options in groups, two examples each, and the parameters that many of them share.

Help is plain text: typer's panels load rich, which takes longer than `plan`.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from trainjob.cli import complete, wrong_words
from trainjob.contract import exits
from trainjob.contract.errors import nearest

OTHER = "Options"
_ARGUMENTS = "Positional arguments"
# Columns of a terminal that help uses at most.
_WIDEST = 120
_HELP_ALL = "--help-all"
# The settings of a job that its help shows.
_USED_FIRST = frozenset(
    [
        "--task",
        "--instances",
        "--hosts",
        "--micro-batch",
        "--global-batch",
        "--epochs",
        "--updates",
        "--learning-rate",
        "--time-limit",
        "--env",
        "--name",
    ]
)

_Function = TypeVar("_Function", bound=Callable[..., None])


# The contexts and formatters that typer hands over are of classes without a public name: Any.
class Command(TyperCommand):
    """A command that lists its options by their `rich_help_panel`, its own first, and ends its help with examples."""

    @property
    def examples(self) -> list[str]:
        """The command lines that end its help."""
        return (self.epilog or "").splitlines()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError for another tool's option, with ours."""
        own = {name for one in self.params for name in (*one.opts, *one.secondary_opts)}
        before = args[: args.index("--")] if "--" in args else args
        if _HELP_ALL in before:
            ctx.meta[_HELP_ALL] = True
            args = ["--help"]
        for word in before:
            name = word.partition("=")[0]
            if name not in own and name in wrong_words.OPTIONS and wrong_words.fits(name, own):
                ctx.fail(f"There is no option {name}. Here it is: {wrong_words.OPTIONS[name]}")
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            unknown: Any = error
            # typer lists up to three options that are alike, by the alphabet.
            if alike := getattr(error, "possibilities", None):
                unknown.possibilities = [nearest(unknown.option_name, alike) or alike[0]]
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line: arguments as they were declared, without typer's braces."""
        arguments = [one.metavar or str(one.name) for one in self.get_params(ctx) if isinstance(one, TyperArgument)]
        return ["[OPTIONS]", *arguments]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and each group of options under its title.

        Of the settings of a job, those that people use first; all of them if they are asked for.
        """
        groups: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: [], OTHER: []}
        parameters = self.get_params(ctx)
        settings = [one for one in parameters if getattr(one, "rich_help_panel", None)]
        hidden = [] if ctx.meta.get(_HELP_ALL) else [one for one in settings if not _USED_FIRST.intersection(one.opts)]
        for parameter in parameters:
            if parameter in hidden:
                continue
            if isinstance(parameter, TyperArgument):
                groups[_ARGUMENTS].append((parameter.metavar or str(parameter.name), parameter.help or ""))
            elif (record := parameter.get_help_record(ctx)) is not None:
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or OTHER, []).append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        if hidden:
            formatter.write(f"\n{len(hidden)} more settings of a job: {ctx.command_path} {_HELP_ALL}\n")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Write the examples, one a line, never wrapped."""
        formatter.write("\n".join(["", "Examples:", *(f"  {example}" for example in self.examples), ""]))


def commands(about: str | None = None, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """Return what takes the commands of a module; with `about`, a command that has them below it."""
    app = typer.Typer(cls=cls, help=about, no_args_is_help=True, rich_markup_mode=None, add_completion=False)
    if about is not None:
        app.callback()(lambda: None)
    return app


def command(app: typer.Typer, *examples: str, **settings: Any) -> Callable[[_Function], _Function]:
    """Make a function a command with these examples; its name is the function's, without an ending `_command`."""

    def declared(function: _Function) -> _Function:
        name = function.__name__.removesuffix("_command")
        wide = {"max_content_width": _WIDEST, **settings.pop("context_settings", {})}
        return app.command(name, cls=Command, epilog="\n".join(examples), context_settings=wide, **settings)(function)

    return declared


def finite(value: float | None) -> float | None:
    """Return a number of the command line. Raises BadParameter for one that is infinite or nan."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def hours(budget: str, *units: str) -> float:
    """Return the hours of a text such as 2gpu-hours, of one of these units. Raises typer.BadParameter for another.

    So it does for hours that are negative, infinite or no number.
    """
    number = next((budget.removesuffix(f"{unit}-hours") for unit in units if budget.endswith(f"{unit}-hours")), budget)
    with contextlib.suppress(ValueError):
        if 0 <= float(number) < math.inf:
            return float(number)
    raise typer.BadParameter(f"--budget {budget}: expected hours, as in 2{units[0]}-hours")


def fail_unless(good: bool) -> None:
    """End the command with the exit code of what the user or the cluster can fix, unless all is good."""
    if not good:
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)


def cluster_option(
    about: str = "Cluster file: a name or a path. Default: the one in use (trainjob cluster use), else local.",
) -> Any:
    """Return the option --cluster, which completes to the names of cluster files."""
    return typer.Option("--cluster", "-c", help=about, autocompletion=complete.clusters)


RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Run id, a unique prefix of one, last, or a path.", autocompletion=complete.runs
    ),
]
RunNames = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN…", help="Run ids, unique prefixes of them, last, or paths.", autocompletion=complete.runs
    ),
]
RoleOption = Annotated[
    str | None,
    typer.Option("--role", metavar="NAME", help="This role of a job with roles. Default: what needs the others."),
]
# Where a command that changes nothing may be given none.
RunOrLast = Annotated[
    str,
    typer.Argument(
        metavar="[RUN]",
        help="Run id, a unique prefix of one, last, or a path. Default: last.",
        autocompletion=complete.runs,
        show_default=False,
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for the end of the run; Ctrl-C leaves it running.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OverBudget = Annotated[
    bool,
    typer.Option("--over-budget", help="Submit even if it may exceed a budget; asks for confirmation at a terminal."),
]


def agreed() -> None:
    """Ask the person at the terminal whether a budget may be exceeded. Raises BadParameter without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("--over-budget needs a person at a terminal, and this isn't one")
    typer.confirm("Submit it although it may exceed a budget?", abort=True, err=True)
