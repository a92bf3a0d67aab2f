"""Options.loadFromFile: one call of a setter a line, read and not executed."""

from __future__ import annotations

import ast
import importlib
from typing import Any


def apply_file(options: Any, filepath: str) -> None:
    """Call on `options` what each line of the file says. Raises ValueError for what is no call of a setter."""
    with open(filepath, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            text = line.split("#")[0].strip()
            if text:
                _call(options, text, "%s line %d" % (filepath, number))


def _call(options: Any, text: str, where: str) -> None:
    try:
        call = ast.parse(text[len("options.") :] if text.startswith("options.") else text, mode="eval").body
    except SyntaxError:
        call = None
    if not isinstance(call, ast.Call):
        raise ValueError("%s: expected a call of a setter such as deviceIterations(4), and found %r" % (where, text))  # noqa: TRY004 - a file's text is no type
    arguments = [_value(argument, where) for argument in call.args]
    named = {word.arg or "": _value(word.value, where) for word in call.keywords}
    _attribute(options, call.func, where)(*arguments, **named)


def _attribute(start: Any, node: Any, where: str) -> Any:
    if isinstance(node, ast.Name):
        return getattr(start, node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_attribute(start, node.value, where), node.attr)
    raise ValueError("%s: only names and attributes are expected before a call" % where)


def _value(node: Any, where: str) -> Any:
    if isinstance(node, ast.Call):
        return _of_module(node.func, where)(*[_value(argument, where) for argument in node.args])
    return _of_module(node, where) if isinstance(node, ast.Attribute) else ast.literal_eval(node)


def _of_module(node: Any, where: str) -> Any:
    if isinstance(node, ast.Name) and node.id in ("poptorch", "torch"):
        return importlib.import_module(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_of_module(node.value, where), node.attr)
    raise ValueError("%s: only names of poptorch and torch are known in an argument" % where)
