"""Checks of the machines' software: ssh, interpreter, torch, the task, mpirun, Horovod, and limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from trainjob.check import probe, requirements
from trainjob.check.context import Context
from trainjob.contract import tasks
from trainjob.contract.environment import TRY_ON_CPUS
from trainjob.contract.errors import Problem
from trainjob.machines.ssh.failures import SshError
from trainjob.records.software import OLDEST_FOR_COMPILE, OLDEST_FOR_FSDP, is_older

_FEWEST_FILES = 1024  # the default of most systems
_SSH_CURE = "mpirun needs ssh between all hosts, with known host keys and no questions: trainjob provision sets it up"
_COMMAND_CURE = "Give a program and its arguments after --, as in: -- python train.py"


def unreachable(context: Context) -> Iterator[Problem]:
    """Yield the hosts that can't be asked, each with its reason."""
    for answer in context.answers:
        host = probe.listed([answer])
        if answer.unreachable:
            text = f"{host} can't be reached from {context.machine.name}: {answer.why}"
            yield Problem("unreachable", text, _SSH_CURE)
        elif answer.why is not None:
            yield Problem("no-answer", f"{host} can't be checked: {answer.why}", "Log in to it and look")


def different(context: Context) -> Iterator[Problem]:
    """Yield software and folders that differ between hosts although they must not."""
    if len(context.answers) < 2:
        return
    for fact, (word, cure) in _SAME.items():
        values = dict(context.by_value(fact))
        values = {value: where for value, where in values.items() if value not in ("no", "absent")}
        if len(values) > 1:
            shown = {
                value: f"checksum {value[:8]}" if fact == "data" else value.replace("folder ", "folder number ")
                for value in values
            }
            each = ", ".join(f"{where} has {shown[value]}" for value, where in values.items())
            yield Problem(
                f"different-{fact.removesuffix('-dir')}", f"all hosts must have the same {word}: {each}", cure
            )


_SAME = {
    "sdk": ("SDK", "Install one SDK at the same path on all of them: trainjob provision"),
    "torch": ("torch", "Give every host the same virtualenv: trainjob provision"),
    "poptorch": ("poptorch", "Give every host the same virtualenv: trainjob provision"),
    "data": ("data set", "Prepare it again on the hosts that differ: trainjob data prepare"),
    "runs-dir": ("runs_dir", "Set runs_dir to a folder on storage that all hosts share"),
}


def ssh_between_hosts(context: Context) -> Iterator[Problem]:
    """Yield the hosts that can't log in to one another."""
    for answer in context.answers:
        for host_and_why in answer.cannot_reach:
            text = f"{probe.listed([answer])} can't log in to {host_and_why}"
            yield Problem("ssh", text, _SSH_CURE)


def container(context: Context) -> Iterator[Problem]:
    """Yield the problem that keeps this machine's engine from running the image."""
    if context.container_fault is not None:
        yield context.container_fault


def image_file(context: Context) -> Iterator[Problem]:
    """Yield an image file that does not exist."""
    if where := context.where(lambda facts: facts.get("image") == "no"):
        image = requirements.image_file(context.request)
        yield Problem(
            "image", f"container.image {image} is not on {where}", "Copy it there, or correct container.image"
        )


def interpreter(context: Context) -> Iterator[Problem]:
    """Yield machines without the interpreter that would train."""
    python = requirements.interpreter_of(context.request)
    if where := context.where(
        lambda facts: facts.get("interpreter") == "no" or ("interpreter-exit" in facts and "python" not in facts),
        interpreter=True,
    ):
        yield Problem(
            "interpreter",
            f"{python} is not an interpreter that can be started on {where}",
            _of_callers_shell(context, "interpreter")
            or f"Give the path of one that has torch ({context.interpreter_key} in the cluster file)",
        )


def _of_callers_shell(context: Context, fact: str) -> str | None:
    """Return the cure for a program that only the submitting shell finds; None if that finds no other one."""
    for path, where in context.by_value(f"{fact}-of-caller"):
        python = path if fact == "interpreter" else f"{path.rpartition('/')[0]}/python3"
        return (
            f"Your shell on {where} finds {path}, and a job has a PATH of its own: "
            f"write {context.interpreter_key} {python} in the cluster file, and that folder comes first on it"
        )
    return None


