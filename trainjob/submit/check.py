"""What can be seen to be wrong from here before a run is handed over; nothing is started or changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainjob.cluster.models import PodCluster, SlurmCluster
from trainjob.cluster.site import missing_facts
from trainjob.contract import manifest, ports, secrets, tasks
from trainjob.contract.errors import UserError
from trainjob.plan.engines import needs_mpirun
from trainjob.submit import containers, engines, machines, process
from trainjob.submit.checking import deep, limits, live, there
from trainjob.submit.checking.problem import Problem, of_error
from trainjob.submit.poprun import checks as poprun
from trainjob.submit.process import search_path
from trainjob.submit.ssh.failures import SshError

if TYPE_CHECKING:
    from trainjob.cluster.common import Container
    from trainjob.render.request import Request
    from trainjob.submit.project import Project, Selection


# The module that pip builds: the package itself is installed without it where torch was not there.
_HOROVOD_FOR_TORCH = (
    "(spec := importlib.util.find_spec('horovod')) and "
    "glob.glob(os.path.join(os.path.dirname(spec.origin or ''), 'torch', 'mpi_lib*'))"
)


@dataclass(frozen=True)
class Depth:
    """How far a check goes. `imports`: the task is imported and data is read; `partition`: sinfo is asked."""

    imports: bool = False
    partition: bool = False


def problems(
    request: Request, project: Project, selection: Selection | None, depth: Depth | None = None
) -> list[Problem]:
    """Return what is wrong with a job, in the order in which it would fail; a machine out of reach is one problem."""
    cluster = request.cluster
    if isinstance(cluster, SlurmCluster):
        return list(_under_slurm(request, cluster, project, selection, depth or Depth()))
    if isinstance(cluster, PodCluster):
        return list(_on_pod(request, cluster, project, selection, depth or Depth()))
    return list(_here(request, project, selection, depth or Depth()))


def _here(request: Request, project: Project, selection: Selection | None, depth: Depth) -> Iterator[Problem]:
    contained = containers.find(request)
    yield from _interpreter(request) if contained is None else _image(request, contained)
    yield from _mpirun(request)
    yield from _command(request, project.top / project.start) if contained is None else ()
    yield from _left_behind(request, project, selection)
    yield from _data(request)
    yield from _first_weights(request)
    yield from _secrets(request)
    yield from _port(request)
    if depth.imports:
        yield from deep.problems(machines.HERE, request, project, selection)


def _on_pod(
    request: Request, cluster: PodCluster, project: Project, selection: Selection | None, depth: Depth
) -> Iterator[Problem]:
    if request.job.command:
        yield from _missing_script(request.job.command, project.top / project.start)
    yield from _left_behind(request, project, selection)
    lacking = missing_facts(cluster)
    if lacking:
        text = f"cluster {request.plan.cluster} can be planned, and its file lacks {', '.join(lacking)}"
        yield Problem("facts", text, "Fill them in: trainjob cluster init NAME --kind ipu-pod shows where")
        return
    machine = machines.reached(cluster.ssh.host, cluster.ssh.user) if cluster.ssh else machines.HERE
    for problem in poprun.problems(request, cluster, machine):
        # Whether a limit matters can't be told from outside: it is told, and keeps no run from starting.
        if depth.imports or problem.code != "memlock":
            yield problem


def _under_slurm(
    request: Request, cluster: SlurmCluster, project: Project, selection: Selection | None, depth: Depth
) -> Iterator[Problem]:
    yield from limits.problems(request.plan.cluster, request, cluster)
    if request.job.command:
        yield from _missing_script(request.job.command, project.top / project.start)
    yield from _left_behind(request, project, selection)
    if cluster.ssh is None:
        yield from _first_weights(request)
    machine = machines.reached(cluster.ssh.host, cluster.ssh.user) if cluster.ssh else machines.HERE
    try:
        yield from there.problems(machine, request, cluster)
        if depth.imports:
            yield from deep.problems(machine, request, project, selection)
        if depth.partition:
            yield from live.problems(machine, request, cluster)
    except UserError as error:
        yield of_error("unreachable" if isinstance(error, SshError) else "slurm", error)


def _interpreter(request: Request) -> Iterator[Problem]:
    asked = getattr(request.cluster, "python", None)
    if asked and shutil.which(os.path.expanduser(asked), path=search_path()) is None:
        yield Problem(
            "interpreter",
            f"python: {asked} is not an interpreter that can be started",
            "Give the path of one that has torch, or take the key out",
        )
    elif not request.job.command and not _has_torch(os.path.expanduser(asked or "python3")):
        yield Problem(
            "torch",
            f"{asked or 'python3'} has no torch, which a task needs",
            "Install trainjob's extra `train` there, or name another interpreter (python: in the cluster file)",
        )


def _image(request: Request, asked: Container) -> Iterator[Problem]:
    interpreter = getattr(request.cluster, "python", None)
    why = engines.silence(asked.runtime)
    if why is not None:
        yield Problem("engine", *_two_sentences(why))
    elif not containers.has_image(asked):
        yield Problem(
            "image",
            f"{asked.runtime} has no image {asked.image}",
            f"Run: trainjob container build {request.plan.topology.device_word.lower().replace('gpu', 'cuda')} "
            f"--name {asked.image}, or {asked.runtime} pull {asked.image}",
        )
    elif not request.job.command and not containers.has_torch(asked, interpreter):
        yield Problem(
            "torch",
            f"image {asked.image} has no {interpreter or 'python3'} with torch, which a task needs",
            "Name an image that has, or its interpreter (python: in the cluster file)",
        )


def _has_torch(interpreter: str) -> bool:
    # Looked for and not imported: importing torch takes a second or two.
    return _has(interpreter, "importlib.util.find_spec('torch')")


def _has(interpreter: str, what: str) -> bool:
    program = shutil.which(interpreter, path=search_path()) or interpreter
    look = f"import glob, importlib.util, os, sys; sys.exit(not {what})"
    return process.run([program, "-c", look], check=False).code == 0


def _mpirun(request: Request) -> Iterator[Problem]:
    if not needs_mpirun(request.plan.engine):
        return
    if not _is_open_mpi():
        text = f"engine {request.plan.engine} needs Open MPI's mpirun, which is not on PATH"
        yield Problem("mpirun", text, "Install it (Debian: apt install openmpi-bin), or take --engine ddp")
    interpreter = os.path.expanduser(getattr(request.cluster, "python", None) or "python3")
    if not _has(interpreter, _HOROVOD_FOR_TORCH):
        yield Problem(
            "horovod",
            f"{interpreter} has no Horovod built for torch, which engine {request.plan.engine} needs",
            "Build it there with HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_MPI=1 pip install horovod, name an interpreter "
            "that has it (python: in the cluster file), or take --engine ddp",
        )


def _is_open_mpi() -> bool:
    program = shutil.which("mpirun", path=search_path())
    return program is not None and "Open MPI" in process.run([program, "--version"], check=False).text


def _command(request: Request, working_folder: Path) -> Iterator[Problem]:
    if not request.job.command:
        return
    program = request.job.command[0]
    if "/" in program:
        found = shutil.which(working_folder / program) is not None  # a folder is no program
        where = f"in {working_folder}"
    else:
        found = shutil.which(program, path=search_path()) is not None
        where = "on PATH"
    yield from _missing_script(request.job.command, working_folder)
    if not found:
        yield Problem(
            "command",
            f"command {program!r} is not an executable file {where}",
            "After -- comes a program and its arguments, as in: -- python train.py",
        )


def _missing_script(command: Sequence[str], working_folder: Path) -> Iterator[Problem]:
    # Only what can't be anything else: an interpreter's first word that ends like a script.
    if len(command) > 1 and command[1].endswith((".py", ".sh")) and not os.path.exists(working_folder / command[1]):
        text = f"{command[1]} is not there: looked in {working_folder}"
        yield Problem("script", text, "Give its path from the folder that you are in")


def _left_behind(request: Request, project: Project, selection: Selection | None) -> Iterator[Problem]:
    """Yield the files that the command names, that are there, and that the run would not have."""
    copied = frozenset(selection.files if selection else ())
    reasons = dict(selection.left_out if selection else ())
    for number, word in enumerate(dict.fromkeys(request.job.command or ())):
        name = os.path.normpath(os.path.join(project.start, word))
        if os.path.isabs(word) or name in copied or not os.path.isfile(project.top / name):
            continue
        if name in reasons:
            cure = "Give its absolute path, or read it from TRAINJOB_DATA_DIR"
            yield Problem("left-out", f"{word} is not copied into the run: {reasons[name]}", cure)
        elif _is_script(number, word):
            cure = f"Run: git add {word}, or give --untracked"
            yield Problem("untracked", f"{word} is not copied into the run: git does not track it", cure)


def _is_script(number: int, word: str) -> bool:
    # A file that the command writes, such as a log, may well lie here from last time: that is no mistake.
    return number < 2 or word.endswith((".py", ".sh"))


def _data(request: Request) -> Iterator[Problem]:
    facts = tasks.facts(request.job.task or "digits-cnn")
    name = request.job.data or (facts.data if facts else None)
    # A task makes up what is called synthetic where none is prepared.
    if request.job.command or name in (None, manifest.MADE_UP):
        return
    data_dir = request.cluster.data_dir
    if manifest.find(name, Path(data_dir).expanduser() if data_dir else None) is None:
        yield Problem(
            "data",
            f"data set {name} is not prepared in {data_dir or 'any data_dir'}",
            f"Run: trainjob data prepare {name} --cluster {request.plan.cluster}",
        )


def _first_weights(request: Request) -> Iterator[Problem]:
    if request.job.init_from and not Path(request.job.init_from).expanduser().is_file():
        text = f"init_from: {request.job.init_from} is not there"
        yield Problem("init-from", text, "Give a safetensors file: trainjob export RUN -o FILE writes one")


def _secrets(request: Request) -> Iterator[Problem]:
    if not request.cluster.secrets_file:
        return
    try:
        secrets.check_lines(Path(request.cluster.secrets_file).expanduser())
    except secrets.SecretsError as error:
        yield Problem("secrets", *_two_sentences(str(error)))


def _port(request: Request) -> Iterator[Problem]:
    port = request.cluster.network.port
    if port and not ports.is_free(port):
        yield Problem(
            "port",
            f"network.port is {port}, and on {ports.LOOPBACK} another program has it",
            "End that program, or take network.port out of the cluster file and a free one is chosen",
        )


def _two_sentences(message: str) -> tuple[str, str]:
    text, _, cure = message.partition(": ")
    return text, cure[:1].upper() + cure[1:]
