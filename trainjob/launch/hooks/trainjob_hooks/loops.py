"""The loops of a program in which it makes an update, by its own source."""

from __future__ import annotations

import ast
import os
import re
import sys
import tokenize
from typing import Any, List, Tuple, Union

from . import is_of_handler

EPOCHS = re.compile(r"(?:(?:num|n|max|nb|total|train)_)*(?:train_)?epochs\Z", re.IGNORECASE)
_LIMIT = re.compile(r"(?:(?:num|n|max|nb|total|train)_?)*epochs?\Z", re.IGNORECASE)  # of a loop over epochs
MANY = 9  # more than two loops, or some that may end early, or whose source is not known
# What an update passes on its way to its optimizer.
_STEPS = ("torch.", "accelerate.", "deepspeed.", "horovod.", "lightning.fabric.", "lightning_fabric.")
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
            found = _loops_of(frame, has_inner=count > 0)
            if found and is_of_library:
                return MANY
            count += found
        elif "-packages" in file:
            is_of_library |= not str(frame.f_globals.get("__name__")).startswith(_STEPS)
        frame = frame.f_back
    return count


def _loops_of(frame: Any, *, has_inner: bool) -> int:
    """Return how many loops are around the line at which a function is; MANY if one of them may be shorter.

    `has_inner`: of what it has called.
    """
    is_unread = frame.f_code.co_name.startswith("<") and frame.f_code.co_name != "<module>"  # a comprehension or lambda
    if is_unread or sys.version_info < (3, 8):  # before, nothing says where a statement ends
        return MANY
    try:
        with tokenize.open(frame.f_code.co_filename) as stream:
            around = _around(ast.parse(stream.read()), frame.f_lineno)
        innermost = sys.maxsize if has_inner else max((one.lineno for one in around), default=0)
        return MANY if any(_may_be_shorter(one, is_outer=one.lineno < innermost) for one in around) else len(around)
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        if is_of_handler(error):
            raise
        return MANY


def _around(tree: ast.Module, line: int) -> List[_Loop]:
    """Return the loops around a line, in the function that has it."""
    around = [one for one in ast.walk(tree) if getattr(one, "lineno", line + 1) <= line <= _end(one)]
    begin = max((one.lineno for one in around if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))), default=0)
    return [one for one in around if isinstance(one, (ast.For, ast.While)) and one.lineno >= begin]


def _end(node: ast.AST) -> int:
    return getattr(node, "end_lineno", 0) or 0


def _may_be_shorter(loop: _Loop, *, is_outer: bool) -> bool:
    """Return whether a loop may end early, or be another one than its number of epochs says: from 1 to less than it."""
    head = loop.test if isinstance(loop, ast.While) else loop.iter
    if isinstance(loop, ast.While) and (is_outer or not isinstance(head, (ast.Compare, ast.Constant))):
        return True  # until a flag is set, or one of several things happens
    calls = [one for one in ast.walk(head) if isinstance(one, ast.Call)]
    if any(_name(one) in _ENDS or (is_outer and _name(one) == "range" and _is_odd(one.args)) for one in calls):
        return True
    leaves = (ast.Return, ast.Break, ast.Continue) if is_outer else (ast.Return, ast.Break)
    return any(_leaves(one, leaves) for one in loop.body)


def _is_odd(limits: List[ast.expr]) -> bool:
    """Return whether a range may have another length than its end says. `range(1, epochs + 1)` has that one."""
    if not limits:
        return True
    inside = list(ast.walk(limits[-1]))
    before = {id(getattr(one, "value", getattr(one, "func", None))) for one in inside}  # a dot, or an argument
    names = (getattr(one, "attr", getattr(one, "id", "")) for one in inside if id(one) not in before)
    if not all(_LIMIT.match(name) for name in names if name):
        return True  # of a warm-up, perhaps: another training follows
    is_sum = isinstance(limits[-1], ast.BinOp) and isinstance(limits[-1].op, ast.Add)
    begins_at = limits[0].value if len(limits) > 1 and isinstance(limits[0], ast.Constant) else 0
    if len(limits) > 2 or begins_at not in (0, 1) or (begins_at == 1) != is_sum:
        return True
    return not is_sum and any(isinstance(one, ast.BinOp) for one in limits)


def _leaves(node: ast.AST, leaves: Tuple[Any, ...]) -> bool:
    """Return whether a statement may leave the loop that it stands in."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return False
    if isinstance(node, leaves) or _name(node) in _ENDS:
        return True
    is_loop = isinstance(node, (ast.For, ast.AsyncFor, ast.While))
    return any(_leaves(one, (ast.Return,) if is_loop else leaves) for one in ast.iter_child_nodes(node))


def _name(node: ast.AST) -> str:
    """Return the name of the function that is called; "" if none is."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))
