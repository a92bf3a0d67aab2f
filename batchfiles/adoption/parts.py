"""The statements of a batch file: those before its training, the training itself, and those after."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from batchfiles.bash.commands import Assignment, ShellCommand
from batchfiles.bash.expansion import text_of
from batchfiles.bash.shell import parse
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


@dataclass(frozen=True)
class Part:
    """A statement, where it stands, and what bash makes of it."""

    line: int
    last: int
    text: str
    kind: str  # of its node
    commands: Sequence[ShellCommand]
    assignments: Sequence[Assignment]
    above: tuple[str, ...] = ()  # the comment lines directly above it
    beside: str = ""  # the comment at its end


def names_in(text: str) -> set[str]:
    """Return the variables that a text of shell expands."""
    in_arithmetic = {
        word for body in re.findall(r"\(\((.*?)\)\)", text, re.DOTALL) for word in re.findall(r"[A-Za-z_]\w*", body)
    }
    return set(re.findall(r"\$\{?[#!]?([A-Za-z_]\w*)", text)) | in_arithmetic


def takes_arguments(text: str) -> bool:
    """Return whether a text of shell reads an argument of the file, and not of a program that it writes."""
    text = re.sub(r"<<-?\s*['\"\\](\w+).*?\n\s*\1\b", "", text, flags=re.DOTALL)
    return re.search(r"\$\{?[1-9@*]", re.sub(r"\bawk\b[^'|;\n]*'[^']*'", "awk", text)) is not None


@dataclass(frozen=True)
class Parts:
    """A file around one launch. `enclosing` names the statements that contain it: if, for, function."""

    before: list[Part]
    launch: Part | None
    after: list[Part]
    enclosing: tuple[str, ...] = ()
    functions: Mapping[str, range] = field(default_factory=dict)  # their lines


_HOLDERS = {
    "if_statement": "if",
    "else_clause": "if",
    "elif_clause": "if",
    "for_statement": "loop",
    "c_style_for_statement": "loop",
    "while_statement": "loop",
    "do_group": "loop",
    "case_statement": "if",
    "case_item": "if",
    "function_definition": "function",
    "compound_statement": "",
    "subshell": "",
    "list": "",
    "negated_command": "",
}


def parts_of(script: BatchScript, launch: LaunchedProgram) -> Parts:
    """Return the statements of `script` around `launch`."""
    while launch.outer is not None:
        launch = launch.outer
    statements = _Statements(script, launch)
    lines = {name: range(_first(body), _last(body) + 1) for name, body in statements.functions.items()}
    return replace(statements.around(statements.root.children, launch.place), functions=lines)


class _Statements:
    def __init__(self, script: BatchScript, launch: LaunchedProgram) -> None:
        self.script, self.root, self.line = script, parse("\n".join(script.lines)), launch.place
        self.comments = dict(script.comments)
        self.functions = dict(_functions(self.root))
        self.starter = re.escape(launch.command.words[0].source) if launch.command.words else ""

    def around(self, nodes: list[Node], line: int) -> Parts:
        """Return the parts of these statements around `line`, and of those inside the one that contains it."""
        named = [node for node in nodes if node.is_named and node.type != "comment"]
        here = [n for n, node in enumerate(named) if _first(node) <= line <= _last(node)]
        # Of several statements in one line, the one that starts something.
        at = next((n for n in here if re.search(self.starter, text_of(named[n]))), here[-1] if here else None)
        if at is None:
            return Parts([part for node in named for part in self.parts(node)], None, [])
        holder = named[at]
        before, after = ([part for node in some for part in self.parts(node)] for some in (named[:at], named[at + 1 :]))
        if holder.type not in _HOLDERS or (holder.type == "list" and _first(holder) == _last(holder)):
            return Parts(before, self.part(holder), after)
        inner = self.around(self._body(holder), line)
        word = _HOLDERS[holder.type]
        enclosing = (*([word] if word else []), *inner.enclosing)
        return Parts([*before, *inner.before], inner.launch, [*inner.after, *after], enclosing)

    def _body(self, holder: Node) -> list[Node]:
        skipped = holder.children_by_field_name("condition") + holder.children_by_field_name("name")
        skipped += holder.children_by_field_name("value") + holder.children_by_field_name("variable")
        return [child for child in holder.children if child not in skipped]

    def parts(self, node: Node, inside: frozenset[str] = frozenset()) -> Iterator[Part]:
        """Yield one statement, or those of the function that it calls without an argument."""
        name = text_of(node)
        body = self.functions.get(name) if node.type == "command" and name not in inside else None
        if (
            body is None
            or _first(body) == _last(body)
            or _first(body) <= self.line <= _last(body)
            or re.search(r"\$\{?[1-9@*#]|\b(?:local|return)\b", text_of(body))
        ):
            yield self.part(node)
            return
        for child in body.children:
            if child.is_named and child.type != "comment":
                yield from self.parts(child, inside | {name})

    def part(self, node: Node) -> Part:
        """Return one statement with its commands, assignments and comments."""
        first, last, text = _first(node), _last(node), text_of(node)
        here = [
            one
            for one in self.script.commands
            if not one.source and first <= one.line <= last and (not one.words or one.words[0].source in text)
        ]
        given = [one for one in self.script.assignments if not one.source and first <= one.line <= last]
        beside = self.comments.get(last, "")
        return Part(
            first, last, text, node.type, here, given,
            tuple(self._above(first)), beside if _says_something(beside) else "",
        )  # fmt: skip

    def _above(self, line: int) -> Iterator[str]:
        first = line
        while first - 1 in self.comments and self.script.lines[first - 2].lstrip().startswith("#"):
            first -= 1
        for number in range(first, line):
            if _says_something(self.comments[number]):
                yield self.comments[number]


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
