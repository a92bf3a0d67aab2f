"""How every typer app of ours is made: plain help in groups with examples, and no work for options nobody gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from trainjob.cli.values import plain_value

HELP = {"help_option_names": ["-h", "--help"]}
OTHER = "Options"


def new(**settings: Any) -> App:
    """Return a typer app without rich's help and tracebacks: they cost 55 ms at every start."""
    plain = {"rich_markup_mode": None, "pretty_exceptions_enable": False, "add_completion": False}
    return App(context_settings=HELP, **{**plain, **settings})


def examples(*lines: str) -> str:
    """Return the end of a command's help: one command line each."""
    return "\n".join(["Examples:", *(f"  {line}" for line in lines)])


class App(typer.Typer):
    """An app whose commands are of our own kind."""

    def command(self, *words: Any, cls: type[TyperCommand] | None = None, **settings: Any) -> Callable[..., Any]:
        """Register a command."""
        return super().command(*words, cls=cls or Command, **settings)


class Command(TyperCommand):
    """A command that lists its options in groups."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, --help among them."""
        return [plain_value(parameter) for parameter in super().get_params(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, the command's own first, each group under its title."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or OTHER, []).append(record)
        for title in sorted(groups, key=lambda title: title != OTHER):
            with formatter.section(title):
                formatter.write_dl(groups[title])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the base class's signature
        """Write the examples as they are."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}\n")
