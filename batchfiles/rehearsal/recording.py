"""The record of a batch file that ran: its jobs, its steps, and what each process and each rank saw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from trainjob.contract.programs import launchers
from trainjob.contract.programs.helpers import CONTAINERS, ENVIRONMENTS
from trainjob.contract.programs.ranks import (
    LOCAL_RANK_VARIABLES,
    RANK_VARIABLES,
    SLURM_LOCAL_RANK,
    WORLD_SIZE_VARIABLES,
)
from trainjob.records.files import read_first, read_json

_MOST_CALL_BYTES = 1 << 22

# Modules of `python -m` and programs that start ranks, or help to, and are none themselves.
_NO_RANKS = (
    *(name for name in launchers.FIRST_WORDS if "." in name),
    *("trainjob.launch", "pip", "venv", "multiprocessing.resource_tracker"),
)


@dataclass(frozen=True)
class RankGroup:
    """A group of ranks that found each other: `id` is the same in its ranks, and in no other."""

    id: str
    rank: int
    size: int
    backend: str


@dataclass(frozen=True)
class Rendezvous:
    """The place where a rank began to wait for the others, and the figures that it brought."""

    rank: int | None
    world_size: int | None
    address: str | None
    port: int | None


@dataclass(frozen=True)
class RecordedProcess:
    """A Python process of a job. Fields are None where it never came so far."""

    node: str
    pid: int
    parent: int
    began_at: float
    words: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    cpus: int  # that it may run on
    threads: int | None = None  # of torch
    torch: str | None = None  # its version; "" while it is being imported
    meeting: Rendezvous | None = None
    world: RankGroup | None = None
    visible_gpus: tuple[int, ...] | None = None  # the node's own numbers of stand-in GPUs
    used_gpus: tuple[int, ...] = ()  # that held its tensors
    handles: tuple[str, ...] = ()  # signals, without SIG
    signals: tuple[str, ...] = ()  # that came, and that it handled
    error: str | None = None
    missing: str | None = None  # the file whose absence ended it
    line: str | None = None  # of the user's own file, where the error was raised
    has_ended: bool = False  # by itself; False for a process that was killed
    cpu_s: float = 0.0
    interface: str | None = None  # of the network, that GLOO_SOCKET_IFNAME names and that is not here
    exit_code: int | None = None  # that it gave to sys.exit
    ended_at: float | None = None  # None for one that was killed, or still runs
    limits: Mapping[str, str] = field(default_factory=dict)  # those of ulimit, and the umask

    @property
    def rank(self) -> int | None:
        """Its rank in its world, or else the one in its environment."""
        if self.world is not None:
            return self.world.rank
        asked = self.meeting.rank if self.meeting else None
        return asked if asked is not None else _first(self.environment, RANK_VARIABLES)

    @property
    def world_size(self) -> int | None:
        """The size of its world, or else the one in its environment."""
        if self.world is not None:
            return self.world.size
        asked = self.meeting.world_size if self.meeting else None
        return asked if asked is not None else _first(self.environment, WORLD_SIZE_VARIABLES)

    @property
    def local_rank(self) -> int | None:
        """Its number on its node, from its environment."""
        return _first(self.environment, (*LOCAL_RANK_VARIABLES, SLURM_LOCAL_RANK))

    @property
    def address(self) -> str | None:
        """The place where ranks meet, as host:port; None if it was told none."""
        host, port = self.environment.get("MASTER_ADDR"), self.environment.get("MASTER_PORT")
        return f"{host}:{port or '?'}" if host else None

    @property
    def job(self) -> str:
        """Slurm's id of the job; of an array, that of the element."""
        return self.environment.get("SLURM_JOB_ID", "")

    @property
    def attempt(self) -> int:
        """How often Slurm has started the job, this time included."""
        return (_first(self.environment, ("SLURM_RESTART_COUNT",)) or 0) + 1

    @property
    def is_launcher(self) -> bool:
        """Whether it starts ranks, or only helps a script."""
        words = [word.rpartition("/")[2] for word in self.words[:4]]
        is_question = words[1:2] == ["-c"] and "\n" not in "".join(self.words[2:3]).strip()  # one line
        if is_question or any(word in _NO_RANKS for word in words):
            return "--multiprocessing-fork" not in self.words
        return any(launchers.find(words[at:]) for at in range(min(2, len(words))))

    @property
    def command(self) -> str:
        """Its command line, as a person would write it."""
        return " ".join([self.words[0].rpartition("/")[2], *self.words[1:]]) if self.words else ""

    def as_json(self) -> dict[str, Any]:
        """Return a rank's environment and actions, for `--json`."""
        return {
            "node": self.node,
            "rank": self.rank,
            "world_size": self.world_size,
            "local_rank": self.local_rank,
            "world": self.world.id if self.world else None,
            "meets_at": self.address,
            "gpus": list(self.used_gpus),
            "visible_gpus": None if self.visible_gpus is None else list(self.visible_gpus),
            "cpus": self.cpus,
            "cpus_per_task": self.environment.get("SLURM_CPUS_PER_TASK"),
            "threads": self.threads,
            "handles": list(self.handles),
            "signals": list(self.signals),
            "command": list(self.words),
            "error": self.error,
        }