class Interpreter(NamedTuple):
    """An interpreter, and the machines that have it."""

    machines: str
    executable: str
    python: str
    torch: str | None

    def __str__(self) -> str:
        having = f"torch {self.torch}" if self.torch else "no torch"
        return f"{self.machines}: {self.executable} is Python {self.python} with {having}"


def interpreters(context: Context) -> list[Interpreter]:
    """Return the ranks' interpreters as far as they are known; machines with equal ones are listed together."""
    by_facts: dict[tuple[str, str, str | None], list[probe.ProbeAnswer]] = {}
    try:
        all_answers = context.interpreters
    except SshError:  # the check "unreachable" reports it
        return []
    for answer in all_answers:
        if "executable" in answer.facts:
            facts = answer.facts
            by_facts.setdefault((facts["executable"], facts["python"], facts.get("torch")), []).append(answer)
    return [Interpreter(probe.listed(answers), *facts) for facts, answers in by_facts.items()]


def torch(context: Context) -> Iterator[Problem]:
    """Yield interpreters without torch, with a torch that is too old, or without GPU support for a job on GPUs."""
    if context.request.job.command:
        return
    python = requirements.interpreter_of(context.request)
    install = f"{python} -m pip install torch numpy tqdm"
    cure = (
        _of_callers_shell(context, "interpreter")
        or f"Install it there ({install}), or name another interpreter ({context.interpreter_key})"
    )
    if where := context.where(lambda facts: "python" in facts and "torch" not in facts, interpreter=True):
        yield Problem("torch", f"{python} on {where} has no torch, which a task needs", cure)
    if context.request.plan.engine == "fsdp":
        yield from _too_old(context, python, "engine fsdp", OLDEST_FOR_FSDP, "use --engine ddp")
    if context.request.job.compile:
        yield from _too_old(context, python, "--compile", OLDEST_FOR_COMPILE, "leave out --compile")
        if lacking := context.where(lambda facts: facts.get("compiler") == "no", interpreter=True):
            variable, *usual = requirements.compilers(context.request)
            yield Problem(
                "compiler",
                f"--compile needs a C++ compiler, and {lacking} has none of {', '.join(usual)} on its PATH",
                f"Install one (Debian: apt install g++), name yours in {variable}, or leave out --compile",
            )
    if context.request.plan.topology.device != "GPU":
        return
    if where := context.where(lambda facts: facts.get("torch-built-for") == "cpu", interpreter=True):
        key = context.interpreter_key
        yield Problem(
            "torch-without-gpu",
            f"the job trains on GPUs, and {python} on {where} has a torch built for CPUs only",
            f"Install a torch for CUDA or ROCm there, or name another interpreter ({key}). {TRY_ON_CPUS}",
        )


def _too_old(context: Context, python: str | None, what: str, oldest: str, other: str) -> Iterator[Problem]:
    for version, where in context.by_value("torch", interpreter=True):
        if is_older(version, oldest):
            yield Problem(
                "torch-too-old",
                f"{what} needs torch {oldest} or newer, and {python} on {where} has torch {version}",
                f"Install a newer torch there, name another interpreter ({context.interpreter_key}), or {other}",
            )


def task(context: Context) -> Iterator[Problem]:
    """Yield the reason why the task can't be imported and built with its options."""
    name, entry = context.request.job.task or tasks.DEFAULT_TASK, requirements.task_entry(context.request)
    python, top = requirements.interpreter_of(context.request), context.project.top
    # Only the first host imports the task.
    for answer in context.interpreters[:1]:
        facts = answer.facts
        if "python" not in facts or "torch" not in facts or entry is None:
            continue
        refusal, why = facts.get("task-refused"), facts.get("task-error")
        if refusal is None and why is None and facts.get("task") != "yes":
            why = f"the interpreter ended with exit code {facts['interpreter-exit']}"
        if refusal is None and why is None:
            continue
        # The probe unpacked the project in a temporary folder; the message names the user's folder instead.
        text = re.sub(r"/\S*/project/(?=\S)", "", refusal or why or "").replace("project project", f"project {top}")
        if refusal is not None and f"task {entry}" in refusal:
            yield Problem("task", text.replace(f"task {entry}", f"task {name}"))
            continue
        cure = "" if refusal else "Correct it, and make sure that its files are part of the project (git add)"
        yield Problem("task", f"task {name} can't be imported by {python} on {answer.target.name}: {text}", cure)


