"""squeue, asked once for everything of ours, and its words made plain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainjob.contract import states
from trainjob.contract.paths import TASKS
from trainjob.submit.base import Answer, Liveness
from trainjob.submit.machine import Machine
from trainjob.submit.slurm import commands

# The run directory last: it alone may hold the sign that parts the fields.
_FORMAT = "%A|%F|%K|%T|%r|%S|%Z"
_FIELDS = 7
# A user's own jobs, with those that have ended a moment ago; their number is no matter for the controller.
_SQUEUE = 'exec squeue --noheader --array --states=all --user="$(id -un)" --format="$1"'

_ENDED_STATES: dict[str, str | None] = {
    "COMPLETED": None,
    "FAILED": states.FAILED,
    "TIMEOUT": states.TIMEOUT,
    "DEADLINE": states.TIMEOUT,
    "CANCELLED": states.CANCELLED,
    "PREEMPTED": states.CANCELLED,
    "OUT_OF_MEMORY": states.FAILED,
    "BOOT_FAIL": states.FAILED,
    "NODE_FAIL": states.LOST,
    "REVOKED": states.LOST,
}
_ENDED_WORDS = {
    "TIMEOUT": "Slurm ended it at its time limit",
    "DEADLINE": "Slurm ended it at its deadline",
    "CANCELLED": "cancelled in Slurm",
    "PREEMPTED": "preempted by a more urgent job, and not requeued",
    "OUT_OF_MEMORY": "a node's memory did not suffice: ask for more (directives.mem), or for fewer instances a node",
    "BOOT_FAIL": "a node could not be started",
    "NODE_FAIL": "a node failed, and the job was not requeued",
    "COMPLETED": "Slurm calls the job COMPLETED, and the run directory has not heard of it",
}
_WAITS_FOR = {
    "Priority": "others come first",
    "Resources": "for nodes to become free",
    "None": "to be looked at by the scheduler",
    "Dependency": "for the job that it depends on",
    "DependencyNeverSatisfied": "for ever, for the job that it depends on has failed: cancel it",
    "BeginTime": "for its start time (after a requeue Slurm waits two minutes)",
    "JobHeldUser": "because its user holds it: scontrol release",
    "JobHeldAdmin": "because an administrator holds it: ask them",
    "ReqNodeNotAvail": "for nodes that are down or reserved",
    "Reservation": "for a reservation to begin",
    "PartitionDown": "for its partition, which is down",
    "PartitionInactive": "for its partition, which takes no jobs now",
    "PartitionNodeLimit": "for ever: it asks for more nodes than its partition allows",
    "PartitionTimeLimit": "for ever: it asks for more time than its partition allows",
    "AssocGrpGRES": "until your group uses fewer accelerators",
    "QOSMaxGRESPerUser": "until you use fewer accelerators",
    "QOSMaxJobsPerUserLimit": "until fewer of your jobs run",
    "JobArrayTaskLimit": "for earlier tasks of its array",
    "Licenses": "for licences",
    "BadConstraints": "for ever: no node has what it asks for",
    "launch failed requeued held": "and is held: its nodes could not start it (scontrol show job)",
}
_NEVER = ("N/A", "NONE", "")


@dataclass(frozen=True)
class Job:
    """One line of squeue. `id` is a job's own number, `array_id` that of its array, which is the same without one.

    `index` is the number of a task of an array, "N/A" of other jobs. `folder` is where sbatch was called.
    """

    id: str
    array_id: str
    index: str
    state: str
    reason: str
    start: str
    folder: str

    @property
    def name(self) -> str:
        """What Slurm's commands call this very job: a task of an array by both numbers."""
        return f"{self.array_id}_{self.index}" if self.index.isdecimal() else self.array_id

    @property
    def run_folder(self) -> str:
        """The job's run directory: a task's is below the one of its array."""
        return f"{self.folder}/{TASKS}/{self.index}" if self.index.isdecimal() else self.folder

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs or waits."""
        return self.state in _ENDED_STATES


def jobs(machine: Machine) -> list[Job]:
    """Return all jobs of ours that Slurm still knows. Raises as commands.call does."""
    asked = commands.call(machine, ["sh", "-c", _SQUEUE, "sh", _FORMAT], program="squeue")
    return list(parse(asked.text))


def parse(text: str) -> Iterator[Job]:
    """Yield the jobs in what squeue has printed; lines that are none are passed over."""
    for line in text.splitlines():
        fields = line.strip().split("|", _FIELDS - 1)
        if len(fields) == _FIELDS and fields[0].isdigit():
            yield Job(*fields)


def answer(found: list[Job], after: Sequence[str] = ()) -> Answer:
    """Return what Slurm says of a run whose jobs (tasks of an array, attempts) are `found`, at least one.

    `after` are the runs that it was told to wait for.
    """
    at_work = [job for job in found if not job.has_ended]
    if not at_work:
        last = max(found, key=lambda job: int(job.id))
        return ended(last.state)
    waiting = [job for job in at_work if job.state == "PENDING"]
    if len(waiting) == len(at_work):
        return Answer(Liveness.ALIVE, states.PENDING, waits(waiting[0], after))
    return Answer(Liveness.ALIVE, note=_suspended(at_work[0]))


def ended(state: str) -> Answer:
    """Return what it means that a job has ended in Slurm's `state` while its files do not say so."""
    word = state.split()[0].rstrip("+") if state.strip() else ""
    note = _ENDED_WORDS.get(word, f"Slurm calls the job {word}")
    return Answer(Liveness.GONE, _ENDED_STATES.get(word), note)


def waits(job: Job, after: Sequence[str] = ()) -> str:
    """Return why a job waits and when it may start, in plain words."""
    reason = job.reason.split(",")[0].strip("()")
    words = _waits_for_runs(reason, after) or _WAITS_FOR.get(reason)
    text = f"waits {words} ({reason})" if words else f"waits: {reason}"
    return text if job.start in _NEVER else f"{text}; may start at {job.start.replace('T', ' ')}"


def _waits_for_runs(reason: str, after: Sequence[str]) -> str | None:
    named = f"run{'s' if len(after) > 1 else ''} {', '.join(after)}"
    if after and reason == "Dependency":
        return f"for {named} to be COMPLETED"
    if after and reason == "DependencyNeverSatisfied":
        return f"for ever, for {named} ended otherwise than COMPLETED: cancel it"
    return None


def _suspended(job: Job) -> str | None:
    return "Slurm has suspended it" if job.state == "SUSPENDED" else None
