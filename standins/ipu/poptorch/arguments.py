"""The arguments of a call, as forward takes them, and held against those that the model was compiled for."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, Tuple

import torch

from poptorch import values
from poptorch.errors import Error

Call = Tuple[Tuple[Any, ...], Dict[str, Any]]
_PLAIN = (int, float, str, bytes, type(None))


def bound(forward: Callable[..., object], args: Tuple[object, ...], kwargs: Dict[str, object]) -> Call:
    """Return the arguments each in its place, defaults among them; the same call has one form.

    Raises Error for one that is missing.
    """
    try:
        signature = inspect.signature(forward)
        found = signature.bind(*args, **kwargs)
    except ValueError:
        return args, kwargs
    except TypeError as error:
        if "missing a required argument" in str(error):
            raise Error("Mandatory parameter %s missing" % str(error).split("'")[1]) from None
        return args, kwargs
    found.apply_defaults()
    return found.args, found.kwargs


def names_of(forward: Callable[..., object], call: Call) -> List[Tuple[str, Any]]:
    """Return the arguments by name; those that forward has no name for by their place."""
    args, kwargs = call
    try:
        names = list(inspect.signature(forward).parameters)
    except (TypeError, ValueError):
        names = []
    by_place = [(names[n] if n < len(names) else "argument %d" % n, value) for n, value in enumerate(args)]
    return by_place + list(kwargs.items())


def form(forward: Callable[..., object], call: Call) -> List[Any]:
    """Return what a program is compiled for: how many arguments are given by place, and the form of each by name."""
    return [len(call[0]), {name: _form(value) for name, value in names_of(forward, call)}]


def refuse_others(compiled_for: List[Any], found: List[Any]) -> None:
    """Raise Error, naming the argument, unless a call has the form that the model was compiled for."""
    if found[0] != compiled_for[0]:
        raise Error(
            "Number of positional arguments mismatch: expected %d arguments but got %d" % (compiled_for[0], found[0])
        )
    _compare("", compiled_for[1], found[1])


def _form(value: object) -> Any:
    """Return a tensor's shape and type, a plain value, or the type of any other; those of parts, for what has some."""
    if isinstance(value, torch.Tensor):
        return torch.Tensor, value.shape, value.dtype
    if isinstance(value, dict):
        return {name: _form(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_form(part) for part in value]
    parts = values.flat(value)
    if parts:
        return [_form(part) for part in parts]
    return type(value), value if isinstance(value, _PLAIN) else None


def _compare(name: str, expected: Any, found: Any) -> None:
    if isinstance(expected, dict) and isinstance(found, dict):
        for what, names in (
            ("Missing", expected.keys() - found.keys()),
            ("Unexpected", found.keys() - expected.keys()),
        ):
            if names:
                raise Error("%s arguments: %s." % (what, ", ".join(sorted(map(str, names)))))
        for key, part in expected.items():
            _compare("%s[%r]" % (name, key) if name else str(key), part, found[key])
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            raise Error("Length mismatch for %s: expected %d but got %d" % (name, len(expected), len(found)))
        for number, (part, other) in enumerate(zip(expected, found)):
            _compare("%s[%d]" % (name, number), part, other)
    elif _kind(expected) is not _kind(found):
        raise Error("Type mismatch for %s: expected %s but got %s" % (name, _kind(expected), _kind(found)))
    else:
        whats = ["Shape", "Data type"] if _kind(expected) is torch.Tensor else ["Value"]
        for what, one, other in zip(whats, expected[1:], found[1:]):
            if one != other:
                raise Error("%s mismatch for %s: expected %s but got %s" % (what, name, one, other))


def _kind(form_of_value: Any) -> Any:
    return form_of_value[0] if isinstance(form_of_value, tuple) else type(form_of_value)
