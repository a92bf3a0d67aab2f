"""A task's own options: the keyword arguments of its constructor, checked before it is built."""

from __future__ import annotations

import difflib
import inspect
import typing
from typing import Any, Dict, Optional, Tuple

from trainjob.contract.errors import UserError

_PLAIN = (bool, int, float, str)


def check(task: str, build: Any, options: Dict[str, Any]) -> Dict[str, Any]:
    """Return `options` as `build` takes them. Raises UserError for an unknown name or a value of the wrong type."""
    parameters = _parameters(build)
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for name, value in options.items():
        if name in parameters:
            options = dict(options, **{name: _fitting(task, name, value, _types(build, parameters[name]))})
        elif not open_ended:
            raise _unknown(task, name, parameters)
    _check_required(task, parameters, options)
    return options


def _parameters(build: Any) -> Dict[str, inspect.Parameter]:
    return dict(inspect.signature(build).parameters)


def _types(build: Any, parameter: inspect.Parameter) -> Tuple[type, ...]:
    """Return the plain types that the option may have; none where nothing is said of it."""
    if isinstance(parameter.default, _PLAIN):
        return (type(parameter.default),)
    try:
        hint = typing.get_type_hints(build.__init__ if inspect.isclass(build) else build).get(parameter.name)
    except (NameError, TypeError):
        return ()
    hints = getattr(hint, "__args__", None) or (hint,)
    return tuple(kind for kind in hints if kind in _PLAIN)


def _fitting(task: str, name: str, value: Any, types: Tuple[type, ...]) -> Any:
    if not types or value is None or type(value) in types:
        return value
    if float in types and type(value) is int:
        return float(value)
    if str in types:
        return str(value)
    expected = " or ".join(kind.__name__ for kind in types)
    raise UserError(
        "option %s of task %s takes %s and was given %r (%s): give --set %s=%s"
        % (name, task, expected, value, type(value).__name__, name, _EXAMPLES[types[0]])
    )


_EXAMPLES = {bool: "true", int: "32", float: "0.5", str: "word"}


def _unknown(task: str, name: str, parameters: Dict[str, inspect.Parameter]) -> UserError:
    known = [parameter for parameter in parameters if parameter not in ("args", "kwargs")]
    if not known:
        return UserError("task %s has no options, and was given %s" % (task, name))
    near: Optional[str] = next(iter(difflib.get_close_matches(name, known, 1)), None)
    hint = "did you mean %s? It has: " % near if near else "it has: "
    return UserError("task %s has no option %s; %s%s" % (task, name, hint, ", ".join(known)))


def _check_required(task: str, parameters: Dict[str, inspect.Parameter], options: Dict[str, Any]) -> None:
    positional = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for name, parameter in parameters.items():
        if parameter.kind in positional and parameter.default is parameter.empty and name not in options:
            raise UserError("task %s needs its option %s: give --set %s=…" % (task, name, name))
