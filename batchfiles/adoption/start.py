"""The number of processes that a batch file starts, their nodes and GPUs, and how a job starts the same."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Literal, NamedTuple

from batchfiles.adoption.account import Account, Where
from batchfiles.adoption.explanations import WAITS_FOR_OTHERS
from batchfiles.adoption.parts import takes_arguments
from batchfiles.bash.commands import ShellCommand
from batchfiles.rules.started import tasks_without_starter
from batchfiles.slurm.launches import LaunchedProgram, number_of, option
from batchfiles.slurm.script import BatchScript
from trainjob.contract.errors import UserError
from trainjob.contract.programs import launchers
from trainjob.contract.programs.helpers import HELPERS, PRINTERS, SHELLS, helps
from trainjob.planning.words import quantity

_PROCESSES = launchers.option_names("ranks")
_KEEP = "keep this file"
_RAY_ROLE = "keep this file, or write a job file whose role has ray: true, which starts both (docs/jobs.md)"
# Ranks that differ, each in its own way.
_UNLIKE = {
    r"\bray\s+start\b": ("starts Ray by hand: a job's ranks are alike, and Ray has a head and workers", _RAY_ROLE),
    r"\bsrun\b[^;&|]*\s--multi-prog\b": (
        "starts other programs in other tasks (--multi-prog): a job's ranks are alike",
        _KEEP,
    ),
    r"\bsrun\b[^;&|]*\s--(?:het|pack)-group\b": ("starts parts of a heterogeneous job: a job's ranks are alike", _KEEP),
}
_STARTS_RAY = re.compile(
    r"(?i)(?:.*/)?(?:\w+[-_.])?ray(?:[-_.]\w+)*\.(?:sh|bash|py)|(?:.*/)?(?:start|launch|run|setup|init)[-_.]?ray\w*|"
    r"ray[-_]?(?:cluster|start|symmetric|head|worker)\w*"
)
_GPU = re.compile(r"(?i)\b(?:cuda|nccl|rccl|rocm|gpu|gpus|hip)\b|NCCL_|CUDA_|--?C\s*gpu|constraint=\w*gpu")


class AdoptionError(UserError):
    """A batch file that can't be turned into a job."""

    code = "adopt"


class AdoptedStart(NamedTuple):
    """The processes of a job: `ranks` on each of `nodes`, started one by one or once per node."""

    nodes: int
    ranks: int
    per: Literal["rank", "node"]
    gpus: int  # of each node; 0 on CPUs
    cpus: int | None  # of each node, as far as the file tells

    @property
    def gpus_beyond_ranks(self) -> bool:
        """True if processes use several GPUs each, which a plan does not know."""
        return self.per == "rank" and self.gpus > self.ranks

    @property
    def instances(self) -> int:
        """The ranks of the job."""
        return self.nodes * self.ranks


