"""Jobs as Slurm's commands print them, and what their states mean in plain words."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainjob.backends.base import Answer, Liveness
from trainjob.cluster.slurm_text import seconds
from trainjob.contract import clock, package, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import ELEMENTS
from trainjob.machines.machine import Machine
from trainjob.machines.slurm import commands
from trainjob.machines.slurm.commands import ControllerDownError

# The run directory last: it alone may contain the character that separates the fields.
_FORMAT = "%A|%i|%K|%T|%r|%S|%M|%l|%L|%N|%Z"
_FIELDS, _NODES = 11, 9

# A job, or an element of an array. Of a job on several groups of nodes, which Slurm counts as several jobs, the first.
_SHOWN_ID = re.compile(r"([0-9]+)(?:_[^+]*|\+([0-9]+))?")
_ACCOUNTED_JOB = re.compile(r"([0-9]+(?:_[0-9]+)?)(?:\+0)?")

# What it means that a job has ended in a state of Slurm's: our state, and a note. A COMPLETED run says so itself.
_ENDED: dict[str, tuple[str | None, str]] = {
    "COMPLETED": (None, "Slurm calls the job COMPLETED, but its run directory does not say so"),
    "FAILED": (states.FAILED, "Slurm calls the job FAILED"),
    "TIMEOUT": (states.TIMEOUT, "Slurm ended it at its time limit"),
    "DEADLINE": (states.TIMEOUT, "Slurm ended it at its deadline"),
    "CANCELLED": (states.CANCELLED, "cancelled in Slurm"),
    "PREEMPTED": (states.CANCELLED, "preempted by a job of higher priority, and not requeued"),
    "OUT_OF_MEMORY": (
        states.FAILED,
        "a node ran out of memory: ask for more (directives.mem), or for fewer instances per node",
    ),
    "BOOT_FAIL": (states.FAILED, "a node could not be started"),
    "NODE_FAIL": (states.LOST, "a node failed, and the job was not requeued"),
    "REVOKED": (states.LOST, "Slurm calls the job REVOKED"),
}
_WAITS_FOR = {
    "Priority": "because other jobs have priority",
    "Resources": "for nodes to become free",
    "None": "for the scheduler to consider it",
    "Dependency": "for the job that it depends on",
    "DependencyNeverSatisfied": "forever, because the job that it depends on has failed: cancel it",
    "BeginTime": "for its start time (after a requeue Slurm waits two minutes)",
    "JobHeldUser": "because its user holds it: scontrol release",
    "JobHeldAdmin": "because an administrator holds it: ask them",
    "ReqNodeNotAvail": "for nodes that are down or reserved",
    "Reservation": "for a reservation to begin",
    "PartitionDown": "for its partition, which is down",
    "PartitionInactive": "for its partition, which takes no jobs now",
    "PartitionNodeLimit": "forever: it asks for more or fewer nodes than its partition allows (MaxNodes, MinNodes)",
    "PartitionTimeLimit": "forever: it asks for more time than its partition allows",
    "QOSJobLimit": "until fewer jobs of its QOS run",
    "QOSNotAllowed": "forever: you may not use its QOS, or its partition does not allow it",
    "QOSTimeLimit": "forever: it asks for more time than its QOS allows",
    "QOSUsageThreshold": "until its QOS has been used less",
    "JobArrayTaskLimit": "for earlier elements of its array",
    "Licenses": "for licences",
    "BadConstraints": "forever: no node has what it asks for",
    "launch failed requeued held": "and is held, because its nodes could not start it (scontrol show job)",
}
# A limit of a QOS or an association (your account, or you in it), as slurm's job_reason_str writes it.
_LIMIT = re.compile(r"(QOS|Assoc|)(Grp|Max|Min)([A-Za-z]+?)(PerUser|PerAccount|PerJob|PerNode|)(Limit|NotSatisfied|)")
_LIMITED = {
    **dict.fromkeys(("Cpu", "CPU"), "CPUs"),
    **dict.fromkeys(("GRES", "Gres"), "accelerators"),
    **dict.fromkeys(("Mem", "Memory"), "memory"),
    **dict.fromkeys(("Wall", "WallDuration"), "time"),
    **dict.fromkeys(("SubmitJob", "SubmitJobs"), "submitted jobs"),
    "Node": "nodes",
    "Jobs": "running jobs",
    "CPUMinutes": "CPU minutes",
    "CPURunMinutes": "CPU minutes of running jobs",
    "GRESMinutes": "accelerator minutes",
    "GRESRunMinutes": "accelerator minutes of running jobs",
}
_NEVER = ("N/A", "NONE", "")
_FIELD = re.compile(r"(\w+)=(\S*)")
_FOLDER = re.compile(r" WorkDir=(.*?)(?: \w+=|$)")
_SUBMITTED_ID = re.compile(r"([0-9]+)(;[\w.-]+)?", re.ASCII)


@dataclass(frozen=True)
class QueuedJob:
    """One line of squeue. `id` is a job's own number; `array_id` that of its array, or its own.

    `index` is the number of an element of an array, "N/A" for other jobs. `folder` is where sbatch was called.
    """

    id: str
    array_id: str
    index: str
    state: str
    reason: str
    start: str
    elapsed: str
    time_limit: str
    time_left: str
    nodes: str
    folder: str

    @property
    def name(self) -> str:
        """The name of this very job for Slurm's commands: an element of an array by both numbers."""
        return f"{self.array_id}_{self.index}" if self.index.isdecimal() else self.array_id

    @property
    def run_folder(self) -> str:
        """The job's run directory: that of an element lies below that of its array."""
        return f"{self.folder}/{ELEMENTS}/{self.index}" if self.index.isdecimal() else self.folder

    @property
    def facts(self) -> dict[str, str]:
        """The job's id, nodes and times, as far as Slurm gives them."""
        times = {} if self.state == "PENDING" else {"elapsed": self.elapsed, "time_left": self.time_left}
        every = {"job_id": self.name, "nodes": self.nodes, "time_limit": self.time_limit, **times}
        order = ("job_id", "nodes", "elapsed", "time_limit", "time_left")
        return {key: every[key] for key in order if every.get(key) not in (None, "INVALID", "NOT_SET", *_NEVER)}

    @property
    def started_at(self) -> float | None:
        """When it was started, by this machine's clock; None unless it is RUNNING."""
        if self.state != "RUNNING" or not re.fullmatch("[0-9:-]+", self.elapsed):
            return None
        return clock.time() - (seconds(self.elapsed) or 0)

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs or waits."""
        return self.state in _ENDED

    def is_called(self, name: str) -> bool:
        """Return whether `name` names this job: its own id, that of its array, or one of the elements that wait."""
        # Elements of an array that wait are one job, whose index is a range.
        in_range = "_" in name and self.array_id == name.partition("_")[0] and not self.index.isdecimal()
        return name in (self.name, self.array_id) or in_range


def jobs(machine: Machine, timeout_s: float) -> list[QueuedJob]:
    """Return all jobs of this user that squeue lists. Raises as commands.call does, and for an answer that is none."""
    return jobs_in(listing(machine, timeout_s), machine)


def listing(machine: Machine, timeout_s: float) -> str:
    """Return what squeue prints of this user's jobs. Raises as commands.call does."""
    command = package.program_command(__file__, "squeue", _FORMAT)
    return commands.call(machine, command, program="squeue", timeout_s=timeout_s).text


