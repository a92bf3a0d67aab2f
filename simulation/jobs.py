"""Jobs of the simulated Slurm, what differs between its clusters, and what its programs ask of its controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from simulation.ranks import Step
from simulation.scripts import Script
from simulation.world import World

NEVER_SATISFIED = "DependencyNeverSatisfied"  # Slurm's reason


@dataclass
class Site:
    """What differs between the clusters of histories."""

    preemption: str = "requeue"
    requeues: bool = True  # scontrol requeue is allowed
    has_accounting: bool = True
    is_busy: bool = False  # a job waits for minutes until nodes are free
    trouble: float = 0.1  # how often an answer is not as it should be
    troubled: tuple[str, ...] = ()  # the programs whose answers are; none: all
    answers: tuple[str, ...] = ()  # in which ways; none: all
    term_within_s: float = 3.0  # after the ranks, a script may get TERM
    epilogue_s: float = 0.0  # of a job that is requeued
    dies_of_term: float = 0.5  # how often a rank of a forgotten start dies before its launcher hears of the end


@dataclass
class Job:
    """One job. `state` is Slurm's word; `ends_as` the state after COMPLETING."""

    id: int
    name: str
    folder: Path
    copy: Path
    needed: int
    time_limit_s: float
    margin_s: float
    signals_script: bool  # alone, and not its ranks
    can_requeue: bool
    state: str = "PENDING"
    reason: str = "Priority"
    after: tuple[str, int] | None = None
    is_killed_on_invalid_dependency: bool = False
    excluded: list[str] = field(default_factory=list)
    begin_at: float = 0.0
    restarts: int = 0
    nodes: list[str] = field(default_factory=list)
    started_at: float = 0.0
    ended_at: float | None = None
    ends_as: str = ""
    exit_code: int = 0
    was_preempted: bool = False
    has_requeued_itself: bool = False  # in this start
    was_to_start_again: bool = False  # it was requeued, and cancelled before it had ended
    is_cancelled_by_hand: bool = False
    script: Script | None = None
    step: Step | None = None
    starts: int = 0
    ending_at: float = float("inf")  # when Slurm began to end it, or forgot it
    submitted_at: float = 0.0
    arguments: Sequence[str] = ()  # of its script

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it waits, runs or completes."""
        return self.state not in ("PENDING", "RUNNING", "COMPLETING")

    @property
    def can_never_start(self) -> bool:
        """Whether the job that it was to follow has ended in another way."""
        return self.reason == NEVER_SATISFIED


class Controller(Protocol):
    """The controller, as its programs know it."""

    world: World
    site: Site

    @property
    def jobs(self) -> Mapping[int, Job]:
        """All jobs, by number."""

    @property
    def states(self) -> Mapping[str, str]:
        """The state of each node, as sinfo prints it."""

    @property
    def is_down(self) -> bool:
        """Whether no program gets an answer."""

    def submit(self, words: Sequence[str], folder: Path) -> Job | str:
        """Return the new job, or why there is none."""

    def requeue(self, job: Job | None) -> str:
        """Requeue a job. Return why not, or nothing."""

    def update(self, job: Job | None, name: str, value: str) -> None:
        """Change a setting of a job."""

    def cancel(self, job: Job) -> None:
        """End a job, and let it not start again."""
