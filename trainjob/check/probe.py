"""Asks machines for facts, with one command for all questions: every host if the cluster file names its hosts."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainjob.backends import containers
from trainjob.check import requirements, script
from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.machines.access import HERE
from trainjob.machines.process import path_of_ranks
from trainjob.machines.ssh import onward
from trainjob.machines.ssh.failures import SshError

if TYPE_CHECKING:
    from trainjob.backends.project import Project, Selection
    from trainjob.machines.machine import Machine
    from trainjob.machines.process import Completed
    from trainjob.render.request import Request

_LAUNCH = str(package.folder() / "launch" / "main.py")
_SDK = package.program(_LAUNCH, "shell/sdk.sh")
_PROBE = package.program(__file__, "probe.sh")
# What a scheduler's job does first: without it, the probe would find what only the submitting shell has.
_CLEAN = f"{package.program(_LAUNCH, 'shell/slurm_environment.sh')}\nclean_environment\n"
_AS_JOB = {
    "caller": "",
    "clean": f"path_of_caller=$PATH\n{_CLEAN}",
    "login": f"login_environment=1\n{_CLEAN}",
}
# A login shell begins with nothing of the shell that calls it.
_LOGIN = (
    'exec env -i HOME="$HOME" USER="$(id -un)" LOGNAME="$(id -un)" SHELL="${SHELL:-/bin/bash}" '
    'path_of_caller="$PATH" bash -l -c "$@"'
)
# Importing torch from a busy file server can take minutes.
_ANSWER_S, _IMPORT_S = 120.0, 300.0
_AT_ONCE = 8
# It has all words of the user's command, which, quoted for each ssh on the way, can be too long for an argument.
_PACKED = "script-questions"


@dataclass(frozen=True)
class ProbeTarget:
    """One machine to ask. `hop`: `machine` reaches it by ssh; `prefix`: the words that start a shell on it."""

    name: str
    machine: Machine
    hop: bool = False
    prefix: tuple[str, ...] = ("bash",)
    environment: str = "caller"  # of a job's script there, as the cluster says

    def run(self, words: Sequence[str], *, stdin: bytes = b"", timeout_s: float = _ANSWER_S) -> Completed:
        """Return the result of a shell with these words on the machine; callers check the exit code."""
        line = [*self.prefix, *words]
        if self.hop:
            line = onward.command(self.name, line)
        return self.machine.run(line, stdin=stdin, timeout_s=timeout_s, check=False)


@dataclass(frozen=True)
class ProbeAnswer:
    """The answer of one machine. `why`: the reason if it gave none; `unreachable`: ssh failed."""

    target: ProbeTarget
    facts: Mapping[str, str] = field(default_factory=dict)
    cannot_reach: tuple[str, ...] = ()  # hosts that the machine can't log in to, each with the reason
    why: str | None = None
    unreachable: bool = False


def targets(request: Request, machine: Machine) -> list[ProbeTarget]:
    """Return the hosts that the cluster file names; else the machine on which jobs are submitted."""
    names = requirements.host_names(request)
    # The only host of a pod is the machine on which jobs are submitted.
    if not names or (len(names) == 1 and request.cluster.ranks_by == "poprun"):
        path = f"PATH={path_of_ranks(is_command=bool(request.job.command))}"
        prefix = ("env", path, "bash") if request.cluster.trains_here else ("bash",)
        name = f"host {names[0]}" if names else machine.name
        return [ProbeTarget(name, machine, prefix=prefix, environment=request.cluster.job_environment)]
    return [ProbeTarget(name, machine, hop=True) for name in names]


def listed(answers: Sequence[ProbeAnswer]) -> str:
    """Return the names of machines for a message: "this machine", "login", "hosts h1, h2"."""
    names = ", ".join(answer.target.name for answer in answers)
    if not answers[0].target.hop:
        return names
    return f"{'host' if len(answers) == 1 else 'hosts'} {names}"


def ask_hosts(
    request: Request, machine: Machine, project: Project, selection: Selection | None
) -> tuple[ProbeAnswer, ...]:
    """Return the answer of every host. For a host that is down, the answer says so.

    Raises SshError if `machine` itself can't be reached.
    """
    hosts = targets(request, machine)
    logins = [f"ssh={target.name}" for target in hosts if target.hop]
    facts = requirements.of_machine(request)
    has_interpreter = containers.find(request) is None
    first = requirements.of_interpreter(request, imports_task=True) if has_interpreter else {}
    # After the other's questions, of which `unpack` may be "no".
    first |= script.of_interpreter(request, project, selection) if has_interpreter else {}
    # Only the first host imports the task. The other hosts' virtualenvs are compared with its versions.
    others = requirements.of_interpreter(request, imports_task=False) if has_interpreter else {}
    stdin = _packed(first, project, selection)
    from concurrent.futures import ThreadPoolExecutor  # takes a while to load

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        pending = [pool.submit(_ask, hosts[0], {**facts, **first}, stdin, logins)]
        pending += [pool.submit(_ask, target, {**facts, **others}, logins=logins) for target in hosts[1:]]
        return tuple(future.result() for future in pending)


def ask_here(questions: Mapping[str, str], project: Project, selection: Selection | None) -> ProbeAnswer:
    """Return the answer of this machine, with the environment of this process."""
    return _ask(ProbeTarget(HERE.name, HERE), questions, _packed(questions, project, selection))


def ask_container(request: Request, machine: Machine, project: Project, selection: Selection | None) -> ProbeAnswer:
    """Return the answer of the image's interpreter, in a container that is removed afterwards."""
    container = request.cluster.container
    flags = ("--rm", "--interactive", "--network", "none", "--pull", "never", "--entrypoint", "sh")
    target = ProbeTarget(
        f"image {container.image}", machine, prefix=(container.runtime, "run", *flags, str(container.image))
    )
    questions = requirements.of_interpreter(request, imports_task=True)
    return _ask(target, questions, _packed(questions, project, selection))


