"""The nearest settings that can run, found by trying them: what a refusal offers is known to be accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from trainjob.cluster.job import Job
from trainjob.plan.rules import Broken, Knob
from trainjob.plan.values import Refusal
from trainjob.plan.words import flag

Check = Callable[[Job], object]  # raises Broken
NEARBY = 64  # values tried on each side, one by one
POWERS = tuple(2**exponent for exponent in range(17))  # most IPU rules are about powers of two


def refusal(broken: Broken, job: Job, check: Check) -> Refusal:
    """Return what the user sees of `broken`, with the settings nearest to the asked ones that `check` accepts."""
    accepted = tuple(_offers(broken, job, lambda changed: _rule_broken_by(changed, check) is None))
    if accepted:
        return _refusal(broken, "Nearest that can: " + _in_words(accepted) + ".", accepted)
    # Several rules are broken at once: offer what at least gets past this one.
    first = tuple(_offers(broken, job, lambda changed: _rule_broken_by(changed, check) != broken.rule))
    return _refusal(broken, f"To begin with: {_in_words(first)}." if first else "", first)


def _refusal(broken: Broken, offer: str, nearest: tuple[dict[str, int], ...]) -> Refusal:
    cure = " ".join(part for part in (offer, broken.otherwise) if part)
    return Refusal(broken.rule, broken.found, cure, nearest)


def _offers(broken: Broken, job: Job, passes: Callable[[Job], bool]) -> Iterator[dict[str, int]]:
    for knob in broken.knobs:
        for side in _sides(knob):
            changes = ({knob.setting: value} for value in side)
            found = next((change for change in changes if passes(job.model_copy(update=change))), None)
            if found is not None:
                yield found


def _sides(knob: Knob) -> tuple[Iterable[int], Iterable[int]]:
    values = {*range(knob.now - NEARBY, knob.now + NEARBY + 1), *POWERS, *knob.hints}
    below = sorted((value for value in values if 1 <= value < knob.now), reverse=True)
    above = sorted(value for value in values if value > max(0, knob.now))
    return below, above


def _rule_broken_by(job: Job, check: Check) -> str | None:
    try:
        check(job)
    except Broken as broken:
        return broken.rule
    return None


def _in_words(offers: tuple[dict[str, int], ...]) -> str:
    return ", or ".join(" ".join(f"{flag(name)} {value}" for name, value in offer.items()) for offer in offers)