def main_launch(script: BatchScript) -> LaunchedProgram:
    """Return the launch that is the job's own work. Raises AdoptionError if there is none, or ranks are not alike."""
    _refuse_unlike(script)
    # A command is recorded once for each value of its variables: the first counts.
    alive = {
        (one.command.source, one.line, *one.command.literals): one
        for one in reversed(script.training)
        if not one.command.dead
    }
    launches = [one for one in reversed(alive.values()) if "handler" not in one.command.within]
    unread: list[LaunchedProgram] = []
    if not launches:  # a script of the shell that is not here
        scripts = [one for one in script.launches if _runs_script(one) and not one.command.dead]
        launches = [one for one in scripts if one.srun is not None or one.layer("container") is not None]
        unread = [one for one in scripts if one.program[1].source in script.shell.not_here and not one.is_beside]
        launches = launches or (unread if len(unread) == 1 else [])
    by_ssh = next((one for one in script.commands if one.name in ("ssh", "pdsh", "clush") and not one.dead), None)
    if not launches and by_ssh is not None:
        raise AdoptionError(
            f"{script.path}:{by_ssh.line} starts what trains by {by_ssh.name}, and a job starts it by srun",
            "write it as srun …, which starts it on every node",
        )
    by_argument = next((one for one in script.launches if _is_named_by_argument(script, one)), None)
    if not launches and by_argument is not None:
        raise AdoptionError(
            f"{script.path}:{by_argument.line} starts what an argument of the file names",
            f"give its arguments as for sbatch: trainjob adopt {script.path} -o DIR -- ARGUMENT…",
        )
    if not launches and unread:
        raise AdoptionError(
            f"{script.path}:{unread[0].line} starts {unread[0].program[1].text}, which is not here",
            "adopt it where that script is: only it tells what trains",
        )
    foreground = [one for one in launches if not one.command.background] or launches
    chosen = max(
        reversed(foreground),
        key=lambda one: (
            *(one.launcher is not None, one.srun is not None, not one.is_beside, one.is_python, one.line),
            not helps(one.command.piped_into or "tee"),  # and not the next program, which reads what it prints
        ),
        default=None,
    )
    images = (one for one in (script.launches if chosen is None else [chosen]) if one.runs_image)
    if (image := next((one for one in images if not one.command.dead), None)) is not None:
        raise AdoptionError(
            f"{script.path}:{image.line} leaves it to the image what it starts (run), and a job names its program",
            "write exec in place of run, and the program behind the image",
        )
    if chosen is None:
        raise AdoptionError(
            f"{script.path} starts nothing that trains: no torchrun, accelerate, srun or python was found",
            "name the batch file itself, not one that sends others",
        )
    before = takewhile(lambda one: one is not chosen, foreground)
    at_once = next((one for one in before if _are_at_once(script, one, chosen)), None)
    if at_once is not None:
        raise AdoptionError(
            f"{script.path} starts several trainings at once, in lines {at_once.line} and {chosen.line}: "
            "a job runs one",
            "adopt the file with one of them, and give the others as a sweep",
        )
    is_plain = chosen.is_python and all(layer.name == "python" for layer in chosen.layers)
    behind = (one for one in script.launches if is_plain and one.command.at > chosen.command.at and _may_train(one))
    if (other := next(behind, None)) is not None:
        raise AdoptionError(
            f"{script.path}:{other.line} may be the training, and so may line {chosen.line}: {other.name} runs in a "
            "container, and what it does is not known",
            "adopt the file without the one that doesn't train",
        )
    starter, by_mpirun = chosen.layer("mpirun"), option(chosen.launcher, "mpirun_hostfile")
    if starter is not None or by_mpirun is not None:
        name = "--mpirun_hostfile" if starter is None else starter.words[0].text
        raise AdoptionError(
            f"{script.path}:{chosen.line} starts its ranks by {name}, and a job's own command is started by srun",
            "start them with srun, if they need no MPI",
        )
    if chosen.launcher is not None and not chosen.program:
        raise AdoptionError(
            f"{script.path}:{chosen.line} starts {chosen.launcher.name} without a program",
            f"name it there, or give the arguments of the file: trainjob adopt {script.path} -o DIR -- ARGUMENT…",
        )
    return chosen


def _may_train(launch: LaunchedProgram) -> bool:
    """Return whether a container of the file's own starts a program that nobody knows, and waits for it."""
    command = launch.command
    is_awaited = not command.dead and not command.background and "handler" not in command.within
    return is_awaited and launch.layer("container") is not None and launch.name not in HELPERS and not launch.is_python


def _are_at_once(script: BatchScript, one: LaunchedProgram, other: LaunchedProgram) -> bool:
    """Return whether both run the same program at the same time, on nodes that are not told apart."""
    named = [option(of.srun, "nodelist") is None and "loop" not in of.command.within for of in (one, other)]
    is_alike = bool(one.name) and one.name == other.name and one.is_python == other.is_python and all(named)
    branches = {of.number: of.branch for of in other.command.conditions}
    is_instead = any(branches.get(of.number, of.branch) != of.branch for of in one.command.conditions)
    is_awaited = any(one.command.at < wait.at < other.command.at for wait in script.named("wait"))
    return is_alike and other.command.background and not is_instead and not is_awaited


