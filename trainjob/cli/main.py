"""The `trainjob` command: finds the sub-command, and turns every exception into an exit code."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

import trainjob
from trainjob.cli import complete, failures, wrong_words
from trainjob.cli.command import commands
from trainjob.contract.paths import with_home
from trainjob.records.own import PassedOverWarning
from trainjob.watch import show

# heading -> command -> its help, in the order of use. The module trainjob.cli.<heading>.<command> has the command,
# unless several share one.
HEADINGS: dict[str, dict[str, str]] = {
    "Plan": {
        "plan": "Show the arithmetic and the picture: hosts, instances, replicas, devices, data, batch.",
        "render": "Print or write the bytes that would run.",
        "check": "Find problems before a job is queued.",
        "doctor": "Find what is wrong with batch files for Slurm that you wrote or were given.",
        "adopt": "Turn a batch file for Slurm into a job file and a cluster file that do the same.",
    },
    "Run": {
        "submit": "Plan, render, check, write the run directory, and hand it over.",
        "reserve": "Take nodes of a cluster for a while: submit --in last runs in them at once.",
        "resume": "Continue a run that ended early, from its newest checkpoint.",
        "cancel": "End every process of a run, and no other.",
        "export": "Write the trained model as plain weights, or metrics for TensorBoard.",
        "prune": "Remove old runs that you choose.",
    },
    "Look": {
        "list": "List the runs.",
        "status": "Show the state of a run.",
        "wait": "Wait until runs have ended.",
        "logs": "Print the output of the ranks.",
        "watch": "Show the newest runs on all clusters, or one run, until you leave.",
        "usage": "Show how much CPU, memory and devices the ranks of a run use.",
        "stacks": "Show where the Python code of every rank is right now.",
        "shell": "Open a shell next to a rank of a running run.",
        "report": "Show the results of a run, from its folder alone.",
        "notify": "Tell you when runs end, fail, stall or approach their limit, as `notify:` in config.yaml says.",
    },
    "Prove": {
        "rehearse": "Run exactly the bytes of a job, or a batch file of your own, on this machine, on CPUs.",
        "verify": "Check that N instances train exactly as one does; with --resume, that interruptions change nothing.",
        "bench": "Measure data loading, all-reduce, and how a job scales, on this machine.",
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
_SHARED = {"list": "status", "wait": "status", "usage": "ranks", "stacks": "ranks", "shell": "ranks"}
# Commands of a package beside this one, which nothing here imports.
_BESIDE = {"doctor": "batchfiles.commands.doctor", "adopt": "batchfiles.commands.adopt"}
COMMANDS = {
    command: _BESIDE.get(command, f"trainjob.cli.{heading.lower()}.{_SHARED.get(command, command)}")
    for heading, commands in HEADINGS.items()
    for command in commands
}


class Commands(TyperGroup):
    """The commands of the table, each imported when it is called: `--help` reads the table alone."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Read for "did you mean" and for completion alone: a command comes from get_command.
        self.commands: Any = dict.fromkeys(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - typer's signature
        """Return the command, importing its module; None for an unknown name."""
        return load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command and its arguments. Raises UsageError for another tool's word, with ours."""
        meant = wrong_words.COMMANDS.get(args[0]) if args and args[0] not in COMMANDS else None
        if meant is not None:
            ctx.fail(f"There is no command {args[0]!r}. Here it is: trainjob {meant}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> object:
        """Run the command. Raises ReaderLeftError if the reader of its output has gone."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise failures.ReaderLeftError from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's
        """Write the table without importing a single command."""
        widest = max(len(command) for command in COMMANDS)
        for heading, listed in HEADINGS.items():
            with formatter.section(heading):
                formatter.write_dl([(command.ljust(widest), text) for command, text in listed.items()])


def load(name: str) -> Any:
    """Import and return a command of the table."""
    loaded = typer.main.get_command(importlib.import_module(COMMANDS[name]).app)
    # A module with several commands has them by name.
    return vars(loaded).get("commands", {}).get(name, loaded)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"trainjob {trainjob.__version__}")
        raise typer.Exit


app = commands(
    "Take one training job from a laptop to a cluster, and prove it before a cluster hour is spent.", Commands
)


@app.callback(context_settings={"help_option_names": ["--help", "-h"]})
def root(
    _version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no progress and no hints; warnings and results stay.")
    ] = False,
) -> None:
    """Take the options that stand before every command."""
    if quiet:
        show.be_quiet()


def _warn_of_passed_over() -> None:
    """Print once what is passed over, whatever PYTHONWARNINGS says, and other warnings as Python does."""
    print_other = warnings.showwarning

    def print_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, PassedOverWarning):
            show.warning(str(message))
        else:
            print_other(message, category, *place, **more)

    warnings.showwarning = print_warning
    warnings.simplefilter("once", PassedOverWarning)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    asked = list(sys.argv[1:] if arguments is None else arguments)
    # Whoever called may ignore it: every program that is started here would seem to end with 0.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if complete.VARIABLE in os.environ:
        complete.know_shells()
    with show.protected(), failures.handled(asked):
        # For libraries and programs that take an empty one for the root, or write a folder of the name ~.
        if not os.path.isabs(os.environ.get("HOME", "")) and not {"--help", "-h", "--version"}.intersection(asked):
            os.environ["HOME"] = str(with_home("~"))
        _warn_of_passed_over()
        try:
            typer.main.get_command(app).main(args=asked, prog_name="trainjob")
        finally:
            # The interpreter would look at every object once more before it ends: 10 % of the time of `render`.
            gc.freeze()


if __name__ == "__main__":
    main()