def jobs_in(text: str, machine: Machine) -> list[QueuedJob]:
    """Return the jobs in what squeue has printed. Raises ControllerDownError where none of it is an answer."""
    found = list(parse(text))
    if text.strip() and not found:
        raise unreadable("squeue", machine, text)
    return found


def unreadable(program: str, machine: Machine, text: str) -> ControllerDownError:
    """Return the error of a site whose command exits with 0 and prints something else than was asked for."""
    lines = text.strip().splitlines()
    shown = repr(lines[0][:80]) if lines else "nothing"
    return ControllerDownError(f"{program} on {machine.name} should list jobs, but printed {shown}", is_lost=False)


def parse(text: str) -> Iterator[QueuedJob]:
    """Yield the jobs in the output of squeue; other lines are ignored.

    The parts of a job on several groups of nodes are one job: the first, with the nodes of all.
    """
    rows = [line.strip().split("|", _FIELDS - 1) for line in text.splitlines()]
    rows = [row for row in rows if len(row) == _FIELDS and row[0].isdigit() and row[3].isupper()]
    shown = [_SHOWN_ID.fullmatch(row[1]) for row in rows]
    nodes_of_parts: dict[str, list[str]] = {}
    for row, found in zip(rows, shown, strict=True):
        if found and found[2]:
            nodes_of_parts.setdefault(found[1], []).append(row[_NODES])
    for row, found in zip(rows, shown, strict=True):
        if found and found[2] in (None, "0"):
            job = QueuedJob(row[0], found[1], *row[2:])
            nodes = ",".join(filter(None, nodes_of_parts.get(found[1], ())))
            yield dataclasses.replace(job, nodes=nodes) if found[2] else job