def _refuse_unlike(script: BatchScript) -> None:
    """Raise AdoptionError for ranks that differ, each in its own way."""
    if (part := script.second_part) is not None:
        raise AdoptionError(
            f"{script.path}:{part} begins another part of a heterogeneous job: a job's ranks are alike", _KEEP
        )
    for command in script.commands:
        for pattern, (what, cure) in _UNLIKE.items():
            if re.search(pattern, command.text):
                raise AdoptionError(f"{script.path}:{command.line} {what}", cure)
        if script.header.value("array") is None and not command.dead and _submits_as_array(script, command):
            raise AdoptionError(
                f"{script.path}:{command.line} submits the file itself as an array, and ends",
                f"give the array as for sbatch: trainjob adopt {script.path} -o DIR -- --array=1-9",
            )
        words = [word.text for word in command.words[:6]]
        helper = next((word for word in words if _STARTS_RAY.fullmatch(word)), None)
        if helper is not None and command.name not in PRINTERS | {"echo", "printf"}:
            raise AdoptionError(
                f"{script.path}:{command.line} starts Ray by {helper}: a job's ranks are alike, and Ray has a head and "
                "workers",
                _RAY_ROLE,
            )


def _submits_as_array(script: BatchScript, command: ShellCommand) -> bool:
    text = " ".join(word.source for word in command.words)
    own = rf"\$\{{?0|BASH_SOURCE|\b{re.escape(script.path.name)}"
    return command.name == "sbatch" and bool(re.search(r"\s(?:--array|-a)\b", text)) and bool(re.search(own, text))


def _is_named_by_argument(script: BatchScript, launch: LaunchedProgram) -> bool:
    return (launch.is_python or launch.launcher is not None) and takes_arguments(script.line(launch.line))


def _runs_script(launch: LaunchedProgram) -> bool:
    words = [word.text for word in launch.program[:2]]
    return bool(words) and launch.name in SHELLS and words[-1].endswith((".sh", ".bash"))


def is_once_per_node(launch: LaunchedProgram) -> bool:
    """Return whether a loop over the nodes starts one launcher on each, which is what a job does."""
    return (
        "loop" in launch.command.within
        and launch.launcher is not None
        and launch.srun is not None
        and 1 in (number_of(launch.srun, "nodes"), number_of(launch.srun, "ntasks"))
        and (named := option(launch.srun, "nodelist")) is not None
        and not named.known
    )


NOT_ASKED = "no directive asks for GPUs, and the file looks at some: fill in accelerators of nodes, 0 if there are none"
_FILL_IN = "fill in nodes and instances"
_FROM_OUTSIDE = (
    ("--nodes", r"SLURM_(?:NNODES|JOB_NUM_NODES|JOB_NODELIST|NODELIST|NTASKS|NPROCS)\b", ("nodes", "ntasks"), _FILL_IN),
    ("--gpus-per-node", r"SLURM_GPUS\w*", ("gpus-per-node", "gpus", "gpus-per-task", "gres"), _FILL_IN),
)
_OF_ARRAY = ("--array", r"\$\{?SLURM_ARRAY_TASK_ID\b(?!:?[-=+])", ("array",), "fill in array")


def note_from_outside(script: BatchScript, launch: LaunchedProgram, account: Account) -> None:
    """Say which figures the file takes from sbatch's command line, as no directive states them."""
    text = "\n".join(line for line in script.lines if not line.lstrip().startswith("#"))
    own = "\n".join(
        [
            *(word.source for word in launch.outermost.command.words),
            *(one.text for one in script.assignments if not one.dead and not one.source),
        ]
    )
    rows = [(row, text) for row in _FROM_OUTSIDE if not script.request.exclusive]
    for (name, used, options, cure), where in [*rows, (_OF_ARRAY, own)]:
        is_stated = any(script.header.value(one) for one in options) or option(launch.srun, *options) is not None
        if not is_stated and re.search(used, where):
            what = f"no directive states it, so it comes from sbatch's command line: {cure}"
            account.note(Where.LOST, launch.place, name, what)


