"""The statements of a batch file: those before its training, the training itself, and those after."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

from batchfiles.bash.commands import Assignment, ShellCommand
from batchfiles.bash.expansion import text_of
from batchfiles.bash.statements import branch_halves
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.script import BatchScript, nodes_of

if TYPE_CHECKING:
    from tree_sitter import Node

# A comment that is no sentence: rules, and code that is switched off.
_DECORATION = re.compile(
    r"#[\s#=*_-]*|#\s*(?:[<>]{2,}|!!).*|#+[\w\s]+#+|#!.*|#\s*trainjob:.*|#\s*shellcheck.*|#\s*SBATCH.*"
)
_CODE = re.compile(
    r"#+\s*(?:(?:export\s+)?\w+=\S|(?:source|srun|module|conda|python3?|torchrun|accelerate|echo|cd|set|pip|mkdir)\s\S|--\w|\$).*"
)


class Role(Enum):
    """What a statement is to the training that others lead to."""

    PLAIN = "runs by itself"
    REQUIRED = "has to succeed"  # its right side is what follows: cd x && python train.py
    CONDITION = "decides whether the training starts"
    BRANCH = "runs where the training does not"
    CALL = "calls the function with the training"


@dataclass(frozen=True)
class Statement:
    """A statement, where it stands, and what bash makes of it."""

    line: int
    last: int
    text: str
    kind: str  # of its node, without redirections
    commands: Sequence[ShellCommand]
    assignments: Sequence[Assignment]
    span: tuple[int, int] = (0, 0)  # its bytes
    role: Role = Role.PLAIN
    above: tuple[str, ...] = ()  # the comment lines directly above it
    beside: str = ""  # the comment at its end

    @property
    def declared(self) -> set[str]:
        """The names in a declaration without values, or in an `unset`."""
        return set(re.findall(r"(?<=\s)[A-Za-z_][\w-]*", self.text))


def names_in(text: str) -> set[str]:
    """Return the variables that a text of shell expands."""
    calculates = (
        r"\(\(([\s\S]*?)\)\)|\blet\s([^|;&\n]*)|\b\w+\[(\w[^\]]*)\]|(?:declare|typeset|local)\s+-\w*i\w*\s([^|;&\n]*)"
    )
    in_arithmetic = {
        word
        for match in re.finditer(calculates, text)
        for word in re.findall(r"[A-Za-z_]\w*", "".join(filter(None, match.groups())))
    }
    own = _own_text(text, but=r"(?!.*\.(?:ba)?sh\b|.*\n#!.*sh\b)")
    return set(re.findall(r"\$\{?[#!]?([A-Za-z_]\w*)", own)) | in_arithmetic


# A program in quotes: its $ are no variables of the shell's.
_OTHER_TONGUES = re.compile(r"(\b(?:awk|perl|sed)\b[^'\"|;\n]*)'[^']*'")


def _own_text(text: str, but: str = "") -> str:
    """Return a text of shell without programs and here-documents in quotes; `but` those of lines that are like this."""
    quoted = rf"(?m)^({but}.*<<-?[ \t]*['\"\\](\w+)\b.*)\n(?:.*\n)*?[ \t]*\2$"
    return _OTHER_TONGUES.sub(r"\1", re.sub(quoted, r"\1", text))


def takes_arguments(text: str) -> bool:
    """Return whether a text of shell reads an argument of the file, and not of a program that it writes."""
    return re.search(r"\$(?:\{?[1-9@*]|#(?!\w)|\{#\})|\bgetopts\s", _own_text(text)) is not None


@dataclass(frozen=True)
class Parts:
    """A file around one launch. `enclosing` names the statements that contain it: if, loop."""

    before: list[Statement]
    launch: Statement | None
    after: list[Statement]
    enclosing: tuple[str, ...] = ()
    functions: Mapping[str, range] = field(default_factory=dict)  # their lines


_HOLDERS = {
    "if_statement": "if",
    "elif_clause": "if",
    "else_clause": "if",
    "case_statement": "if",
    "case_item": "if",
    "for_statement": "loop",
    "c_style_for_statement": "loop",
    "while_statement": "loop",
    "do_group": "",
    "compound_statement": "",
    "subshell": "",
    "list": "",
    "negated_command": "",
    "pipeline": "",
    "redirected_statement": "",
}


def parts_of(script: BatchScript, launch: LaunchedProgram) -> Parts:
    """Return the statements of `script` around `launch`: each command is in one of them."""
    statements = _Statements(script, launch)
    lines = {name: range(_first(body), _last(body) + 1) for name, body in statements.functions.items()}
    return replace(statements.around(script.root.children), functions=lines)


Placed = TypeVar("Placed", Assignment, ShellCommand)


class _ByPlace(Generic[Placed]):
    """What the file itself does, found by its place without looking at all of it."""

    def __init__(self, listed: Sequence[Placed]) -> None:
        self._listed: Sequence[Placed] = listed
        self._places = sorted((one.at, number) for number, one in enumerate(listed) if not one.source)

    def within(self, *spans: range) -> list[Placed]:
        """Return what lies in one of the spans, in order."""
        found = {
            number
            for span in spans
            for _, number in self._places[
                bisect_left(self._places, (span.start,)) : bisect_left(self._places, (span.stop,))
            ]
        }
        return [self._listed[number] for number in sorted(found)]


class _Statements:
    def __init__(self, script: BatchScript, launch: LaunchedProgram) -> None:
        self.script, self.at = script, launch.command.at
        self._commands, self._assignments = _ByPlace(script.commands), _ByPlace(script.assignments)
        self.comments = dict(script.comments)
        self.functions = dict(_functions(script.root))
        self.leading = self._leading()
        self.opened: set[str] = set()

    def _leading(self) -> set[str]:
        """Return the functions with the launch in them, or with a call of such a function."""
        found: set[str] = set()
        while True:
            more = {name for name, body in self.functions.items() if self._holds_launch(body) or _calls(body, found)}
            if more <= found:
                return found
            found |= more

    def _holds_launch(self, node: Node) -> bool:
        return node.start_byte <= self.at < node.end_byte

    def _leads(self, node: Node) -> bool:
        if node.type == "function_definition":
            return False
        return self._holds_launch(node) or _calls(node, self.leading - self.opened)

    def around(self, nodes: Sequence[Node]) -> Parts:
        """Return the parts of these statements, and of those inside the one that leads to the launch."""
        named = [
            node for node in nodes if node.is_named and node.type not in ("comment", "heredoc_body", "heredoc_end")
        ]
        at = next((n for n, node in enumerate(named) if self._leads(node)), None)
        before = [part for node in named[:at] for part in self.parts(node)]
        if at is None:
            return Parts(before, None, [])
        inner = self._inside(named[at])
        after = [part for node in named[at + 1 :] for part in self.parts(node)]
        return Parts([*before, *inner.before], inner.launch, [*inner.after, *after], inner.enclosing)

    def _inside(self, node: Node) -> Parts:
        """Return the parts of the statement that leads to the launch."""
        if node.type == "command" and not self._holds_launch(node):
            name = text_of(node).split()[0]
            self.opened.add(name)
            inner = self.around(self.functions[name].children)
            return replace(inner, before=[self.part(node, Role.CALL), *inner.before])
        if node.type not in _HOLDERS or (node.type in ("pipeline", "redirected_statement") and self._is_simple(node)):
            return Parts([], self.part(node), [])
        if node.type == "list":
            return self._list(node)
        word = _HOLDERS[node.type]
        condition, body, others = _halves(node)
        if any(self._leads(one) for one in condition):  # if srun python train.py; then
            inner = self.around(condition)
            rest = [part for one in (*body, *others) if one.is_named for part in self.parts(one)]
            return replace(inner, after=[*inner.after, *rest])
        at = next((n for n, one in enumerate(others) if self._leads(one)), None)
        asked = [self.part(one, Role.CONDITION) for one in condition]
        if at is None:
            inner = self.around(body)
            rest = [self.part(one, Role.BRANCH) for one in others]
            inner = replace(inner, before=[*asked, *inner.before], after=[*inner.after, *rest])
        else:
            inner = self._inside(others[at])
            left = [self.part(one, Role.BRANCH) for one in (*body, *others[:at]) if one.is_named]
            rest = [self.part(one, Role.BRANCH) for one in others[at + 1 :]]
            inner = replace(inner, before=[*asked, *left, *inner.before], after=[*inner.after, *rest])
        return replace(inner, enclosing=(*([word] if word else []), *inner.enclosing))

    def _is_simple(self, node: Node) -> bool:
        """Return whether the launch itself is what is redirected or piped, and no group or function around it."""
        lead = next((child for child in node.named_children if self._leads(child)), node)
        if lead.type in ("pipeline", "redirected_statement"):
            return self._is_simple(lead)
        return lead.type not in _HOLDERS and self._holds_launch(lead)

    def _list(self, node: Node) -> Parts:
        left, *right = [child for child in node.named_children if child.type != "comment"]
        if self._leads(left):
            inner = self._inside(left)
            return replace(inner, after=[*inner.after, *(part for one in right for part in self.parts(one))])
        sign = next((child.type for child in node.children if child.type in ("&&", "||")), "&&")
        inner = self.around(right)
        if sign == "||" or left.type in ("test_command", "negated_command"):
            asked = [self.part(left, Role.CONDITION)]
            return replace(inner, before=[*asked, *inner.before], enclosing=("if", *inner.enclosing))
        chain = self._chain(left)
        return replace(inner, before=[*chain, *inner.before])

    def _chain(self, node: Node) -> list[Statement]:
        """Return the statements of `a && b`, each of which has to succeed."""
        if node.type == "list" and any(child.type == "&&" for child in node.children):
            return [part for one in node.named_children if one.type != "comment" for part in self._chain(one)]
        return [self.part(node, Role.REQUIRED)]

    def parts(self, node: Node) -> Iterator[Statement]:
        """Yield the statement of a node; of a chain that only sets, each part."""
        if node.type == "list" and _only_sets(node):
            yield from self._chain(node)
        elif text_of(node).strip(" \\\n") and not (node.type == "comment" or self._is_leading(node)):
            yield self.part(node)

    def _is_leading(self, node: Node) -> bool:
        """Return whether a function's statements are listed where it is called."""
        name = node.child_by_field_name("name") if node.type == "function_definition" else None
        return name is not None and text_of(name) in self.leading

    def part(self, node: Node, role: Role = Role.PLAIN) -> Statement:
        """Return one statement with its commands, assignments and comments."""
        first, last, start, end = _first(node), _last(node), node.start_byte, node.end_byte
        here = self._commands.within(range(start, end))
        called = [body for one in here if (body := self.functions.get(one.name)) is not None]
        read = [range(start, end), *(range(body.start_byte, body.end_byte) for body in called)]
        given = self._assignments.within(*read)
        beside = self.comments.get(last, "")
        kind = (node.child_by_field_name("body") or node).type if node.type == "redirected_statement" else node.type
        return Statement(
            first, last, text_of(node), kind, here, given, (start, end), role,
            above=tuple(self._above(first)), beside=beside if _says_something(beside) else "",
        )  # fmt: skip

    def _above(self, line: int) -> list[str]:
        """Return the comment lines above that say something."""
        first = line
        while first - 1 in self.comments and re.match(r"\s*#(?!SBATCH|!)", self.script.lines[first - 2]):
            first -= 1
        return [self.comments[number] for number in range(first, line) if _says_something(self.comments[number])]


