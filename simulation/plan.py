"""What goes wrong in a history. Rare orders need events close together: a theme aims them at one part of the protocol.

A fault or a command comes at a moment: when the history has a certain line for the nth time, and a little later.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

# Lines of a history, as they begin.
BEGINS = ("starts job", "writes attempt", "writes state=RUNNING", "writes .follow_up", "train")
GOES_ON = ("checkpoint", "train", "gets TERM", "gives a node up", "fails")
ENDS = ("srun ends", "writes exit_code", "writes state=REQUEUED", "requeue", "job waits again")
IS_OVER = ("writes state=COMPLETED", "writes state=FAILED", "writes state=CANCELLED", "ends with", "job is")
CALLS = ("takes job", "takes follow-up job", "squeue", "sbatch")
EVERYWHERE = BEGINS + GOES_ON + ENDS + IS_OVER + CALLS
NODES = ("dies first", "dies second", "is cut off")
TAKES_BACK = ("preempt", "requeue", "forget", "administrator cancels")


@dataclass(frozen=True)
class Theme:
    """What a history is about. `fails`: how often a rank fails; `trouble`: how often the controller's answers."""

    name: str
    moments: tuple[str, ...]
    faults: tuple[str, ...]
    commands: tuple[str, ...] = ("status", "status", "list", "cancel", "resume", "stop", "wait", "prune", "submit")
    most: tuple[int, int] = (2, 2)  # of faults, and of commands
    longest_s: float = 90.0  # after its moment
    fails: float = 0.2
    fails_for_good: float = 0.3  # how many of these
    hangs: float = 0.05
    trouble: tuple[float, ...] = (0.0, 0.05, 0.2)
    requeues: float = 0.75
    killed: float = 0.08  # how often a job script, and a command


THEMES = (
    Theme("anything", EVERYWHERE, ("down", *TAKES_BACK, *NODES), most=(3, 4)),
    Theme(
        "again",
        (*ENDS, "train", "train", "checkpoint"),
        ("down", *TAKES_BACK),
        fails=0.6,
        fails_for_good=0.1,
        hangs=0.2,
    ),
    Theme(
        "lost nodes",
        ("train", "checkpoint"),
        (*NODES, "is cut off", "is cut off"),
        most=(2, 1),
        trouble=(0.0, 0.05),
        fails=0.0,
    ),
    Theme(
        "follow-up jobs",
        (
            "takes follow-up job",
            "takes follow-up job",
            "writes .follow_up",
            "writes state=REQUEUED",
            "srun ends",
            "job waits again",
        ),
        (*NODES, *TAKES_BACK),
        ("cancel", "resume", "status"),
        longest_s=5.0,
        trouble=(0.1, 0.3, 0.6),
        requeues=0.0,
        fails=0.6,
        fails_for_good=0.1,
    ),
    Theme(
        "two clients",
        ("writes state=FAILED", "writes state=CANCELLED", "ends with", "begins"),
        ("administrator cancels", "dies first", "kills a client"),
        ("resume", "resume", "resume", "cancel", "prune", "submit"),
        most=(1, 5),
        longest_s=30.0,
        fails=0.9,
        fails_for_good=0.9,
        killed=0.15,
    ),
    Theme(
        "submitting",
        ("begins", *CALLS),
        ("down", "kills a client", "kills a client"),
        ("submit", "resume", "resume", "prune", "list"),
        longest_s=10.0,
        trouble=(0.0, 0.3, 0.6),
        killed=0.3,
    ),
    Theme(
        "looking",
        EVERYWHERE,
        (*TAKES_BACK, *NODES),
        ("status", "status", "list", "cancel", "resume"),
        most=(1, 6),
        trouble=(0.0, 0.2, 0.5),
    ),
    Theme(
        "the end",
        ("writes exit_code", "writes state=COMPLETED", "writes state=REQUEUED", "leaves the marker", "scontrol show"),
        (*TAKES_BACK, "dies first"),
        ("cancel", "resume"),
        longest_s=0.5,
        fails=0.4,
        fails_for_good=0.1,
        trouble=(0.0, 0.0, 0.3),
    ),
    Theme("stopping", GOES_ON + ENDS, TAKES_BACK, ("stop", "stop", "resume", "cancel"), (1, 3), trouble=(0.0,)),
)


def theme_of(seed: int) -> Theme:
    """Return what the history of a seed is about."""
    return random.Random(f"{seed}/theme").choice(THEMES)


def delay_s(draw: random.Random, longest_s: float) -> float:
    """Return how long after its moment something happens."""
    return min(longest_s, draw.choice([0.0, draw.uniform(0.0, 1.0), draw.uniform(0.0, 8.0), draw.uniform(0.0, 90.0)]))
