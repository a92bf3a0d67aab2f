"""What each rank observed, normalised so that a batch file and its adopted job can be compared."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from batchfiles.adoption.decisions import COMMAND_WORDS, tells_place
from batchfiles.adoption.parts import names_in
from batchfiles.adoption.start import main_launch
from batchfiles.bash.values import number
from batchfiles.rehearsal.environments import below, comparable, decided, differing
from batchfiles.rehearsal.recording import RecordedProcess, Recording
from batchfiles.slurm.script import BatchScript
from trainjob.contract.environment import LOCAL_RANK, RANK, WORLD_SIZE
from trainjob.contract.programs.ranks import SLURM_LOCAL_RANK, SLURM_RANK, SLURM_WORLD_SIZE
from trainjob.contract.programs.secret_names import holds_secret, is_secret_variable
from trainjob.rehearse.slurm import configuration

# Variables of a process whose place nothing else states, in order of precedence.
_RANK = (RANK, SLURM_RANK)
_WORLD = (WORLD_SIZE, SLURM_WORLD_SIZE)
_LOCAL = (LOCAL_RANK, SLURM_LOCAL_RANK)


class RankObservation(NamedTuple):
    """The place, folder, resources, command and environment of a rank."""

    rank: int
    world_size: int
    local_rank: int
    node: int
    folder: str  # in which it starts
    gpus: int  # that are visible to it
    cpus: int | None  # of the task that it is in; None if the file asks for none
    threads: str | None
    command: str  # its words, quoted as for a shell
    environment: tuple[tuple[str, str], ...]  # what the file decides
    limits: tuple[tuple[str, str], ...] = ()  # of ulimit, and the umask


def requested(script: BatchScript) -> frozenset[str]:
    """Return the variables that the file exports for its ranks, except those that state a rank's place."""
    given = [one for one in script.assignments if one.exported and "called" not in one.within]
    # Words of a command line are compared as such.
    names = {one.name for one in given if not holds_secret(one.value.text) and not COMMAND_WORDS.search(one.value.text)}
    names |= {name for launch in script.training for name in launch.settings}
    return frozenset(name for name in names if not tells_place(name) and not is_secret_variable(name))


def made_of(script: BatchScript) -> set[str]:
    """Return the variables of which the training's line is made: their words are compared as a command's."""
    used = names_in(" ".join(word.source for word in main_launch(script).outermost.command.words))
    return {one.name for one in script.assignments if one.name in used and COMMAND_WORDS.search(one.value.text)}


def drawn(script: BatchScript) -> set[str]:
    """Return the variables whose values are made anew in each run: of random numbers, and of the time."""
    return {
        one.name
        for one in script.assignments
        if re.search(r"\b(?:RANDOM|SRANDOM|SECONDS|date|shuf|mktemp|uuidgen)\b", " ".join(one.value.origins))
    }


