"""Names and options of the optimizers and learning-rate schedules, checked without importing torch."""

from __future__ import annotations

import operator
from typing import Any, Dict, Mapping, NamedTuple, Optional

from trainjob.contract.errors import UserError, did_you_mean
from trainjob.contract.settings import Scalar


class OptimizerOption(NamedTuple):
    """An option's default, whose type its values have, and its bounds."""

    default: Scalar
    at_least: Optional[float] = None
    above: Optional[float] = None
    at_most: Optional[float] = None
    below: Optional[float] = None


Options = Dict[str, OptimizerOption]

_ADAPTIVE: Options = {
    "beta1": OptimizerOption(0.9, at_least=0, below=1),
    "beta2": OptimizerOption(0.999, at_least=0, below=1),
    "eps": OptimizerOption(1e-8, at_least=0),
}
# Any other optimizer is a class that the job names as module:attribute.
OPTIMIZERS: Dict[str, Options] = {
    "sgd": {"nesterov": OptimizerOption(False), "dampening": OptimizerOption(0.0, at_least=0, at_most=1)},
    "adamw": _ADAPTIVE,
    "lamb": {**_ADAPTIVE, "eps": OptimizerOption(1e-6, at_least=0)},
    "lars": {"trust": OptimizerOption(0.001, above=0)},
}
# Those that torch implements in several ways: fused, foreach and for-loop.
SEVERAL = ("sgd", "adamw")

_END = OptimizerOption(0.0, at_least=0, at_most=1)
# Learning rates are shares of the peak; parts of a training are shares of its updates after the warm-up.
SCHEDULES: Dict[str, Options] = {
    "constant": {},
    "linear": {"end": _END},
    "cosine": {"end": _END},
    "step": {"every_epochs": OptimizerOption(30.0, above=0), "factor": OptimizerOption(0.1, above=0, at_most=1)},
    "warmup-stable-decay": {"decay": OptimizerOption(0.2, above=0, at_most=1), "end": _END},
    "one-cycle": {
        "rise": OptimizerOption(0.3, above=0, below=1),
        "start": OptimizerOption(0.04, above=0, at_most=1),
        "end": OptimizerOption(4e-6, at_least=0, at_most=1),
    },
}
HAS_OWN_WARMUP = "one-cycle"


def is_own(optimizer: str) -> bool:
    """Return whether the job names a class, module:attribute, instead of a built-in optimizer."""
    return ":" in optimizer


def optimizer_options(name: str, stated: Mapping[str, Scalar], momentum: float) -> Dict[str, Any]:
    """Return every option of optimizer `name`; for a class of the user's own only those given. Raises UserError."""
    if is_own(name):
        return dict(stated)
    options = _options("optimizer", name, OPTIMIZERS, stated)
    if options.get("nesterov") and (momentum == 0 or options["dampening"] != 0):
        raise UserError(
            "nesterov needs a momentum above 0 and no dampening, and momentum is %g, dampening %g"
            % (momentum, options["dampening"]),
            "Give --momentum 0.9, or leave out nesterov",
        )
    return options


def schedule_options(name: str, stated: Mapping[str, Scalar], warmup_updates: int) -> Dict[str, Any]:
    """Return every option of schedule `name`. Raises UserError."""
    options = _options("schedule", name, SCHEDULES, stated)
    if name == HAS_OWN_WARMUP and warmup_updates:
        raise UserError(
            "schedule %s has a warm-up of its own, and warmup_updates is %d" % (name, warmup_updates),
            "Leave out --warmup-updates, and set the warm-up's share of the training: --schedule-option rise=0.3",
        )
    return options


def _options(kind: str, name: str, table: Mapping[str, Options], stated: Mapping[str, Scalar]) -> Dict[str, Any]:
    """Return every option of `name` in `table`, with the value that is stated. Raises UserError."""
    if name not in table:
        also = ", or module:attribute of your own" if kind == "optimizer" else ""
        hint = did_you_mean(name, table)
        begins = hint.capitalize() + "It is one" if hint else "Choose one"
        raise UserError("there is no %s %s" % (kind, name), "%s of %s%s" % (begins, ", ".join(table), also))
    options = table[name]
    for option, value in stated.items():
        if option not in options:
            hint = did_you_mean(option, options).capitalize()
            raise UserError(
                "%s %s has no option %s" % (kind, name, option),
                "%sIt has: %s" % (hint, ", ".join(options)) if options else "Leave it out: it has none",
            )
        expected = _misfit(options[option], value)
        if expected:
            shown = str(value).lower() if isinstance(value, bool) else value
            raise UserError("option %s of %s %s is %s" % (option, kind, name, shown), "It is %s" % expected)
    chosen = {option: stated.get(option, row.default) for option, row in options.items()}
    return {
        option: float(value) if isinstance(options[option].default, float) else value
        for option, value in chosen.items()
    }


def _misfit(row: OptimizerOption, value: Scalar) -> str:
    """Return, in words, the values that an option may have; nothing if `value` is one of them."""
    if isinstance(row.default, bool):
        return "" if isinstance(value, bool) else "true or false"
    bounds = (
        ("of at least", row.at_least, operator.ge),
        ("above", row.above, operator.gt),
        ("of at most", row.at_most, operator.le),
        ("below", row.below, operator.lt),
    )
    given = [(word, bound, holds) for word, bound, holds in bounds if bound is not None]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and all(holds(value, bound) for _, bound, holds in given):
        return ""
    return " ".join(["a number", " and ".join("%s %g" % (word, bound) for word, bound, _ in given)]).rstrip()