@dataclass(frozen=True)
class Call:
    """A program of the batch file that was recorded, and perhaps stood in for."""

    node: str
    in_step: bool  # called by a task of srun's; else by the batch shell
    folder: str
    words: tuple[str, ...]
    at: float = 0.0

    @property
    def name(self) -> str:
        """The program."""
        return self.words[0]

    @property
    def is_stood_in_for(self) -> bool:
        """Whether it did here what the program would have done, as far as that is possible."""
        return self.name in (*ENVIRONMENTS, *CONTAINERS, "source", "cd", "copy", "stand-in")


@dataclass(frozen=True)
class SlurmStep:
    """A step of srun's, as the controller knew it."""

    id: str
    name: str
    nodes: tuple[str, ...]
    tasks: int
    cpus: int  # of all tasks


@dataclass(frozen=True)
class EndedJob:
    """A job, or an element of an array, at its end."""

    id: str  # as processes know it
    state: str  # Slurm's
    exit_code: int
    signal: int
    nodes: tuple[str, ...]  # of the first attempt
    restarts: int
    reason: str
    output: str  # the last lines
    output_file: str


@dataclass(frozen=True)
class Recording:
    """All that was seen of a batch file."""

    jobs: Sequence[EndedJob]
    steps: Sequence[SlurmStep]
    processes: Sequence[RecordedProcess]
    calls: Sequence[Call]
    gpus_per_node: int
    stopped: str | None = None  # why the rehearsal ended the job; None if it ended by itself
    refused: str | None = None  # the error with which sbatch refused the file
    notes: Sequence[str] = ()  # of the stand-in GPUs: mistakes that raised no error
    given: Mapping[str, str] = field(default_factory=dict)  # the environment in which sbatch was called
    login: frozenset[tuple[str, str]] = frozenset()  # the variables that login shells set here, and their values
    slurm_logs: str = ""  # the last lines, where Slurm itself is to blame

    def ranks(self, job: str, attempt: int = 1, program: Sequence[str] = ()) -> list[RecordedProcess]:
        """Return the processes that trained in one attempt of a job, by node and rank.

        What does not run `program`, a name and its arguments, only prepares the training, or looks at its results; so
        do others that run it, where one has exactly these arguments.
        """
        own = [one for one in self.processes if one.job == job and one.attempt == attempt]
        name = "".join(program[:1]).rpartition("/")[2]
        training = [one for one in own if name in (word.rpartition("/")[2] for word in one.words)]
        exact = [one for one in training if program and list(one.words[-len(program) :]) == list(program)]
        training = exact or training
        for one in sorted(own, key=lambda process: process.began_at):  # what it starts, such as ranks of mp.spawn
            if training and one not in training and any((one.node, one.parent) == (of.node, of.pid) for of in training):
                training.append(one)
        return sorted(
            _ranks(training) or _ranks(own), key=lambda one: (one.rank is None, one.rank or 0, one.node, one.began_at)
        )


def _ranks(processes: Sequence[RecordedProcess]) -> list[RecordedProcess]:
    """Return those that met others, else those that were told a rank, else those that are no launcher."""
    met = [one for one in processes if one.meeting or one.world]
    if met:
        return met
    candidates = [one for one in processes if not one.is_launcher]
    with_rank = [one for one in candidates if _first(one.environment, RANK_VARIABLES) is not None]
    with_torch = [one for one in candidates if one.torch is not None]
    return with_rank or with_torch or candidates


def processes_in(folder: Path) -> list[RecordedProcess]:
    """Return the processes that left a record in `folder`, in the order in which they began."""
    found = (read_json(path) for path in sorted(folder.glob("process-*.json")))
    return [_process(left) for left in found if isinstance(left, dict)]


def _process(left: Mapping[str, Any]) -> RecordedProcess:
    known = {one.name for one in fields(RecordedProcess)} - {"torch", "world"}
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in left.items() if name in known
    }
    meeting, world = left.get("joining"), left.get("world")
    return RecordedProcess(
        **given,
        torch=(left["torch"] or "") if "torch" in left else None,
        meeting=None if meeting is None else Rendezvous(**meeting),
        # A store without agreed names leaves the place where they met.
        world=None if world is None else RankGroup(**{**world, "id": world["id"] or str(meeting)}),
        has_ended=bool(left.get("ended")),
    )


def calls_in(folder: Path) -> list[Call]:
    """Return the calls that were recorded in `folder`, in order."""
    paths = sorted((int(path.name.split("-")[1]), path) for path in folder.glob("call-*"))  # in nanoseconds
    texts = ((at, read_first(path, _MOST_CALL_BYTES).decode(errors="replace").split("\0")) for at, path in paths)
    # Outside of the nodes only the rehearsal itself calls programs.
    return [
        Call(node, bool(step), where, tuple(words), at / 1e9)
        for at, (node, step, where, *words) in ((at, text[:-1]) for at, text in texts if len(text) > 4)
        if node
    ]


def _first(environment: Mapping[str, str], names: Iterable[str]) -> int | None:
    values = (environment.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdigit()), None)