def start_of(script: BatchScript, launch: LaunchedProgram, account: Account) -> AdoptedStart:
    """Return what the job starts; where the file starts something else by mistake, `account` says so."""
    nodes = _nodes(script, launch, account)
    tasks = _tasks(script, launch, nodes)
    gpus = _gpus(script, launch, nodes, tasks, account)
    if nodes > 1 and _tells_worlds_apart(launch):
        raise AdoptionError(
            f"{script.path}:{launch.place} starts a world of its own on each of {nodes} nodes, and $SLURM_NODEID tells "
            "the program which one it is in: a job's ranks form one world",
            f"adopt a copy with --nodes=1, --array=0-{nodes - 1}, and $SLURM_ARRAY_TASK_ID in place of $SLURM_NODEID",
        )
    if launch.launcher is not None:
        if tasks > 1 and launch.srun is not None:
            account.changes.append(
                f"line {launch.place}: srun starts {tasks} launchers on each node; the job starts one, and it the ranks"
            )
        of_all, per_node = script.request.tasks, script.header.value("ntasks-per-node")
        if launch.srun is not None and per_node is None and of_all and of_all < nodes:
            account.changes.append(
                f"line {launch.place}: --ntasks={of_all} starts {quantity(of_all, 'launcher')} for {nodes} nodes; "
                "the job starts one on each"
            )
        ranks, gpus = _of_launcher(script, launch, nodes, gpus, account)
        return AdoptedStart(nodes, ranks, "node", gpus, _cpus(script, launch, tasks, gpus))
    cpus = _cpus(script, launch, tasks, gpus)
    if not gpus and _has_gpus(script):
        account.note(Where.LOST, launch.place, "GPUs", NOT_ASKED)
        return AdoptedStart(nodes, tasks, "rank", max(tasks, _gpus_chosen(script, launch)), cpus)
    if 0 < gpus < tasks:
        account.changes.append(
            f"line {launch.place}: {tasks} processes share {quantity(gpus, 'GPU')} on each node; "
            "the job starts one for each GPU"
        )
        return AdoptedStart(nodes, gpus, "rank", gpus, cpus)
    return AdoptedStart(nodes, tasks, "rank", gpus, cpus)


def _tells_worlds_apart(launch: LaunchedProgram) -> bool:
    """Return whether a launcher starts a world on each node alone, and its program is told the number of the node."""
    alone = launch.launcher is not None and (
        "standalone" in launch.launcher.options or number_of(launch.launcher, "nnodes") == 1
    )
    return alone and any("SLURM_NODEID" in source for word in launch.program for source in word.value.sources)