def _only_sets(node: Node) -> bool:
    """Return whether a chain of && only changes the folder and gives variables their values."""
    if node.type == "list":
        parts = [child for child in node.named_children if child.type != "comment"]
        return all(child.type != "||" for child in node.children) and all(_only_sets(part) for part in parts)
    is_move = node.type == "command" and text_of(node).split()[:1] in (["cd"], ["pushd"], ["popd"], ["true"], [":"])
    return is_move or node.type in ("declaration_command", "variable_assignment", "variable_assignments")


def _calls(node: Node, names: Collection[str]) -> bool:
    waiting = [node]
    while waiting and names:
        one = waiting.pop()
        if one.type == "command" and text_of(one).split()[:1] and text_of(one).split()[0] in names:
            return True
        waiting.extend(child for child in one.children if child.type != "function_definition")
    return False


def _halves(node: Node) -> tuple[list[Node], list[Node], list[Node]]:
    """Return the conditions, the body and the other branches of a statement that holds others."""
    children = [child for child in node.children if child.type != "comment"]
    if node.type in ("if_statement", "elif_clause"):
        return *branch_halves(node), [child for child in children if child.type in ("elif_clause", "else_clause")]
    if node.type == "case_statement":
        return [], [], [child for child in children if child.type == "case_item"]
    named = ("value", "variable", "initializer", "update")
    skipped = [child for name in named for child in node.children_by_field_name(name)]
    asked = node.children_by_field_name("condition") if node.type == "while_statement" else []
    skipped += asked + node.children_by_field_name("condition")
    redirects = ("file_redirect", "heredoc_redirect", "herestring_redirect")
    body = [child for child in children if child not in skipped and child.type not in redirects]
    return [child for child in asked if child.is_named], body, []


def _functions(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the name and the body of each function."""
    for found in nodes_of(node, "function_definition"):
        name, body = found.child_by_field_name("name"), found.child_by_field_name("body")
        if name is not None and body is not None:
            yield text_of(name), body


def _says_something(comment: str) -> bool:
    return bool(comment) and not (_DECORATION.fullmatch(comment) or _CODE.fullmatch(comment))


def _first(node: Node) -> int:
    return node.start_point.row + 1


def _last(node: Node) -> int:
    # A here-document ends at the start of the line behind it.
    return max(_first(node), node.end_point.row + (1 if node.end_point.column else 0))
