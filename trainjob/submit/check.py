"""What can be seen to be wrong from here before a run is handed over; nothing is started or changed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from trainjob.contract import manifest, secrets, tasks
from trainjob.render.request import Request


@dataclass(frozen=True)
class Problem:
    """Something that would make the run fail. `code` is stable, for machines."""

    code: str
    text: str
    cure: str

    def as_json(self) -> dict[str, str]:
        """Return the problem for `--json`."""
        return asdict(self)


def problems(request: Request, working_folder: Path) -> list[Problem]:
    """Return what is wrong with a job that runs on this machine, in the order in which it would fail."""
    if request.cluster.kind != "local":
        return []
    return [
        *_interpreter(request),
        *_command(request, working_folder),
        *_data(request),
        *_secrets(request),
    ]


def search_path() -> str:
    """Return the PATH of local runs: the folder of the interpreter that runs us comes first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _interpreter(request: Request) -> Iterator[Problem]:
    asked = getattr(request.cluster, "python", None)
    if asked and shutil.which(os.path.expanduser(asked)) is None:
        yield Problem(
            "interpreter",
            f"python: {asked} is not an interpreter that can be started",
            "Give the path of one that has torch, or take the key out",
        )


def _command(request: Request, working_folder: Path) -> Iterator[Problem]:
    if not request.job.command:
        return
    program = request.job.command[0]
    if "/" in program:
        found = os.access(working_folder / program, os.X_OK)
        where = f"in {working_folder}"
    else:
        found = shutil.which(program, path=search_path()) is not None
        where = "on PATH"
    if not found:
        yield Problem(
            "command",
            f"command {program!r} is not an executable file {where}",
            "After -- comes a program and its arguments, as in: -- python train.py",
        )


def _data(request: Request) -> Iterator[Problem]:
    facts = tasks.facts(request.job.task or "digits-cnn")
    name = request.job.data or (facts.data if facts else None)
    if request.job.command or name is None:
        return
    data_dir = request.cluster.data_dir
    if manifest.find(name, Path(data_dir).expanduser() if data_dir else None) is None:
        yield Problem(
            "data",
            f"data set {name} is not prepared in {data_dir or 'any data_dir'}",
            f"Run: trainjob data prepare {name} --cluster {request.plan.cluster}",
        )


def _secrets(request: Request) -> Iterator[Problem]:
    if not request.cluster.secrets_file:
        return
    try:
        secrets.check_mode(Path(request.cluster.secrets_file).expanduser())
    except secrets.SecretsError as error:
        yield Problem("secrets", *_two_sentences(str(error)))


def _two_sentences(message: str) -> tuple[str, str]:
    text, _, cure = message.partition(": ")
    return text, cure
