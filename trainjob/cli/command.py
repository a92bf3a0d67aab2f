"""Declares commands: click's, with options in groups, two examples each, and the options that many of them share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from trainjob.cli import complete
from trainjob.contract import exits

OTHER = "Options"
PATH = click.Path(path_type=Path)


class Option(click.Option):
    """An option that --help lists under the title of its group."""

    def __init__(self, *declarations: Any, group: str = OTHER, **settings: Any) -> None:
        super().__init__(*declarations, **settings)
        self.group = group


class Command(click.Command):
    """A command that lists its options in groups, its own first, and ends its help with examples."""

    def __init__(self, *words: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group of options under its title."""
        groups: dict[str, list[tuple[str, str]]] = {OTHER: []}
        for parameter in self.get_params(ctx):
            record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(parameter, "group", OTHER), []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the examples, one a line, never wrapped."""
        formatter.write("\n".join(["", "Examples:", *(f"  {example}" for example in self.examples), ""]))


class Group(click.Group):
    """Commands that are listed in the order in which they were declared."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names."""
        return list(self.commands)


def command(*examples: str, **settings: Any) -> Callable[[Callable[..., None]], Command]:
    """Make a function a command with these examples; its name is the function's, without an ending `_command`."""
    return click.command(cls=Command, examples=examples, **settings)


class FiniteRange(click.FloatRange):
    """A number in a range, which is neither infinite nor nan."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def fail_unless(good: bool) -> None:
    """End the command with the exit code of what the user or the cluster can fix, unless all is good."""
    if not good:
        raise click.exceptions.Exit(exits.USER_OR_CLUSTER_CAN_FIX)


def cluster_option(about: str = "Cluster file: a name or a path.", **settings: Any) -> Callable[..., Any]:
    """Return the option --cluster, which completes to the names of cluster files."""
    return click.option("--cluster", "-c", help=about, shell_complete=complete.clusters, **settings)


run_argument = click.argument(
    "run", metavar="RUN", help="Run id, a unique prefix of one, last, or a path.", shell_complete=complete.runs
)
runs_argument = click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN…",
    help="Run ids, unique prefixes of them, last, or paths.",
    shell_complete=complete.runs,
)
follow_option = click.option(
    "--follow", "-f", is_flag=True, help="Wait for the end of the run; Ctrl-C leaves it running."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
