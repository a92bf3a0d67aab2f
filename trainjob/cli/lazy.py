"""Sub-commands that are imported when they are called: `--help` reads a table."""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperGroup

from trainjob.cli.failures import ReaderLeftError

# command -> what it does. The module trainjob.cli.<command> holds its typer app.
COMMANDS: dict[str, str] = {
    "plan": "Show the arithmetic and the picture: hosts, instances, replicas, devices, data, batch.",
    "render": "Print or write the bytes that would run.",
    "check": "Find what is wrong before queueing.",
    "submit": "Plan, render, check, write the run directory, and hand it over.",
    "list": "List the runs.",
    "status": "Show what has become of a run.",
    "logs": "Print what the ranks have printed.",
    "cancel": "End every process of a run, and no other.",
    "resume": "Start one more attempt of a run that ended early.",
    "export": "Write the trained model as plain weights.",
    "prune": "Remove old runs, by choice.",
    "rehearse": "Run the very bytes of a job here, on CPU.",
    "verify": "Show that N instances train as one, or that an interrupted run ends as an uninterrupted one.",
    "bench": "Measure the loader, the collectives, and how a job scales and grows, on this machine.",
    "report": "Show what a run has done, from its folder alone.",
    "data": "Prepare, list and check data sets.",
    "container": "Build images that train, run them, and verify them.",
    "provision": "Put virtualenvs and data sets on a cluster's hosts, and prove them.",
    "devices": "Show a cluster's devices and who uses them.",
    "cluster": "List, show, make and check cluster files.",
}


class LazyGroup(TyperGroup):
    """A group whose commands are named by COMMANDS and built on use."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Read for "did you mean" alone: what is behind a name comes from get_command.
        self.commands: Any = dict.fromkeys(COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the base class's signature
        """Return the names, in the order in which a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the base class's signature
        """Return the command, importing its module; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module: Any = importlib.import_module(f"trainjob.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a reader that has left is told apart from what has gone wrong."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderLeftError from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the base class's signature
        """Write the table without importing a single command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
