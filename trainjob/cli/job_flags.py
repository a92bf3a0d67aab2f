"""The flags that describe a job, shared by every command that takes one.

The table repeats the fields of `trainjob.cluster.job.Job`, because importing pydantic for `--help` costs
more than the help itself; a test holds the two together.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from trainjob.cli import complete

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_FRACTION = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


class JobFlags(NamedTuple):
    """What the flags said. `values` holds only the flags that were given."""

    cluster: str
    file: Path | None
    values: Mapping[str, Any]
    words: tuple[str, ...]  # the user's own command, after --
    project: Path | None
    untracked: bool


# field of Job -> type, help
FIELDS: dict[str, tuple[type, str]] = {
    "name": (str, "Name of the run."),
    "task": (str, "A built-in task, or module:attribute of your own."),
    "instances": (int, "Processes that train."),
    "replicas": (int, "Copies of the model, over all instances."),
    "ipus_per_replica": (int, "IPUs one copy of the model is split over."),
    "hosts": (int, "Hosts to use."),
    "micro_batch": (int, "Samples one replica takes through the model at once."),
    "accumulation": (int, "Micro batches summed before one weight update."),
    "global_batch": (int, "Samples of one weight update; instead of --accumulation."),
    "device_iterations": (int, "Weight updates an IPU makes between two returns to the host."),
    "epochs": (int, "Passes over the data set."),
    "updates": (int, "Weight updates; instead of --epochs."),
    "remainder": (str, "drop | pad: samples that fill no whole block."),
    "optimizer": (str, "sgd | adamw."),
    "learning_rate": (float, "Learning rate."),
    "scale_learning_rate": (str, "linear | sqrt: with global batch ÷ --base-batch."),
    "base_batch": (int, "Global batch that the learning rate was chosen for; otherwise the micro batch."),
    "init_from": (str, "First weights: a safetensors file."),
    "momentum": (float, "Momentum of sgd."),
    "weight_decay": (float, "Weight decay."),
    "schedule": (str, "constant | cosine."),
    "warmup_updates": (int, "Updates over which the learning rate climbs."),
    "reduction": (str, "mean | sum, over micro batches and replicas."),
    "precision": (str, "input.model bits: 32.32 | 16.32 | 16.16 | bf16; 64.64 is for verification."),
    "eight_bit_io": (bool, "Send uint8 to the device and normalise there."),
    "engine": (str, "How instances work together: single | ddp | naive | horovod | …"),
    "bucket_mb": (int, "Size of a gradient bucket in MB."),
    "data": (str, "Prepared data set."),
    "workers": (int, "Loader processes of one instance, for your own Dataset."),
    "samples": (int, "Training samples of your own data set."),
    "loss_is_summed": (bool, "The loss sums over the samples of a micro batch."),
    "seed": (int, "Seed of weights, order, dropout and augmentation."),
    "checkpoint_every": (int, "Updates between two checkpoints; 0: only at the end."),
    "keep_checkpoints": (int, "Checkpoints kept."),
    "log_every": (int, "Updates between two lines of metrics.jsonl."),
    "clip_norm": (float, "Largest norm of the reduced gradient."),
    "stall_timeout_s": (float, "Seconds after which a rank that does not go on is named."),
    "trace": (
        str,
        "samples | full | nudged: write down every update's samples, or gradients and weights, too; evaluate nothing.",
    ),
    "time_limit": (str, "Time limit under Slurm: 04:00:00."),
    "max_attempts": (int, "Starts a job may have by itself under Slurm."),
    "array": (str, "Tasks of an array under Slurm, each a run of its own: 0-9, 0-9:2, 1,3,7; %3: 3 at once."),
    "sweep": (str, "YAML list: item N holds the settings of task N of the array."),
    "allow_unused_parameters": (bool, "Let parameters get no gradient."),
    "compile_first": (bool, "On IPUs: compile once, before instances start."),
    "compile_only": (bool, "On IPUs: compile, with no IPU attached, and end."),
}


def flag(field: str) -> str:
    """Return the flag of a job's field."""
    return "--" + field.replace("_", "-")


def takes_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` every flag of a job; its first parameter receives them as JobFlags."""

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        own = {name: given.pop(name) for name in list(given) if name in own_parameters}
        command(_collected(given), **own)

    _, *rest = inspect.signature(command, eval_str=True).parameters.values()
    own_parameters = {parameter.name for parameter in rest}
    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in rest]
    wrapper.__signature__ = inspect.Signature([*_parameters(), *keyword_only])  # type: ignore[attr-defined] # read by typer
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
        *(_parameter(name, kind, typer.Option(flag(name), help=text)) for name, (kind, text) in FIELDS.items()),
        _parameter("set", list[str], typer.Option("--set", metavar="NAME=VALUE", help="An option of the task.")),
        _parameter("env", list[str], typer.Option("--env", metavar="NAME=VALUE", help="Environment of every rank.")),
        _parameter("poprun", list[str], typer.Option("--poprun", metavar="NAME=VALUE", help="An option of poprun.")),
        _parameter("project", Path, typer.Option("--project", help="Top folder of your project.")),
        _parameter(
            "untracked", bool, typer.Option("--untracked", help="Copy files that git does not track, too."), False
        ),
    ]


def _parameter(name: str, kind: Any, option: Any, default: Any = None) -> inspect.Parameter:
    annotation = kind if default is not None else kind | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, option]
    )


def _collected(given: Mapping[str, Any]) -> JobFlags:
    values: dict[str, Any] = {name: given[name] for name in FIELDS if given[name] is not None}
    words = tuple(given["words"] or ())
    if words:
        values["command"] = list(words)
    for name in ("set", "env", "poprun"):
        if given[name]:
            values[name] = dict(_pair(text, name) for text in given[name])
    return JobFlags(given["cluster"], given["job_file"], values, words, given["project"], given["untracked"])


def _pair(text: str, name: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"--{name} {text!r}: expected NAME=VALUE")
    return key, value if name == "env" else _scalar(value)


def _scalar(text: str) -> str | int | float | bool:
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    # 007 is as likely a name as a number, and so are nan and inf.
    return float(text) if _FRACTION.fullmatch(text) else text
