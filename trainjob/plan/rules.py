"""How a rule refuses: what it says, and which settings could be turned to cure it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from trainjob.cluster.job import Job
from trainjob.plan.words import flag

COUNTS = (
    "instances",
    "replicas",
    "ipus_per_replica",
    "hosts",
    "micro_batch",
    "accumulation",
    "global_batch",
    "device_iterations",
)
POSITIVE = "every count is at least 1"


@dataclass(frozen=True)
class Knob:
    """A job setting that may cure a broken rule: its value now, and values worth trying beside those nearby."""

    setting: str
    now: int
    hints: tuple[int, ...] = ()


class Broken(Exception):  # noqa: N818 (a rule that is broken, not an error of ours)
    """A rule that does not hold. What the user sees is a Refusal, once the nearest settings are found."""

    def __init__(self, rule: str, found: str, knobs: tuple[Knob, ...], otherwise: str) -> None:
        super().__init__(f"{rule}: {found}")
        self.rule = rule
        self.found = found
        self.knobs = knobs
        self.otherwise = otherwise


def refuse(rule: str, found: str, *knobs: Knob, otherwise: str = "") -> NoReturn:
    """Raise Broken. `otherwise` is a cure in words, for what no setting of the job cures."""
    raise Broken(rule, found, knobs, otherwise)


def counts_are_positive(job: Job) -> None:
    """Raise Broken where something that is counted is asked to be 0 or less."""
    for setting in COUNTS:
        value = getattr(job, setting)
        if value is not None and value < 1:
            refuse(POSITIVE, f"{setting} is {value}", Knob(setting, value), otherwise=f"Or leave {flag(setting)} out.")
    if job.samples is not None and job.samples < 1:
        refuse(POSITIVE, f"samples is {job.samples}", otherwise="Give the number of training samples, or leave it out.")