def units(context: Context) -> Iterator[Problem]:
    """Yield the reason why the task's model can't be sharded or recomputed by units."""
    for answer in context.interpreters[:1]:
        refusal = answer.facts.get("units-refused")
        if refusal is not None:
            yield Problem("units", f"task {context.request.job.task or tasks.DEFAULT_TASK}: {refusal}")


def optimizer(context: Context) -> Iterator[Problem]:
    """Yield the reason why the class of the job's own optimizer can't be imported."""
    for answer in context.interpreters[:1]:
        refusal = answer.facts.get("optimizer-refused")
        if refusal is not None:
            text = re.sub(r"/\S*/project(?=[\s:])", str(context.project.top), refusal)
            name, python = context.request.job.optimizer, requirements.interpreter_of(context.request)
            yield Problem(
                "optimizer", f"optimizer {name} can't be imported by {python} on {answer.target.name}: {text}"
            )


def module(context: Context) -> Iterator[Problem]:
    """Yield a module of `python -m` that neither the interpreter nor the project has."""
    name, command = requirements.module(context.request), context.request.job.command
    if name is None or command is None:
        return
    folder = context.project.top / context.project.start
    if (folder / f"{name}.py").is_file() or (folder / name).is_dir():
        return
    if where := context.where(lambda facts: facts.get("module") == "no" and facts.get("program") == "yes"):
        yield Problem(
            "module",
            f"{command[0]} on {where} has no module {name}, and neither has the folder in which the command starts",
            f"Install it there, or add {name}.py (or {name}/) to the project, in the folder where you call trainjob",
        )


def program(context: Context) -> Iterator[Problem]:
    """Yield machines without the command's program."""
    if where := context.where(lambda facts: facts.get("program") == "no"):
        name = requirements.program(context.request)
        text = f"command {name!r} is not a program that can be started on {where}"
        yield Problem("command", text, _of_callers_shell(context, "program") or _COMMAND_CURE)


def mpirun(context: Context) -> Iterator[Problem]:
    """Yield machines without Open MPI's mpirun."""
    if where := context.where(lambda facts: "mpirun" in facts and "Open MPI" not in facts["mpirun"]):
        is_engines = requirements.needs_horovod(context.request)
        why = (
            f"engine {context.request.plan.engine}" if is_engines else f"a cluster of kind {context.request.plan.kind}"
        )
        text = f"{why} needs Open MPI's mpirun, which is not on the PATH of {where}"
        other = ", or take --engine ddp" if is_engines and context.request.cluster.ranks_by != "mpirun" else ""
        yield Problem("mpirun", text, f"Install it (Debian: apt install openmpi-bin){other}")


def horovod(context: Context) -> Iterator[Problem]:
    """Yield interpreters without a Horovod that was built for torch."""
    if where := context.where(lambda facts: facts.get("horovod") == "no", interpreter=True):
        python, engine = requirements.interpreter_of(context.request), context.request.plan.engine
        yield Problem(
            "horovod",
            f"{python} on {where} has no Horovod built for torch, which engine {engine} needs",
            "Build it there with HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_MPI=1 pip install horovod, name an interpreter "
            "that has it (python: in the cluster file), or take --engine ddp",
        )


def limits(context: Context) -> Iterator[Problem]:
    """Yield hosts whose limits on processes may break a training."""
    if where := context.where(lambda facts: facts.get("memlock") != "unlimited" and facts.get("infiniband") == "yes"):
        text = (
            f"a process may not lock all of its memory on {where}, and InfiniBand locks all memory that it sends from"
        )
        yield Problem("memlock", text, "Have memlock raised to unlimited there (/etc/security/limits.d)")
    for files, machines in context.by_value("nofile"):
        if files.isdigit() and int(files) < _FEWEST_FILES:
            text = f"a process may open {files} files on {machines}, and data loaders and sockets need more"
            yield Problem("nofile", text, f"Have nofile raised to at least {_FEWEST_FILES} there")
