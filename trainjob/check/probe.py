"""Asks machines for facts: one command a machine, whatever is asked, and every host of a cluster that names them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainjob.check import wanted
from trainjob.cluster.models import LocalCluster, PodCluster
from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.machines.process import path_of_ranks
from trainjob.machines.ssh import onward
from trainjob.machines.ssh.failures import SshError
from trainjob.submit import containers

if TYPE_CHECKING:
    from trainjob.machines.machine import Machine
    from trainjob.machines.process import Completed
    from trainjob.render.request import Request
    from trainjob.submit.project import Project, Selection

_SDK = package.program(str(package.folder() / "launch" / "main.py"), "shell/sdk.sh")
_PROBE = package.program(__file__, "probe.sh")
# Importing torch from a busy file server takes its time.
_ANSWER_S, _IMPORT_S = 120.0, 300.0
_AT_ONCE = 8


@dataclass(frozen=True)
class Target:
    """One machine to ask. `hop`: it is a host that `machine` reaches by ssh; `prefix`: what starts the shell there."""

    name: str
    machine: Machine
    hop: bool = False
    prefix: tuple[str, ...] = ("bash",)

    def run(self, words: Sequence[str], *, stdin: bytes = b"", timeout_s: float = _ANSWER_S) -> Completed:
        """Return what a shell with these words left there; the exit code is the caller's to read."""
        line = [*self.prefix, *words]
        if self.hop:
            line = onward.command(self.name, line)
        return self.machine.run(line, stdin=stdin, timeout_s=timeout_s, check=False)


@dataclass(frozen=True)
class Answer:
    """What one machine answered. `why`: why it did not; `unreachable`: because ssh failed."""

    target: Target
    facts: Mapping[str, str] = field(default_factory=dict)
    cannot_reach: tuple[str, ...] = ()  # hosts it can't log in to, each with the reason
    why: str | None = None
    unreachable: bool = False


def targets(request: Request, machine: Machine) -> list[Target]:
    """Return the hosts that the cluster names; else the machine that jobs are handed over on."""
    names = wanted.host_names(request)
    # One host of a pod is the one that jobs are handed over on.
    if not names or (len(names) == 1 and isinstance(request.cluster, PodCluster)):
        is_local = isinstance(request.cluster, LocalCluster)
        path = f"PATH={path_of_ranks(is_command=bool(request.job.command))}"
        prefix = ("env", path, "bash") if is_local else ("bash",)
        return [Target(f"host {names[0]}" if names else machine.name, machine, prefix=prefix)]
    return [Target(name, machine, hop=True) for name in names]


def listed(answers: Sequence[Answer]) -> str:
    """Return machines as messages call them: "this machine", "login", "hosts h1, h2"."""
    names = ", ".join(answer.target.name for answer in answers)
    if not answers[0].target.hop:
        return names
    return f"{'host' if len(answers) == 1 else 'hosts'} {names}"


def ask_hosts(request: Request, machine: Machine, project: Project, selection: Selection | None) -> tuple[Answer, ...]:
    """Return what every host answers. A host behind `machine` that is down is an answer, too.

    Raises SshError when `machine` itself can't be reached.
    """
    hosts = targets(request, machine)
    logins = [f"ssh={target.name}" for target in hosts if target.hop]
    facts = [*logins, *_words(wanted.of_machine(request))]
    has_interpreter = containers.find(request) is None
    first = wanted.of_interpreter(request, imports_task=True) if has_interpreter else {}
    # One host imports the task for all: the virtualenvs of the others are compared by version.
    others = wanted.of_interpreter(request, imports_task=False) if has_interpreter else {}
    stdin = _packed(first, project, selection)
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        pending = [pool.submit(_ask, hosts[0], [*facts, *_words(first)], stdin)]
        pending += [pool.submit(_ask, target, [*facts, *_words(others)]) for target in hosts[1:]]
        return tuple(one.result() for one in pending)


def ask_container(request: Request, machine: Machine, project: Project, selection: Selection | None) -> Answer:
    """Return what the image's interpreter answers, in a container that is removed afterwards."""
    container = request.cluster.container
    flags = ("--rm", "--interactive", "--network", "none", "--pull", "never", "--entrypoint", "sh")
    target = Target(
        f"image {container.image}", machine, prefix=(container.runtime, "run", *flags, str(container.image))
    )
    questions = wanted.of_interpreter(request, imports_task=True)
    return _ask(target, _words(questions), _packed(questions, project, selection))


def _words(questions: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in questions.items()]


def _packed(questions: Mapping[str, str], project: Project, selection: Selection | None) -> bytes:
    """Return the runtime and the project's files, as a run would have them below code/; nothing without a task."""
    if questions.get("unpack") != "yes":
        return b""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in ("__init__.py", *package.RUNTIME_PACKAGES):
            archive.add(package.folder() / name, arcname=f"trainjob/{name}", filter=_source)
        for name in selection.files if selection else ():
            archive.add(project.top / name, arcname=f"project/{name}", recursive=False)
    return stream.getvalue()


def _source(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in member.name or member.name.endswith(".bin") else member


def _ask(target: Target, words: Sequence[str], stdin: bytes = b"") -> Answer:
    """Return what a machine answers. Raises SshError when the one that jobs are handed over on can't be reached."""
    try:
        # A container has no SDK of its own to enable, and perhaps no bash.
        program = _PROBE if target.prefix != ("bash",) else f"{_SDK}\n{_PROBE}"
        ended = target.run(["-c", program, "sh", *words], stdin=stdin, timeout_s=_IMPORT_S if stdin else _ANSWER_S)
    except SshError:
        raise
    except UserError as error:
        return Answer(target, why=str(error))
    pairs = [line.split(" ", 1) for line in ended.text.splitlines() if " " in line]
    facts = {name: value for name, value in pairs if name != "no-ssh"}
    if "complete" not in facts:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.code}"])[-1]
        return Answer(target, why=last, unreachable=target.hop and ended.code == onward.FAILED)
    return Answer(target, facts, tuple(value for name, value in pairs if name == "no-ssh"))
