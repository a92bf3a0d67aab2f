"""From the words `module:attribute` to a task that is built with its options."""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path
from typing import Any, Dict

from trainjob.contract.errors import UserError
from trainjob.train.tasks import options as task_options
from trainjob.train.tasks.base import Task

_NEEDED = ("build_model", "open_data", "loss")


def load(entry: str, options: Dict[str, Any], project: Path) -> Task:
    """Return the task that `entry` names, built with `options`. Raises UserError, naming what was looked for where.

    What a user's module or constructor itself raises comes through unchanged.
    """
    module_name, colon, attribute = entry.partition(":")
    if not colon or not module_name or not attribute:
        raise UserError("a task is a built-in name or module:attribute, and this is %r" % entry)
    build = _attribute(_module(module_name, project), attribute, module_name)
    if not callable(build):
        raise UserError(
            "task %s is %s: name a class or a function that builds the task" % (entry, type(build).__name__)
        )
    task = build(**task_options.check(entry, build, options))
    missing = [name for name in _NEEDED if not hasattr(task, name)]
    if missing:
        raise UserError(
            "task %s has no %s: a task has %s (trainjob.train.tasks.base shows a whole one)"
            % (entry, ", ".join(missing), ", ".join(_NEEDED))
        )
    if not hasattr(task, "metrics"):
        task.metrics = _no_metrics
    found: Task = task
    return found


def _no_metrics(outputs: Any, targets: Any) -> Dict[str, Any]:  # noqa: ARG001 - the form of a task's metrics
    return {}


def _module(name: str, project: Path) -> Any:
    if project.is_dir() and str(project) not in sys.path:
        sys.path.append(str(project))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that the task's module imports is another matter: it names itself.
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise
        raise UserError(_not_found(name, project)) from None


def _not_found(name: str, project: Path) -> str:
    known = [path.stem for path in project.glob("*.py")]
    near = difflib.get_close_matches(name, known, 1)
    hint = "did you mean %s? " % near[0] if near else ""
    return (
        "the task's module %s is not found: looked in the project %s and in what this Python (%s) has installed. "
        "%sIs the file part of the project (git add it)?" % (name, project, sys.executable, hint)
    )


def _attribute(module: Any, attribute: str, module_name: str) -> Any:
    found = module
    for word in attribute.split("."):
        if not hasattr(found, word):
            known = [name for name in vars(found) if not name.startswith("_")]
            near = difflib.get_close_matches(word, known, 1)
            hint = "did you mean %s?" % near[0] if near else "it has: %s" % (", ".join(sorted(known)) or "nothing")
            raise UserError("module %s (%s) has no %s; %s" % (module_name, module.__file__, word, hint))
        found = getattr(found, word)
    return found
