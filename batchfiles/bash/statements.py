"""The statements of bash that hold other statements, and which of their commands a script runs."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from batchfiles.bash.commands import Condition
from batchfiles.bash.expansion import Expander, Word, text_of
from batchfiles.bash.values import HOLE, Value, joined, names_calculated, unknown

if TYPE_CHECKING:
    from tree_sitter import Node

    from batchfiles.bash.shell import ShellReader

COMPARES: dict[str, Callable[[int, int], bool]] = {
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


def _redirected(shell: ShellReader, node: Node) -> None:
    before = len(shell.commands)
    redirects: list[tuple[str, Value]] = []
    read: tuple[Value, Node] | None = None
    for child in node.children:
        if child.type == "heredoc_redirect":
            redirects.extend(shell.redirect(inner) for inner in child.named_children if inner.type == "file_redirect")
            shell.block([inner for inner in child.named_children if inner.type in ("pipeline", "command", "list")])
        elif child.type == "file_redirect":
            redirects.append(shell.redirect(child))
        elif child.type == "herestring_redirect":
            value = joined(shell.expander.value(part) for part in child.named_children)
            for command in shell.commands[before:]:
                command.reads = value
        else:
            document = next((one for one in node.children if one.type == "heredoc_redirect"), None)
            if document is not None:
                shell.input = shell.expander.here_document(document)
                read = shell.input, document
            shell.statement(child)
            shell.input = None
    for command in shell.commands[before:]:
        command.writes_to.extend(redirects)
    is_copy = read is not None and [one.text for one in shell.commands[before : before + 1]] == ["cat"]
    for sign, path in redirects:
        if sign == ">" and path.text and read is not None and is_copy:
            shell.note_written(path, *read)
        elif ">" in sign:
            shell.forget_written(path)


def _pipeline(shell: ShellReader, node: Node) -> None:
    parts = node.named_children
    ranges = []
    for part in parts:
        before = len(shell.commands)
        shell.statement(part)
        ranges.append((before, len(shell.commands)))
    last = shell.commands[ranges[-1][0]].name if ranges and ranges[-1][0] < ranges[-1][1] else ""
    for start, end in ranges[:-1]:
        for command in shell.commands[start:end]:
            # What runs in a shell that this pipeline starts has that shell's exit code.
            if "called" not in command.within[len(shell.within) :]:
                command.piped_into = command.piped_into or last


def _list(shell: ShellReader, node: Node) -> None:
    # left && right: only the last command of a chain ends a shell with `set -e`.
    sign = next((child.type for child in node.children if child.type in ("&&", "||")), "&&")
    left, *right = [child for child in node.named_children if child.type != "comment"]
    is_test = left.type in ("test_command", "negated_command")
    verdict = _truth([left], shell.expander) if is_test else _Truth(None)
    before, arrays = dict(shell.variables.values), dict(shell.variables.arrays)
    shell.inside("and" if sign == "&&" else "or", left)
    for child in right:
        shell.inside("after-and" if sign == "&&" else "after-or", child)
    if is_test and verdict.holds is not (sign == "&&"):
        # Taken perhaps, or not at all.
        ended, shell.variables.values = shell.variables.values, before
        _merge(shell, dict(before), [(ended, verdict.holds is None)], undecided=True)
        if verdict.holds is None:
            _leave_arrays_open(shell, arrays)
        else:
            shell.variables.arrays = arrays


def _negated(shell: ShellReader, node: Node) -> None:
    for child in node.named_children:
        shell.inside("not", child)


_IN_EACH_JOB = frozenset(("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_SUBMIT_DIR", "SLURM_JOB_NODELIST", "SLURM_NODELIST"))


class _Truth(NamedTuple):
    """The truth of a condition for the file as it is; None if only a run can tell."""

    holds: bool | None
    always: bool = False  # and not only until a switch in the file is turned


def _truth(condition: list[Node], expander: Expander) -> _Truth:
    """Return whether a condition holds."""
    tests = [node for node in condition if node.is_named]
    return _holds(tests[0], expander) if len(tests) == 1 and tests[0].type == "test_command" else _Truth(None)


def _holds(node: Node, expander: Expander) -> _Truth:
    """Return whether a test holds."""
    inner = node.named_children
    if node.type in ("test_command", "parenthesized_expression"):
        return _holds(inner[0], expander) if len(inner) == 1 else _Truth(None)
    if node.type == "negated_command" or (node.type == "unary_expression" and node.children[0].type == "!"):
        found = _holds(inner[-1], expander)
        return found if found.holds is None else _Truth(not found.holds, found.always)
    if node.type == "unary_expression" and len(inner) == 2 and text_of(inner[0]) in ("-n", "-z"):
        value = expander.value(inner[1])
        if value.text == HOLE and value.origins and value.origins <= _IN_EACH_JOB:
            return _Truth(text_of(inner[0]) == "-n", always=True)
        if value.text == HOLE and value.origins and value.origins <= expander.variables.absent:
            value = value.with_text("")
        is_empty = not value.text
        return _Truth(is_empty == (text_of(inner[0]) == "-z"), bool(value.origins)) if value.known else _Truth(None)
    if node.type != "binary_expression":
        return _Truth(None)
    sign = node.child_by_field_name("operator")
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if sign is None or left is None or right is None:
        return _Truth(None)
    if text_of(sign) in ("&&", "||"):
        sides, decides = (_holds(left, expander), _holds(right, expander)), text_of(sign) == "||"
        one = next((side for side in sides if side.holds is decides), None)
        return one or (sides[0] if all(side.holds is not None for side in sides) else _Truth(None))
    return _compared(text_of(sign), expander.value(left), expander.value(right), is_pattern="*" in text_of(right))


def _compared(sign: str, *sides: Value, is_pattern: bool) -> _Truth:
    if not all(side.known for side in sides) or is_pattern:
        return _Truth(None)
    left, right = (side.text.strip() for side in sides)
    compare = COMPARES.get(sign)
    # Figures of the request are the same for every run of this file; a switch is there to be turned.
    always = any(side.origins for side in sides)
    if compare is not None and left.isdigit() and right.isdigit():
        return _Truth(compare(int(left[:18]), int(right[:18])), always)
    return _Truth({"==": left == right, "=": left == right, "!=": left != right}.get(sign), always)


def _if(shell: ShellReader, node: Node) -> None:
    branches = [node, *(child for child in node.children if child.type in ("elif_clause", "else_clause"))]
    before, arrays = dict(shell.variables.values), dict(shell.variables.arrays)
    open_before = set(shell.variables.undecided)
    ends: list[tuple[dict[str, Value], bool]] = []
    outer_conditions, outer_dead, outer_within = shell.conditions, shell.dead, shell.within
    taken, tests, undecided = _Truth(holds=False), "", False
    for number, branch in enumerate(branches):
        condition, body = branch_halves(branch)
        verdict = _Truth(holds=None) if branch.type == "else_clause" else _truth(condition, shell.expander)
        tests += " ".join(text_of(part) for part in condition)
        shell.conditions = (*outer_conditions, Condition(node.start_byte, number, tests))
        for part in condition:
            shell.inside("condition", part)
        never = taken.holds is True or verdict.holds is False
        dies = taken.always if taken.holds else never and verdict.always
        shell.dead = outer_dead or dies
        shell.within = (*outer_within, "if")
        shell.block(body)
        shell.within = outer_within
        if not dies:
            ends.append((dict(shell.variables.values), not never))
        if never:
            shell.variables.arrays = dict(arrays)
        elif undecided or verdict.holds is None:
            _leave_arrays_open(shell, arrays)
        shell.variables.values = dict(before)
        taken = verdict if verdict.holds else taken
        undecided = undecided or (verdict.holds is None and branch.type != "else_clause" and not taken.holds)
    shell.conditions, shell.dead = outer_conditions, outer_dead
    shell.variables.undecided |= open_before if undecided else set()
    _merge(shell, before, ends, undecided=undecided)


def _merge(
    shell: ShellReader, before: dict[str, Value], ends: list[tuple[dict[str, Value], bool]], *, undecided: bool
) -> None:
    """Keep what the last branch that may be taken has set."""
    for end, possible in ends:
        for name, value in end.items():
            if before.get(name) == value:
                continue
            if possible and undecided:
                shell.variables.undecided.add(name)
            if possible:
                shell.variables.values[name] = value


def _leave_arrays_open(shell: ShellReader, before: dict[str, list[Word]]) -> None:
    """Let only a run know which arrays have changed."""
    shell.variables.undecided |= {name for name, words in shell.variables.arrays.items() if before.get(name) != words}


def _loop(shell: ShellReader, node: Node) -> None:
    bodies = node.children_by_field_name("body") or [child for child in node.children if child.type == "do_group"]
    variable = node.child_by_field_name("variable")
    if variable is not None:
        values = [shell.expander.value(child) for child in node.children_by_field_name("value")]
        shell.variables.set(text_of(variable), unknown(*joined(values).origins))
    for part in node.children_by_field_name("condition"):
        shell.inside("condition", part)
    if node.type == "c_style_for_statement":
        for name in names_calculated(text_of(node).partition("do")[0]):
            shell.byte_of(node)
            shell.leave_open(name, text_of(node), node.start_point.row + 1)
    tests = " ".join(text_of(part) for part in node.children_by_field_name("condition")).strip("; ")
    before = len(shell.assignments)
    for body in bodies:
        shell.inside("endless" if node.type == "while_statement" and tests in ("true", ":", "[ 1 ]") else "loop", body)
    # It is read for one turn.
    shell.variables.undecided |= {one.name for one in shell.assignments[before:]}


def _case(shell: ShellReader, node: Node) -> None:
    before, arrays, outer = dict(shell.variables.values), dict(shell.variables.arrays), shell.conditions
    ends = []
    for number, item in enumerate(node.named_children):
        if item.type == "case_item":
            asked = f"{text_of(node.named_children[0])} {text_of(item.named_children[0])}"
            shell.conditions = (*outer, Condition(node.start_byte, number, asked))
            shell.inside("if", item)
            _leave_arrays_open(shell, arrays)
            ends.append((dict(shell.variables.values), True))
            shell.variables.values = dict(before)
    shell.conditions = outer
    _merge(shell, before, ends, undecided=True)


def _function(shell: ShellReader, node: Node) -> None:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is not None and body is not None:
        shell.functions[text_of(name)] = (body, shell.source, shell.first_line)


def _assignment(shell: ShellReader, node: Node) -> None:
    if text_of(node).startswith("-"):  # to the grammar, --partition=gpu is an assignment
        shell.command(node)
    else:
        shell.assign(node, exports=False)


def _declaration(shell: ShellReader, node: Node) -> None:
    keyword = text_of(node.children[0])
    flags = {letter for child in node.named_children if text_of(child)[0] == "-" for letter in text_of(child)[1:]}
    exports = keyword == "export" or "x" in flags
    for child in node.named_children:
        name = text_of(child).partition("=")[0].rstrip("+")
        if child.type in ("variable_assignment", "variable_name") and keyword != "export" and flags & set("iulcnA"):
            shell.variables.converted.add(name)
        if child.type == "variable_assignment":
            shell.assign(child, exports=exports)
            if "A" in flags:
                shell.variables.leave_open(name, is_array=True)
        elif exports and child.type == "variable_name":
            shell.variables.exported.add(text_of(child))


def _unset(shell: ShellReader, node: Node) -> None:
    for child in node.named_children:
        at = child.start_byte - node.start_byte
        element = re.match(rb"['\"]?([A-Za-z_]\w*)\[", (node.text or b"")[at:])
        if element is not None:
            shell.byte_of(node)
            shell.leave_open(element[1].decode(), text_of(node), node.start_point.row + 1, is_array=True)
        elif child.type == "variable_name":
            shell.variables.values.pop(text_of(child), None)
            shell.variables.arrays.pop(text_of(child), None)
            shell.variables.exported.discard(text_of(child))


def branch_halves(branch: Node) -> tuple[list[Node], list[Node]]:
    """Return the condition and the body of a branch."""
    inner = [child for child in branch.children if child.type not in ("elif_clause", "else_clause", "fi", "comment")]
    if branch.type == "else_clause":
        return [], inner[1:]
    then = next((at for at, child in enumerate(inner) if child.type == "then"), len(inner))
    return [child for child in inner[1:then] if child.is_named], inner[then + 1 :]


READERS: dict[str, Callable[[ShellReader, Node], None]] = {
    "command": lambda shell, node: shell.command(node),
    "redirected_statement": _redirected,
    "pipeline": _pipeline,
    "list": _list,
    "subshell": lambda shell, node: shell.subshell(node),
    "command_substitution": lambda shell, node: shell.subshell(node),
    "negated_command": _negated,
    "compound_statement": lambda shell, node: shell.compound(node),
    "if_statement": _if,
    "for_statement": _loop,
    "c_style_for_statement": _loop,
    "while_statement": _loop,
    "case_statement": _case,
    "function_definition": _function,
    "declaration_command": _declaration,
    "variable_assignment": _assignment,
    "unset_command": _unset,
    "comment": lambda _shell, _node: None,
}
