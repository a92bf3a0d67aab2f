"""Refusals: a broken rule, and the nearest settings that can run.

Each candidate is checked against all rules, so what a refusal offers is certain to be accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

from trainjob.cluster.job import Job
from trainjob.contract.errors import UserError
from trainjob.contract.settings import flag

COUNTS = (
    "instances",
    "replicas",
    "ipus_per_replica",
    "hosts",
    "least_hosts",
    "micro_batch",
    "accumulation",
    "global_batch",
    "device_iterations",
)
POSITIVE = "every count is at least 1"


class Refusal(UserError):  # noqa: N818 (the design calls it a refusal)
    """A job that can't run on its cluster: the rule, both numbers, and the cure.

    Each item of `nearest` is one change to the job that cures it; the cure says the same in words.
    """

    code = "refused"

    def __init__(self, rule: str, values: str, cure: str, nearest: tuple[dict[str, int], ...] = ()) -> None:
        super().__init__(f"{rule}: {values}.", cure)
        self.rule = rule
        self.values = values
        self.nearest = nearest


class Knob(NamedTuple):
    """A job setting that may cure a broken rule: its present value, values to try besides those nearby, and a limit."""

    setting: str
    now: int
    hints: tuple[int, ...] = ()
    most: int | None = None


class Broken(Exception):  # noqa: N818 (a rule that is broken, not an error of ours)
    """A rule that does not hold. `refusal` adds the nearest settings and makes it a Refusal, which the user sees."""

    def __init__(self, rule: str, values: str, knobs: tuple[Knob, ...], otherwise: str) -> None:
        super().__init__(f"{rule}: {values}")
        self.rule = rule
        self.values = values
        self.knobs = knobs
        self.otherwise = otherwise


def refuse(rule: str, values: str, *knobs: Knob, otherwise: str = "") -> NoReturn:
    """Raise Broken. `otherwise` is a cure in words, besides or instead of the settings in `knobs`."""
    raise Broken(rule, values, knobs, otherwise)


def counts_are_positive(job: Job) -> None:
    """Raise Broken if a count in the job is 0 or less."""
    for setting in COUNTS:
        value = getattr(job, setting)
        if value is not None and value < 1:
            refuse(POSITIVE, f"{setting} is {value}", Knob(setting, value), otherwise=f"Or leave {flag(setting)} out.")
    if job.samples is not None and job.samples < 1:
        refuse(POSITIVE, f"samples is {job.samples}", otherwise="Give the number of training samples, or leave it out.")


Check = Callable[[Job], object]  # raises Broken
NEARBY = 64  # values tried on each side, one by one
POWERS = tuple(2**exponent for exponent in range(17))  # most IPU rules are about powers of two


def refusal(broken: Broken, job: Job, check: Check) -> Refusal:
    """Return the refusal for `broken`, with the settings nearest to the job's that `check` accepts."""
    word = "Nearest that works"
    offers = list(_offers(broken, job, lambda changed: _rule_broken_by(changed, check) is None))
    if not offers:
        # Several rules are broken at once: offer a setting that at least satisfies this one.
        word = "To begin with"
        offers = list(_offers(broken, job, lambda changed: _rule_broken_by(changed, check) != broken.rule))
    shown = ", or ".join(" ".join(f"{flag(name)} {value}" for name, value in offer.items()) for offer in offers)
    alone = broken.otherwise.removeprefix("Or ")
    cure = f"{word}: {shown}. {broken.otherwise}".strip() if offers else alone[:1].upper() + alone[1:]
    return Refusal(broken.rule, broken.values, cure, tuple(offers))


def _offers(broken: Broken, job: Job, passes: Callable[[Job], bool]) -> Iterator[dict[str, int]]:
    """Yield the nearest values that pass, below and above the present one, of each setting that may be the cure."""
    for knob in broken.knobs:
        values = {*range(knob.now - NEARBY, knob.now + NEARBY + 1), *POWERS, *knob.hints}
        values = {value for value in values if knob.most is None or value <= knob.most}
        below = sorted((value for value in values if 1 <= value < knob.now), reverse=True)
        above = sorted(value for value in values if value > max(0, knob.now))
        for side in (below, above):
            fitting = next((value for value in side if passes(job.changed(**{knob.setting: value}))), None)
            if fitting is not None:
                yield {knob.setting: fitting}


def _rule_broken_by(job: Job, check: Check) -> str | None:
    try:
        check(job)
    except Broken as broken:
        return broken.rule
    return None