def _nodes(script: BatchScript, launch: LaunchedProgram, account: Account) -> int:
    asked, started = script.request.nodes, script.nodes_of(launch)
    if is_once_per_node(launch):
        return asked or 1
    stated = script.header.value("nodes")
    if stated is not None and asked is None:
        account.changes.append(
            f"line {script.header.line('nodes')}: --nodes={stated} is no number to sbatch; the job takes 1 node, "
            "or what --hosts says"
        )
    over_ssh = launch.launcher is not None and "hostfile" in launch.launcher.options  # deepspeed's own way
    if asked and started == 1 and launch.srun is None and asked > 1 and not over_ssh:
        told = number_of(launch.launcher, *launchers.option_names("nodes")) or 1
        account.changes.append(
            f"line {launch.place}: everything runs on the first of {asked} nodes; the job starts on all of them"
            f"{f'. {WAITS_FOR_OTHERS} {told} nodes' if told > 1 else ''}"
        )
    if launch.srun is None:
        return asked or 1
    if started is None and (total := number_of(launch.srun, "ntasks") or script.request.tasks):
        per_node = number_of(launch.srun, "ntasks-per-node") or script.request.tasks_per_node or total
        return max(1, -(-total // per_node))
    return started or asked or 1


def _tasks(script: BatchScript, launch: LaunchedProgram, nodes: int) -> int:
    if launch.srun is None and nodes == 1:
        return 1  # tasks that no srun starts only reserve CPUs
    per_node = script.request.tasks_per_node if launch.srun is None else script.tasks_per_node_of(launch)
    if per_node is None and (total := script.request.tasks):
        per_node = -(-total // nodes)
    return per_node or 1


def _gpus(script: BatchScript, launch: LaunchedProgram, nodes: int, tasks: int, account: Account) -> int:
    """Return the GPUs of each node."""
    request, srun = script.request, launch.srun
    for name in ("gres", "gpus-per-node", "gpus-per-task", "gpus"):
        if "$" in (script.header.value(name) or ""):
            account.changes.append(
                f"line {script.header.line(name)}: --{name}={script.header.value(name)} is no number to sbatch; "
                "the job takes 1 GPU, or as many as --instances says"
            )
            return 1
    per_task = (number_of(srun, "gpus-per-task") if srun is not None else None) or request.gpus_per_task
    if per_task is not None and srun is not None:
        return per_task * tasks
    of_node = request.gpus_of_node(nodes)
    started = script.gpus_of(launch) or of_node
    if 0 < of_node < started:
        account.changes.append(
            f"line {launch.place}: srun wants {started} GPUs on each node, and the directives ask for {of_node}; "
            f"the job asks for {started}"
        )
    return started


def _of_launcher(
    script: BatchScript, launch: LaunchedProgram, nodes: int, gpus: int, account: Account
) -> tuple[int, int]:
    """Return the ranks and the GPUs of each node."""
    own = number_of(launch.launcher, *_PROCESSES)
    chosen = option(launch.launcher, "include")
    if chosen is not None and re.fullmatch(r"localhost:[0-9,]+", chosen.text):
        own = chosen.text.count(",") + 1
    total = number_of(launch.launcher, "num_processes", "world_size")
    if own is None and total is not None:
        own = max(1, total // nodes)
        if total != own * nodes:
            account.changes.append(
                f"line {launch.place}: {total} processes on {nodes} nodes; the job starts {own * nodes}"
            )
    stated = option(launch.launcher, *_PROCESSES)
    if own is None and stated is not None and stated.text in ("auto", "gpu"):  # one for each that it sees
        own = _gpus_chosen(script, launch) or None
    is_open = stated is not None and stated.text not in ("auto", "gpu", "cpu") and not (gpus and stated.commands())
    if own is None and is_open:
        what = f"only a run knows it, and the job starts {gpus or 1} on each node: fill in instances"
        account.note(Where.LOST, launch.place, "the number of processes", what)
    if not gpus:
        has_gpus = _has_gpus(script) or (script.request.exclusive and (own or 1) > 1)
        if has_gpus:
            account.note(Where.LOST, launch.place, "GPUs", NOT_ASKED)
        return own or 1, (own or 1) if has_gpus else 0
    # torchrun's default is one process, and not one for each GPU.
    is_torchrun = launch.launcher is not None and launch.launcher.name == "torchrun"
    starts_one = is_torchrun and option(launch.launcher, "nproc_per_node") is None
    if own not in (None, gpus) or (own is None and gpus > 1 and starts_one):
        account.changes.append(
            f"line {launch.place}: {own or 1} of {gpus} GPUs on each node would get a process; the job starts {gpus}"
            if (own or 1) < gpus
            else f"line {launch.place}: {own} processes share {quantity(gpus, 'GPU')} on each node; "
            f"the job starts {gpus}"
        )
    return gpus, gpus


def _has_gpus(script: BatchScript) -> bool:
    """Return whether a file that asks for no GPUs is about them, as at sites that give whole nodes."""
    return any(_GPU.search(line) for line in script.lines)


def _gpus_chosen(script: BatchScript, launch: LaunchedProgram) -> int:
    """Return how many GPUs a variable of the file names."""
    own = {**launch.command.settings, **launch.settings}
    values = [*((one.name, one.value) for one in script.assignments), *own.items()]
    named = [value.text for name, value in values if name.endswith("_VISIBLE_DEVICES")]
    return max((text.count(",") + 1 for text in named if re.fullmatch(r"\d+(?:,\d+)*", text)), default=0)


def _cpus(script: BatchScript, launch: LaunchedProgram, tasks: int, gpus: int) -> int | None:
    """Return the CPUs that the job has on each node; None if the file leaves them to the site."""
    per_gpu = script.header.value("cpus-per-gpu")
    if per_gpu is not None and per_gpu.isdigit() and gpus:
        return int(per_gpu) * gpus
    per_task = (number_of(launch.srun, "cpus-per-task") if launch.srun else None) or script.request.cpus_per_task
    if per_task is None:
        return tasks_without_starter(script)
    # Where no srun starts them, tasks of the request still hold CPUs; but not those of --ntasks-per-gpu alone.
    stated = any(script.header.value(name) for name in ("ntasks", "ntasks-per-node"))
    return per_task * max(tasks, (script.request.tasks_per_node or 1) if stated else 1)
