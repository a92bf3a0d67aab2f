"""What goes wrong in a history. Rare orders need events close together: a theme aims them at one part of the protocol.

A fault or a command comes at a moment: when the history has a certain line for the nth time, and a little later.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from simulation.ranks import NAMED_ONLY, PROGRAMS, TASK, Program

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
    busy: float = 0.2  # how often a job waits for nodes
    killed: float = 0.08  # how often a job script, and a command
    pauses: float = 0.4  # how often a command
    certain: tuple[tuple[str, str], ...] = ()  # faults of every history, each with its moment
    numbers: tuple[int, ...] = (1, 1, 1, 2, 3)  # how often a moment has come by then
    # Of which programs the answers are in trouble, and which kinds of trouble; none: all.
    troubled: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    term_within_s: float = 3.0  # after the ranks, a script may get TERM
    epilogue_s: float = 0.0  # of a job that is requeued
    prunes_after_s: float = 1200.0
    storage_late_s: tuple[float, ...] = (0.0,)  # for how long hosts of commands may see old bytes
    own_scripts: float = 0.5  # how often ranks run no task of ours
    full: float = 0.05  # how often the disk is full for ranks, for a while
    tells_others: bool = False  # srun tells ranks of other nodes to end once one has failed


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

# What is too rare in the others. No seed draws them: `--about` names them, for a seed of any theme.
AIMED = (
    Theme(
        "a rank fails on one of several nodes",
        ("srun tells the others", "checkpoint", "fails", "srun ends"),
        ("is asked", *TAKES_BACK, *NODES),
        most=(2, 2),
        longest_s=10.0,
        fails=1.0,
        fails_for_good=0.5,
        own_scripts=1.0,
        tells_others=True,
    ),
    Theme(
        "requests to stop",
        ("train", "checkpoint", "is asked", "scontrol requeue", "gets USR1", "srun ends", "job waits again"),
        ("is asked", "is asked", "preempt", "requeue", "forget", "administrator cancels", "dies second", "is cut off"),
        ("status", "cancel", "resume", "stop"),
        most=(3, 2),
        longest_s=30.0,
        fails=0.1,
        own_scripts=0.9,
        full=0.3,
    ),
    Theme(
        "clocks that jump",
        EVERYWHERE,
        ("a clock jumps", "a clock jumps", "a clock jumps", "down", *TAKES_BACK, *NODES),
        most=(4, 4),
        certain=tuple((moment, "a clock jumps") for moment in ("begins", "writes state=RUNNING", "checkpoint")),
    ),
    Theme(
        "looks at follow-up jobs",
        ("takes follow-up job", "starts job", "job is", "ends with"),
        ("dies first", "is cut off", "preempt"),
        ("status", "status", "status", "list"),
        most=(2, 6),
        longest_s=30.0,
        fails=0.3,
        trouble=(0.3, 0.6),
        requeues=0.0,
    ),
    Theme(
        "two resumes",
        ("job is FAILED", "job is CANCELLED", "ends with"),
        ("kills a client", "administrator cancels"),
        ("resume", "resume", "cancel", "resume"),
        most=(2, 6),
        longest_s=8.0,
        fails=0.9,
        fails_for_good=0.9,
        trouble=(0.0, 0.3),
        killed=0.1,
    ),
    Theme("marker", ("leaves the marker",), ("forget",), ("status",), (2, 1), 0.1, 0.0, trouble=(0.0,), killed=0.0),
    Theme(
        "cancelled on its way on",
        ("writes state=REQUEUED", "requeue", "takes follow-up job", "scontrol requeue", "job waits again"),
        ("administrator cancels", "requeue", "preempt"),
        ("cancel",),
        longest_s=1.0,
        fails=0.8,
        fails_for_good=0.0,
        trouble=(0.0, 0.0, 0.1),
        requeues=0.3,
    ),
    Theme(
        "ends without an answer",
        ("writes exit_code", "writes state=CANCELLED", "gets TERM", "takes follow-up job"),
        ("administrator cancels", "down", "down", "dies first"),
        ("cancel", "status"),
        longest_s=3.0,
        fails=0.3,
        trouble=(0.3, 0.6),
        requeues=0.0,
        killed=0.3,
    ),
    Theme(
        "complete while the controller is down",
        GOES_ON,
        ("kills a client",),
        ("status",),
        fails=0.0,
        trouble=(0.0,),
        certain=(("writes state=COMPLETED", "down"),),
        requeues=0.0,
        killed=0.0,
    ),
    Theme(
        "lost follow-up jobs",
        ENDS,
        ("kills a client",),
        ("status",),
        fails=0.9,
        fails_for_good=0.0,
        trouble=(0.8,),
        troubled=("sbatch",),
        answers=("lost", "empty"),
        requeues=0.0,
        killed=0.0,
    ),
    Theme(
        "taken back while the controller is down",
        ("train", "gets TERM", "gets TERM"),
        ("requeue", "forget", "down", "down"),
        ("status",),
        most=(4, 1),
        longest_s=8.0,
        fails=0.5,
        fails_for_good=0.0,
        trouble=(0.0,),
        requeues=0.0,
        killed=0.0,
    ),
    Theme(
        "held by Slurm",
        ("writes state=CANCELLED",),
        ("kills a client",),
        ("cancel",),
        most=(1, 4),
        longest_s=15.0,
        fails=0.0,
        trouble=(0.9,),
        certain=(("checkpoint", "requeue"),),
        troubled=("scontrol",),
        answers=("lost before",),
        killed=0.0,
        numbers=(1,),
        epilogue_s=20.0,
    ),
    Theme(
        "resumed while its job waits again",
        ("writes state=CANCELLED",),
        ("kills a client",),
        ("resume",),
        most=(1, 8),
        longest_s=60.0,
        fails=0.0,
        trouble=(0.6,),
        certain=(("checkpoint", "requeue"),),
        answers=("lost before", "empty"),
        killed=0.0,
        numbers=(1,),
    ),
    Theme(
        "beside a submission",
        ("begins", "squeue"),
        ("dies second",),
        ("resume", "prune", "prune", "submit"),
        most=(1, 5),
        longest_s=5.0,
        fails=0.0,
        trouble=(0.0,),
        killed=0.0,
        pauses=0.9,
    ),
    Theme(
        "resumed while it is submitted",
        ("squeue",),
        ("dies second",),
        ("resume",),
        most=(1, 4),
        longest_s=5.0,
        fails=0.0,
        trouble=(0.4,),
        troubled=("squeue",),
        answers=("late",),
        killed=0.0,
        numbers=(1,),
    ),
    Theme(
        "killed submissions",
        ("takes job", "starts job", "ends with", "job is FAILED"),
        ("down",),
        ("resume", "status"),
        most=(1, 6),
        longest_s=8.0,
        fails=0.9,
        fails_for_good=0.9,
        trouble=(0.5,),
        certain=(("takes job", "kills a client"),),
        troubled=("squeue", "scontrol"),
        killed=0.0,
        numbers=(1,),
    ),
    Theme(
        "killed submissions that wait",
        ("takes job",),
        ("down",),
        ("status", "prune"),
        most=(1, 8),
        fails=0.0,
        trouble=(0.6,),
        certain=(("takes job", "kills a client"),),
        troubled=("squeue", "scontrol"),
        busy=1.0,
        killed=0.0,
        numbers=(1,),
        prunes_after_s=0.0,
    ),
    Theme(
        "pruned while it is resumed",
        ("job is FAILED", "ends with"),
        ("dies second",),
        ("prune", "resume"),
        most=(1, 8),
        longest_s=30.0,
        fails=0.95,
        fails_for_good=0.95,
        trouble=(0.5,),
        troubled=("squeue",),
        answers=("late",),
        killed=0.0,
        numbers=(1,),
        prunes_after_s=0.0,
    ),
    Theme(
        "cancelled with its node",
        ("dies", "job is CANCELLED"),
        ("kills a client",),
        ("cancel", "status"),
        most=(1, 8),
        fails=0.0,
        trouble=(0.5,),
        certain=(("checkpoint", "dies first"),),
        troubled=("squeue",),
        answers=("lost before",),
        killed=0.0,
        numbers=(1,),
    ),
    Theme(
        "cancels that are killed",
        ("dies",),
        ("kills a client",),
        ("cancel",),
        most=(1, 4),
        longest_s=20.0,
        fails=0.0,
        trouble=(0.0,),
        certain=(("checkpoint", "dies first"), ("scancel", "kills a client")),
        killed=0.0,
        numbers=(1,),
    ),
    Theme(
        "forgotten jobs",
        ("job is CANCELLED",),
        ("down",),
        ("status",),
        most=(1, 6),
        longest_s=60.0,
        fails=0.6,
        fails_for_good=0.0,
        trouble=(0.0,),
        certain=(("train attempt 4", "dies first"), ("dies", "administrator cancels")),
        requeues=0.0,
        killed=0.0,
        numbers=(1,),
    ),
    Theme(
        "completed out of reach",
        ("job waits again",),
        ("kills a client",),
        ("cancel", "resume", "resume"),
        most=(1, 8),
        longest_s=60.0,
        fails=0.0,
        trouble=(0.9,),
        certain=(("train", "is cut off"),),
        requeues=1.0,
        killed=0.3,
        troubled=("scontrol",),
        answers=("lost before",),
        numbers=(1,),
    ),
    Theme(
        "removing",
        ("job is", "ends with", "writes state=FAILED"),
        ("kills a client",),
        ("prune", "prune", "resume"),
        most=(2, 6),
        longest_s=8.0,
        fails=0.95,
        fails_for_good=0.95,
        trouble=(0.0,),
        killed=0.3,
        pauses=0.7,
        prunes_after_s=0.0,
    ),
    Theme(
        "removed locks",
        ("job is", "ends with", "writes state=FAILED"),
        ("kills a client",),
        ("prune", "resume"),
        most=(1, 12),
        longest_s=30.0,
        fails=0.95,
        fails_for_good=0.95,
        trouble=(0.0,),
        killed=0.9,
        prunes_after_s=0.0,
    ),
    Theme(
        "follow-up jobs that stay",
        ENDS,
        ("kills a client",),
        ("status",),
        most=(1, 1),
        fails=0.9,
        fails_for_good=0.9,
        trouble=(0.6,),
        troubled=("scancel",),
        answers=("lost before",),
        requeues=0.0,
        killed=0.0,
    ),
    Theme(
        "follow-up jobs that are not known",
        ENDS,
        ("kills a client",),
        ("status",),
        most=(1, 1),
        fails=0.9,
        fails_for_good=0.0,
        trouble=(0.7,),
        troubled=("sbatch", "squeue"),
        answers=("lost", "lost before", "empty"),
        requeues=0.0,
        killed=0.0,
    ),
    Theme(
        "cancelled between two jobs",
        ("train", "checkpoint", "job is", "job is"),
        ("dies first",),
        ("cancel",),
        most=(2, 6),
        longest_s=8.0,
        fails=0.0,
        trouble=(0.6,),
        troubled=("squeue",),
        answers=("garbage",),
        requeues=0.0,
        killed=0.0,
    ),
    Theme(
        "cancelled over an empty list",
        ("train", "checkpoint"),
        ("requeue",),
        ("cancel",),
        most=(1, 3),
        fails=0.0,
        trouble=(0.6,),
        troubled=("squeue",),
        answers=("empty",),
        killed=0.0,
    ),
    Theme(
        "lost requeues",
        ENDS,
        ("kills a client",),
        ("status",),
        fails=0.9,
        fails_for_good=0.0,
        trouble=(0.5,),
        troubled=("scontrol",),
        answers=("lost",),
        requeues=1.0,
        killed=0.0,
    ),
    Theme(
        "preempted",
        ("train", "checkpoint"),
        ("preempt", "preempt", "requeue"),
        ("status",),
        most=(3, 1),
        longest_s=20.0,
        fails=0.0,
        trouble=(0.0,),
        killed=0.0,
        term_within_s=25.0,
    ),
    Theme(
        "hung again",
        ("starts job", "writes attempt", "writes state=RUNNING"),
        ("down",),
        ("status",),
        longest_s=1.0,
        fails=0.8,
        fails_for_good=0.0,
        hangs=0.9,
        trouble=(0.0,),
        killed=0.0,
        numbers=(2, 2, 3),
    ),
    Theme(
        "lost nodes, and no answer",
        ("train",),
        ("kills a client",),
        ("status",),
        longest_s=1.0,
        fails=0.0,
        trouble=(0.0,),
        certain=(("train", "dies second"), ("gives a node up", "down")),
        term_within_s=25.0,
        killed=0.0,
    ),
    Theme(
        "cancelled after a requeue",
        ("train", "checkpoint"),
        ("requeue", "administrator cancels"),
        ("cancel",),
        most=(3, 2),
        longest_s=60.0,
        fails=0.0,
        trouble=(0.0,),
        killed=0.0,
    ),
)


OLD_BYTES = "old bytes"  # any theme that a seed draws, on storage as NFS's


def theme_of(seed: int, about: str = "") -> Theme:
    """Return what the history of a seed is about: what is named, or else what the seed draws."""
    named = [theme for theme in AIMED if theme.name == about]
    drawn = random.Random(f"{seed}/theme").choice(THEMES)
    if about == OLD_BYTES:
        return replace(drawn, name=OLD_BYTES, storage_late_s=(10.0, 30.0, 60.0))
    return named[0] if named else drawn


def program_of(seed: int, theme: Theme, named: str = "") -> Program:
    """Return what the ranks of a seed's history run: what is named, or else what the seed draws."""
    draw = random.Random(f"{seed}/program")
    drawn = draw.choice(PROGRAMS[1:]) if draw.random() < theme.own_scripts else TASK
    return next((program for program in (*PROGRAMS, *NAMED_ONLY) if program.name == named), drawn)


def delay_s(draw: random.Random, longest_s: float) -> float:
    """Return how long after its moment something happens."""
    return min(longest_s, draw.choice([0.0, draw.uniform(0.0, 1.0), draw.uniform(0.0, 8.0), draw.uniform(0.0, 90.0)]))