def parse_shown(text: str) -> Iterator[QueuedJob]:
    """Yield the jobs in the output of `scontrol show job -o`, one a line."""
    for line in text.splitlines():
        # A comment, which comes last, may hold anything.
        words: dict[str, str] = dict(reversed(_FIELD.findall(line)))
        folder = _FOLDER.search(line)
        is_job = words.get("JobId", "").isdigit() and words.get("HetJobOffset", "0") == "0"
        if is_job and words.get("JobState", "").isupper() and folder:
            yield QueuedJob(
                id=words["JobId"],
                array_id=words.get("ArrayJobId") or words["JobId"],
                index=words.get("ArrayTaskId", "N/A"),
                state=words["JobState"],
                reason=words.get("Reason", "None"),
                start=words.get("StartTime", "N/A").replace("Unknown", "N/A"),
                elapsed=words.get("RunTime", ""),
                time_limit=words.get("TimeLimit", ""),
                time_left="",
                nodes=words.get("NodeList", "").replace("(null)", ""),
                folder=folder[1],
            )


def submitted_id(output: str) -> str | None:
    """Return the job id in the output of sbatch; None if there is none."""
    # A line of its own, "123", or "123;cluster" where there are several clusters: a number may stand in any message.
    matches = (_SUBMITTED_ID.fullmatch(line.strip()) for line in output.splitlines())
    return ([match[1] for match in matches if match] or [None])[-1]


def answer(jobs: Sequence[QueuedJob], after: Sequence[str] = ()) -> Answer:
    """Return what Slurm says of a run that has these jobs (elements of an array, attempts), at least one.

    `after` are the runs that it waits for.
    """
    at_work = [job for job in jobs if not job.has_ended]
    if not at_work:
        last = max(jobs, key=lambda job: int(job.id))
        return ended(last.state)
    running = [job for job in at_work if job.state != "PENDING"]
    if not running:
        return Answer(Liveness.ALIVE, states.PENDING, waits(at_work[0], after), at_work[0].facts)
    note = "Slurm has suspended it" if running[0].state == "SUSPENDED" else None
    return Answer(Liveness.ALIVE, note=note, scheduler=running[0].facts, started_at=running[0].started_at)


def is_end(state: str) -> bool:
    """Return whether a job in Slurm's `state`, as accounting writes it, has ended."""
    return _word(state) in _ENDED


def _word(state: str) -> str:
    return state.split()[0].rstrip("+") if state.strip() else ""


def ended(state: str) -> Answer:
    """Return what it means that a job has ended in Slurm's `state` although its files do not say so."""
    return Answer(Liveness.GONE, *_ENDED.get(_word(state), (None, f"Slurm calls the job {_word(state)}")))


def waits(job: QueuedJob, after: Sequence[str] = ()) -> str:
    """Return why a job waits and when it may start, in plain words."""
    reason = job.reason.split(",")[0].strip("()")
    words = _WAITS_FOR.get(reason) or _below_limit(reason)
    named = f"run{'s' if len(after) > 1 else ''} {', '.join(after)}"
    if after and reason == "Dependency":
        words = f"for {named} to be COMPLETED"
    elif after and reason == "DependencyNeverSatisfied":
        words = f"forever, because {named} did not become COMPLETED: cancel it"
    text = f"waits {words} ({reason})" if words else f"waits: {reason}"
    return text if job.start in _NEVER else f"{text}; may start at {job.start.replace('T', ' ')}"


def _below_limit(reason: str) -> str | None:
    """Return what a job waits for that a limit of its QOS or association holds back; None for any other reason."""
    limit = _LIMIT.fullmatch(reason)
    if limit is None or limit[3] not in _LIMITED:
        return None
    whose, bound, what, per = limit[1], limit[2], _LIMITED[limit[3]], limit[4]
    owner = {"QOS": "its QOS", "Assoc": "your account"}.get(whose, "its QOS or account")
    amount = f"{'less' if what in ('memory', 'time') else 'fewer'} {what}"
    if bound == "Min":
        return f"forever: {owner} demands more {what} of a job"
    if per in ("PerJob", "PerNode") or limit[3] == "WallDuration":
        return f"forever: {owner} allows a job {amount}{' of a node' if per == 'PerNode' else ''}"
    who = "you" if bound == "Max" and per != "PerAccount" else "its users" if whose == "QOS" else "your account's users"
    return f"until {who} {'have' if 'jobs' in what else 'use'} {amount} ({owner} limits them)"


def accounted_states(machine: Machine, job_ids: Sequence[str], timeout_s: float) -> dict[str, str]:
    """Return the state of each job that accounting knows; nothing if it is off, fails or hangs."""
    options = ["--noheader", "--parsable2", "--allocations", "--format=JobID,State", f"--jobs={','.join(job_ids)}"]
    try:
        return dict(parse_accounting(commands.call(machine, ["sacct", *options], timeout_s=timeout_s).text))
    except UserError:
        return {}


def parse_accounting(text: str) -> list[tuple[str, str]]:
    """Return job ids and states from the output of sacct."""
    pairs = [line.strip().split("|", 1) for line in text.splitlines() if "|" in line]
    jobs = [(_ACCOUNTED_JOB.fullmatch(job_id), state) for job_id, state in pairs]
    return [(found[1], state) for found, state in jobs if found and state]
