"""The loops of a program in which it makes an update, by its own source."""

from __future__ import annotations

import ast
import os
import tokenize
from typing import Any, Union

MANY = 9  # more than two loops, or some that may end early, or whose source is not known
_STEPS = (
    "torch.",
    "accelerate.",
    "deepspeed.",
    "horovod.",
    "lightning.fabric.",
    "lightning_fabric.",
)  # what an update passes on its way to its optimizer
_ENDS = {"exit", "quit", "_exit", "abort", "islice", "takewhile", "zip"}
_Loop = Union[ast.For, ast.While]
_STANDARD = os.path.dirname(os.__file__)


def loops_around(frame: Any) -> int:
    """Return how many loops of the program there are around this frame; 0: none, so a library may have them."""
    count, is_of_library = 0, False
    while frame is not None:
        file = frame.f_code.co_filename
        is_own = "-packages" not in file and not file.startswith((_STANDARD, "<", os.path.dirname(__file__)))
        if is_own:
            found = _loops_of(frame)
            if found and is_of_library:
                return MANY
            count += found
        elif "-packages" in file:
            is_of_library |= not str(frame.f_globals.get("__name__")).startswith(_STEPS)
        frame = frame.f_back
    return count


def _loops_of(frame: Any) -> int:
    """Return how many loops are around the line at which a function is; MANY if one of them may end early."""
    if frame.f_code.co_name.startswith("<") and frame.f_code.co_name != "<module>":
        return MANY  # a comprehension, or a lambda
    try:
        with tokenize.open(frame.f_code.co_filename) as stream:
            tree = ast.parse(stream.read())
    except (OSError, SyntaxError, ValueError):
        return MANY
    line = frame.f_lineno
    around = [one for one in ast.walk(tree) if getattr(one, "lineno", line + 1) <= line <= _end(one)]
    begin = max((one.lineno for one in around if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))), default=0)
    loops = [one for one in around if isinstance(one, (ast.For, ast.While)) and one.lineno >= begin]
    return MANY if any(map(_may_end_early, loops)) else len(loops)


def _end(node: ast.AST) -> int:
    return getattr(node, "end_lineno", 0) or 0


def _may_end_early(loop: _Loop) -> bool:
    head = loop.test if isinstance(loop, ast.While) else loop.iter
    if isinstance(loop, ast.While) and not isinstance(head, (ast.Compare, ast.Constant)):
        return True  # until a flag is set, or one of several things happens
    return any(_name(one) in _ENDS for one in ast.walk(head)) or any(_leaves(one) for one in loop.body)


def _leaves(node: ast.AST, *, is_inner: bool = False) -> bool:
    """Return whether a statement may leave the loop that it stands in."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return False
    if isinstance(node, ast.Return) or (isinstance(node, ast.Break) and not is_inner) or _name(node) in _ENDS:
        return True
    is_inner |= isinstance(node, (ast.For, ast.AsyncFor, ast.While))
    return any(_leaves(one, is_inner=is_inner) for one in ast.iter_child_nodes(node))


def _name(node: ast.AST) -> str:
    """Return the name of the function that is called; "" if none is."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))
