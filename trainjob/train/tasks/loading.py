"""Loads a task by `module:attribute`, checks its options, the keyword arguments of its constructor, and builds it."""

from __future__ import annotations

import importlib
import inspect
import sys
import typing
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Tuple

from trainjob.contract.errors import UserError, did_you_mean, nearest
from trainjob.train.tasks.base import Task

_NEEDED = ("build_model", "open_data", "loss")
_PLAIN = (bool, int, float, str)  # types of options
_EXAMPLES = {bool: "true", int: "32", float: "0.5", str: "word"}


def load(entry: str, options: Mapping[str, object], project: Path) -> Task:
    """Return the task that `entry` names, built with `options`. Raises UserError if there is no such task.

    Errors raised by the user's own module or constructor pass through unchanged.
    """
    build = load_attribute(entry, project, "task")
    if not callable(build):
        raise UserError(
            "task %s is %s" % (entry, type(build).__name__), "name a class or a function that builds the task"
        )
    task = build(**check(entry, build, options))
    missing = [name for name in _NEEDED if not hasattr(task, name)]
    if missing:
        raise UserError(
            "task %s has no %s: a task needs %s" % (entry, ", ".join(missing), ", ".join(_NEEDED)),
            "Add what is missing: trainjob.train.tasks.base has a complete example",
        )
    if not hasattr(task, "metrics"):
        task.metrics = lambda _outputs, _targets: {}
    loaded: Task = task
    return loaded


def load_attribute(entry: str, project: Path, kind: str) -> Any:
    """Return what `entry`, module:attribute, names: a task or an optimizer, as `kind` says. Raises UserError.

    FOLDER/module:attribute is looked up in that folder of the project first.
    """
    path, colon, attribute = entry.partition(":")
    folder, _, module_name = path.rpartition("/")
    if not colon or not module_name or not attribute:
        raise UserError(
            "a %s is a built-in name or module:attribute, and this is %r" % (kind, entry),
            "write it as module:attribute",
        )
    for place in (project / folder, project):
        if place.is_dir() and str(place) not in sys.path:
            sys.path.append(str(place))
    try:
        found = module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # If the task's module imports another one that is missing, that error names it already.
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        hint = did_you_mean(module_name, [path.stem for path in (project / folder).glob("*.py")])
        raise UserError(
            "the %s's module %s is not found: looked in the project %s and among the packages of this Python (%s)."
            % (kind, module_name, project / folder, sys.executable),
            "%sIs the file part of the project (git add it)?" % hint,
        ) from None
    for word in attribute.split("."):
        if not hasattr(found, word):
            known = [name for name in vars(found) if not name.startswith("_")]
            near = nearest(word, known)
            hint = "did you mean %s?" % near if near else "it has %s" % (", ".join(sorted(known)) or "nothing")
            raise UserError("module %s (%s) has no %s" % (module_name, module.__file__, word), hint)
        found = getattr(found, word)
    return found


def check(task: str, build: Callable[..., object], options: Mapping[str, object]) -> Dict[str, object]:
    """Return `options` as `build` takes them. Raises UserError for an unknown name or a value of the wrong type."""
    parameters = inspect.signature(build).parameters
    is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    checked = dict(options)
    for name, value in options.items():
        if name in parameters:
            checked[name] = _fitting(task, name, value, _types(build, parameters[name]))
        elif not is_open:
            known = [parameter for parameter in parameters if parameter not in ("args", "kwargs")]
            if not known:
                raise UserError("task %s has no options, and was given %s" % (task, name), "leave --set out")
            hint = did_you_mean(name, known)
            cure = "%s has %s" % (hint + "It" if hint else "it", ", ".join(known))
            raise UserError("task %s has no option %s" % (task, name), cure)
    for name, parameter in parameters.items():
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if is_named and parameter.default is parameter.empty and name not in options:
            raise UserError("task %s needs its option %s" % (task, name), "give --set %s=…" % name)
    return checked


def _types(build: Callable[..., object], parameter: inspect.Parameter) -> Tuple[type, ...]:
    """Return the plain types that the option may have; none if it has neither a default nor an annotation."""
    if isinstance(parameter.default, _PLAIN):
        return (type(parameter.default),)
    try:
        hint = typing.get_type_hints(build.__init__ if inspect.isclass(build) else build).get(parameter.name)
    except (NameError, TypeError):
        return ()
    hints = getattr(hint, "__args__", None) or (hint,)
    return tuple(kind for kind in hints if kind in _PLAIN)


def _fitting(task: str, name: str, value: object, types: Tuple[type, ...]) -> object:
    if not types or value is None or type(value) in types:
        return value
    if float in types and type(value) is int:
        return float(value)
    if str in types:
        return str(value)
    expected = " or ".join(kind.__name__ for kind in types)
    raise UserError(
        "option %s of task %s takes %s and was given %r (%s)" % (name, task, expected, value, type(value).__name__),
        "give --set %s=%s" % (name, _EXAMPLES[types[0]]),
    )
