"""The requirements of a job on its machines: the questions of the probe, and the names in messages."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from trainjob.backends import containers
from trainjob.cluster import slurm_text
from trainjob.contract import package, tasks
from trainjob.contract.optimizers import is_own
from trainjob.contract.paths import expanded
from trainjob.data import manifest
from trainjob.planning.engines import needs_mpirun
from trainjob.render.record import environment
from trainjob.render.request import Request

_REPORT = package.program(__file__, "interpreter.py")
# The job's variables that decide what a program is and what an interpreter imports.
_FIND_PROGRAMS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME")
_PYTHON = re.compile(r"python[0-9.]*")


def host_names(request: Request) -> tuple[str, ...]:
    """Return the job's hosts if the cluster file names them; empty if a scheduler chooses them."""
    if request.cluster.host_names is None:
        return ()
    return slurm_text.expand(request.plan.topology.hosts)


def is_reachable(request: Request) -> bool:
    """Return whether the cluster file says which machines to ask; files of the catalog leave their names out."""
    return not request.cluster.hosts_are_named or not request.cluster.missing_facts


def of_machine(request: Request) -> dict[str, str]:
    """Return the questions to every host, by the names in probe.sh; the SDK comes before the programs it provides."""
    cluster, runs_dir = request.cluster, request.cluster.runs_folder
    if cluster.trains_here:
        # On this machine the path may be relative to the working folder.
        runs_dir = os.path.abspath(expanded(runs_dir))
    is_elsewhere = cluster.hosts_are_given or cluster.container.runtime != "none"
    named = request.cluster.interpreter or ""
    questions = {
        # As the job script does, in this order.
        **{f"export={name}": environment(request).get(name) for name in _FIND_PROGRAMS},
        "first-on-path": os.path.dirname(named) if named.startswith(("/", "~/")) else None,
        "program": program(request),
        "module": module(request),
        "data": manifest_path(request),
        "image": image_file(request),
        "init-from": "" if request.job.command else request.job.init_from,
        # The folder in which data is staged, if ranks run directly on the machines that the probe asks.
        "stage": None if is_elsewhere or request.job.command else request.job.stage,
        "runs-dir": runs_dir,
        "secrets": cluster.secrets_file,
    }
    ipus = cluster.ipu_keys
    if cluster.hosts_are_named and ipus is not None:
        questions = {"sdk": ipus.sdk.path if ipus.sdk else None, "poprun": "yes", **questions}
        questions |= {"network": cluster.network.interface, "cache": ipus.poprun.executable_cache, "memlock": "yes"}
    elif cluster.hosts_are_named:
        questions |= {"network": cluster.network.interface, "memlock": "yes", "nofile": "yes"}
    if len(host_names(request)) > 1:
        questions["user"] = "yes"
    if starts_by_mpirun(request):
        questions["mpirun"] = "yes"
    return {name: value for name, value in questions.items() if value}


def of_interpreter(request: Request, *, imports_task: bool) -> dict[str, str]:
    """Return the questions to the interpreter that trains; empty if only the job's prologue makes it available."""
    python = interpreter_of(request)
    if python is None:
        return {}
    questions: dict[str, Any] = {"horovod": needs_horovod(request)}
    if request.job.compile and not request.job.command:
        questions["compiler"] = compilers(request)
    if imports_task and task_entry(request) is not None:
        questions |= {"task": task_entry(request), "options": dict(request.job.set)}
        if request.plan.engine == "fsdp" or request.job.recompute:
            questions["units"] = True
    optimizer = request.job.optimizer
    if imports_task and optimizer is not None and is_own(optimizer):
        questions["optimizer"] = optimizer
    unpack = "yes" if questions.keys() & {"task", "optimizer"} else "no"
    return {"report": _REPORT, "questions": json.dumps(questions), "unpack": unpack, "python": python}


def interpreter_of(request: Request) -> str | None:
    """Return the interpreter that starts ranks and trains a task; None if no machine can be asked about it."""
    cluster = request.cluster
    if cluster.container.runtime != "none" and containers.find(request) is None:
        return None  # the machine on which jobs are submitted can't start the ranks' container
    if request.job.environment:
        # The launcher's own needs nothing but Python, and what is packed can't be asked.
        venv = request.job.environment.get("venv")
        return None if venv is None else f"{venv}/bin/python"
    named = cluster.interpreter
    if (named is None and (cluster.ranks_by == "poprun" or cluster.prologue)) or cluster.interpreter_words:
        return None
    if named is None:
        first = request.job.command[0] if request.job.command else ""
        return first if cluster.trains_here and _PYTHON.fullmatch(first) else "python3"
    return None if _is_brought(request, named) else named


def compilers(request: Request) -> tuple[str, ...]:
    """Return the variable that names torch.compile's compiler, and the compilers that it tries without it."""
    return ("CC", "gcc", "clang", "cc") if request.plan.topology.device == "GPU" else ("CXX", "g++", "clang++")


def _is_brought(request: Request, program: str) -> bool:
    """Return whether the prologue may provide the program, which is certain only once the prologue has run."""
    return bool(request.cluster.prologue) and not program.startswith(("/", "~/"))


def program(request: Request) -> str | None:
    """Return the command's program if a machine must have it; None for the project's own program."""
    first = request.job.command[0] if request.job.command else ""
    if request.job.environment and "/" not in first:
        return None  # its own may have it
    if not first or request.cluster.container.runtime != "none" or _is_brought(request, first):
        return None
    return first if "/" not in first or first.startswith(("/", "~/")) else None


def module(request: Request) -> str | None:
    """Return the top package of `python -m MODULE`; None for any other command, and if no machine can be asked."""
    command = request.job.command or ()
    if program(request) is None or len(command) < 3 or command[1] != "-m":
        return None
    return command[2].partition(".")[0] if _PYTHON.fullmatch(command[0].rpartition("/")[2]) else None


def task_entry(request: Request) -> str | None:
    """Return the task to import (module:attribute): a user's own task, or one of ours whose options are set."""
    task = request.job.task or tasks.DEFAULT_TASK
    if request.job.command or not (":" in task or request.job.set):
        return None
    facts = tasks.facts(task)
    return facts.entry if facts else None


def data_name(request: Request) -> str | None:
    """Return the prepared data set that the task reads; None if it reads none, or one that trainjob includes."""
    facts = tasks.facts(request.job.task or tasks.DEFAULT_TASK)
    name = request.job.data or (facts.data if facts else None)
    if request.job.command or name in (None, manifest.MADE_UP, manifest.PYTHON_DOCS) or manifest.find(str(name), None):
        return None
    return name


def manifest_path(request: Request) -> str | None:
    """Return the required path of the data set's manifest; None without a data set, or without data_dir."""
    name = data_name(request)
    if name is None or request.cluster.data_dir is None:
        return None
    return f"{request.cluster.data_dir}/{name}/{manifest.FILE_NAME}"


def image_file(request: Request) -> str | None:
    """Return the path of the image file on the submitting machine; None for an image of a registry or an engine."""
    image = request.cluster.container.image or ""
    is_file = request.cluster.hosts_are_given and image.startswith(("/", "~/"))
    return image if is_file and request.cluster.container.runtime != "none" else None


def starts_by_mpirun(request: Request) -> bool:
    """Return whether mpirun on the hosts starts the ranks."""
    return request.cluster.ranks_by == "mpirun" or needs_horovod(request)


def needs_horovod(request: Request) -> bool:
    """Return whether the hosts must have Horovod. Slurm's nodes can't be asked before the job runs."""
    return needs_mpirun(request.plan.engine) and not request.cluster.hosts_are_given
