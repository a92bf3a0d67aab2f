"""Sub-commands that are imported when they are called: `--help` reads a table."""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperGroup

from trainjob.cli.failures import ReaderLeftError
from trainjob.cli.values import plain_value

# heading -> command -> its help, in the order of use. The module trainjob.cli.<heading>.<command> holds its typer app.
HEADINGS: dict[str, dict[str, str]] = {
    "Plan": {
        "plan": "Show the arithmetic and the picture: hosts, instances, replicas, devices, data, batch.",
        "predict": "Predict time, memory, checkpoint size and attempts of a job, with 90 % intervals.",
        "render": "Print or write the bytes that would run.",
        "check": "Find problems before a job is queued.",
    },
    "Run": {
        "submit": "Plan, render, check, write the run directory, and hand it over.",
        "resume": "Continue a run that ended early, from its newest checkpoint.",
        "cancel": "End every process of a run, and no other.",
        "export": "Write the trained model as plain weights, or metrics for TensorBoard and MLflow.",
        "prune": "Remove old runs that you choose.",
    },
    "Look": {
        "list": "List the runs.",
        "status": "Show the state of a run.",
        "logs": "Print the output of the ranks.",
        "watch": "Show the newest runs on all clusters, or one run, until you leave.",
        "usage": "Show how much CPU, memory and devices the ranks of a run use.",
        "stacks": "Show where the Python code of every rank is right now.",
        "shell": "Open a shell next to a rank of a running run.",
        "report": "Show the results of a run, from its folder alone.",
        "notify": "Tell you when runs end, fail, stall or approach their limit, as `notify:` in config.yaml says.",
    },
    "Prove": {
        "rehearse": "Run exactly the bytes of a job on this machine, on CPUs.",
        "verify": "Check that N instances train exactly as one does; with --resume, that interruptions change nothing.",
        "bench": "Measure data loading, all-reduce, single updates, and how a job scales and grows, on this machine.",
    },
    "Site": {
        "cluster": "List, show, create and check cluster files.",
        "provision": "Install virtualenvs and data sets on a cluster's hosts, and check them.",
        "data": "Prepare, list and check data sets.",
        "container": "Build images for training, run them, and verify them.",
        "devices": "Show a cluster's devices and who uses them.",
        "completion": "Print what makes a shell complete run ids, names, clusters, tasks and settings.",
    },
}
COMMANDS = {
    command: f"trainjob.cli.{heading.lower()}.{command}"
    for heading, commands in HEADINGS.items()
    for command in commands
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
        module: Any = importlib.import_module(COMMANDS[cmd_name])
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, --help and those of completion among them."""
        return [plain_value(parameter) for parameter in super().get_params(ctx)]

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises ReaderLeftError if the reader of its output has gone."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderLeftError from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the base class's signature
        """Write the table without importing a single command."""
        widest = max(len(command) for command in COMMANDS)
        for heading, commands in HEADINGS.items():
            with formatter.section(heading):
                formatter.write_dl([(command.ljust(widest), text) for command, text in commands.items()])