def observe_ranks(
    recording: Recording,
    names: frozenset[str],
    cpus_asked: int | None = None,
    folders: Collection[str] = (),
    least: int = 0,
    program: Sequence[str] = (),
    base: str = "",
    elsewhere: Collection[str] = (),
) -> list[RankObservation]:
    """Return an observation of each rank of the first job, sorted by rank.

    CPUs are None unless the file asks for some (`cpus_asked`), and at least `least`. A path below a rank's own folder,
    or below one of `folders`, is relative in the result. `program` is the training: its name and its arguments.
    `base` is the folder in which ranks start unless the file moves; it is at the paths `elsewhere`, too.
    """
    ranks = recording.ranks(recording.jobs[0].id, program=program)
    # A job passes the address of the first node to its ranks, most batch files its name.
    head = "|".join(map(re.escape, (*recording.jobs[0].nodes[:1], configuration.ADDRESS)))
    # By the order of ranks: under c10d nodes number themselves as they arrive.
    nodes = list(dict.fromkeys(one.node for one in ranks))
    per_task = {step.id: max(least, step.cpus // max(1, step.tasks)) for step in recording.steps}

    def cpus(one: RecordedProcess) -> int | None:
        if not cpus_asked:
            return None
        step = one.environment.get("SLURM_STEP_ID")
        # A short step may have begun and ended between two looks at the controller. What the batch shell starts is no
        # task: it has the CPUs of all tasks.
        variables = ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE") if step else ("SLURM_CPUS_ON_NODE",)
        counts = (number(one.environment.get(name)) for name in variables)
        return per_task.get(f"{one.job}.{step}") or next((count for count in counts if count), None)

    def gpus(one: RecordedProcess) -> int:
        if one.visible_gpus is not None:
            return len(one.visible_gpus)
        listed = one.environment.get("CUDA_VISIBLE_DEVICES")
        return (
            recording.gpus_per_node
            if listed is None
            else len([name for name in listed.split(",") if name and name != "NoDevFiles"])
        )

    def command(one: RankObservation) -> str:
        return re.sub(rf"(?<![\w.-])(?:{head})(?![\w.-])", "the first node", one.command)

    seen = (
        (one, _observation(one, nodes, names, {one.folder, base or one.folder, *folders}, recording.given, base))
        for one in (replace(rank, folder=_moved(rank.folder, base, elsewhere)) for rank in ranks)
    )
    return sorted(of._replace(cpus=cpus(one), gpus=gpus(one), command=command(of)) for one, of in seen)


def _observation(
    one: RecordedProcess,
    nodes: Sequence[str],
    names: frozenset[str],
    folders: Collection[str],
    given: Mapping[str, str],
    base: str,
) -> RankObservation:
    environment = one.environment
    in_step = "SLURM_STEP_ID" in environment

    def first(known: int | None, candidates: Sequence[str], default: int) -> int:
        if known is not None:
            return known
        texts = [environment[name] for name in candidates if name in environment and (in_step or "SLURM" not in name)]
        return int(texts[0]) if texts and texts[0].isdigit() else default

    return RankObservation(
        rank=first(one.rank, _RANK, 0),
        world_size=first(one.world_size, _WORLD, 1),
        local_rank=first(one.local_rank if in_step else None, _LOCAL, 0),
        node=nodes.index(one.node),
        folder=_folder(one.folder, base),
        gpus=0,
        cpus=None,
        threads=environment.get("OMP_NUM_THREADS") if "OMP_NUM_THREADS" in names else None,
        command=re.sub(r"^\S*/", "", re.sub(r"(?<![.\w])\./", "", below(shlex.join(one.words), folders))),
        environment=tuple(sorted(decided(environment, given, names, folders).items())),
        limits=tuple(sorted(one.limits.items())),
    )


def _moved(path: str, base: str, elsewhere: Collection[str]) -> str:
    """Return a path below one of `elsewhere` as it is below `base`."""
    there = next((one for one in elsewhere if f"{path}/".startswith(f"{one}/")), None)
    return path if there is None else base + path.removeprefix(there)


def _folder(path: str, base: str) -> str:
    if "/spool-" in path:
        return "Slurm's spool folder"
    inside = os.path.relpath(path, base or path)
    return "the project's" if inside == "." else below(path, ()) if inside[:2] == ".." else f"the project's {inside}"


def without_what_was_given(
    theirs: RankObservation,
    ours: RankObservation,
    given: Mapping[str, str],
    folders: Collection[str],
    login: Collection[tuple[str, str]] = (),
) -> tuple[RankObservation, RankObservation]:
    """Return the observations of a rank in both, without the variables that neither the file nor the job decides.

    `login` are those that login shells set.
    """
    known = {name: comparable(name, value, given, folders) for name, value in given.items()}
    of_login = {(name, comparable(name, value, given, folders)) for name, value in login}
    environments = differing(dict(theirs.environment), dict(ours.environment), known, of_login)
    limits = differing(dict(theirs.limits), dict(ours.limits), dict(ours.limits))
    one, other = (
        observed._replace(environment=tuple(sorted(own.items())), limits=tuple(sorted(of.items())))
        for observed, own, of in zip((theirs, ours), environments, limits, strict=True)
    )
    return one, other


def with_cpus_of_a_node(
    ours: RankObservation, theirs: RankObservation | None, here: int, ranks: int = 0
) -> RankObservation:
    """Return `ours` as on a node with as many CPUs as it asks for; `here` are the CPUs of this machine."""
    if theirs is None:
        return ours
    if ours.cpus == ranks > (theirs.cpus or ranks):
        ours = ours._replace(cpus=theirs.cpus)  # the least that a plan takes is one for each rank
    asked = theirs.threads or ""
    if not asked.isdigit() or ours.threads != str(min(int(asked), here)):
        return ours
    own = dict(ours.environment) | {"OMP_NUM_THREADS": asked}
    return ours._replace(threads=asked, environment=tuple(sorted(own.items())))


def cpus_asked(script: BatchScript) -> int | None:
    """Return the CPUs that the file asks for, for each task or each GPU."""
    stated = (script.request.cpus_per_task, number(script.header.value("cpus-per-gpu")))
    return next((count for count in stated if count), None)