def _packed(questions: Mapping[str, str], project: Project, selection: Selection | None) -> bytes:
    """Return an archive of the runtime and the project's files, laid out as in code/ of a run; empty without a task.

    For a script it has the project's Python files alone, and the questions about it.
    """
    if questions.get("unpack") != "yes":
        return b""

    import tarfile

    def source(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if "__pycache__" in member.name or member.name.endswith(".bin") else member

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        is_task = "script-program" not in questions
        for name in ("__init__.py", *package.RUNTIME_PACKAGES) if is_task else ():
            archive.add(package.folder() / name, arcname=f"trainjob/{name}", filter=source)
        for name in selection.files if selection else ():
            if is_task or name.endswith(".py"):
                archive.add(project.top / name, arcname=f"project/{name}", recursive=False)
        if _PACKED in questions:
            content = questions[_PACKED].encode()
            member = tarfile.TarInfo(_PACKED)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def _ask(
    target: ProbeTarget, questions: Mapping[str, str], stdin: bytes = b"", logins: Sequence[str] = ()
) -> ProbeAnswer:
    """Return a machine's answer. Raises SshError if the machine on which jobs are submitted can't be reached."""
    words = [*logins, *(f"{name}={value}" for name, value in questions.items() if name != _PACKED)]
    try:
        # A container has no SDK to enable, and perhaps no bash.
        program = _PROBE if target.prefix != ("bash",) else f"{_AS_JOB[target.environment]}{_SDK}\n{_PROBE}"
        line = ["-c", program, "sh", *words]
        if target.environment == "login":
            line = ["-c", _LOGIN, "bash", *line[1:]]
        ended = target.run(line, stdin=stdin, timeout_s=_IMPORT_S if stdin else _ANSWER_S)
    except SshError:
        raise
    except UserError as error:
        return ProbeAnswer(target, why=str(error))
    pairs = [line.split(" ", 1) for line in ended.text.splitlines() if " " in line]
    facts = {name: value for name, value in pairs if name != "no-ssh"}
    if "complete" not in facts:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.code}"])[-1]
        return ProbeAnswer(target, why=last, unreachable=target.hop and ended.code == onward.FAILED)
    return ProbeAnswer(target, facts, tuple(value for name, value in pairs if name == "no-ssh"))
