"""Evaluates the condition of an `if` as far as it can be known."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from trainjob.scripts.expansion import Expander, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_OF_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


class Truth(NamedTuple):
    """The truth of a condition for the file as it is; None if only a run can tell."""

    holds: bool | None
    always: bool = False  # and not only until a switch in the file is turned


def truth(condition: list[Node], expander: Expander) -> Truth:
    """Return whether a condition holds."""
    tests = [node for node in condition if node.is_named]
    if len(tests) != 1 or tests[0].type != "test_command":
        return Truth(None)
    inner = tests[0].named_children
    return _compared(inner[0], expander) if len(inner) == 1 and inner[0].type == "binary_expression" else Truth(None)


def _compared(node: Node, expander: Expander) -> Truth:
    sides = expander.value(node.child_by_field_name("left")), expander.value(node.child_by_field_name("right"))
    sign = node.child_by_field_name("operator")
    if sign is None or not all(side.known for side in sides):
        return Truth(None)
    left, right = (side.text.strip() for side in sides)
    compare = _OF_NUMBERS.get(text_of(sign))
    # Figures of the request are the same for every run of this file; a switch is there to be turned.
    always = any(side.origins for side in sides)
    if compare is not None and left.isdigit() and right.isdigit():
        return Truth(compare(int(left[:18]), int(right[:18])), always)
    return Truth({"==": left == right, "=": left == right, "!=": left != right}.get(text_of(sign)), always)
