"""The commands that a shell script runs, in order, with the values that are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from trainjob.scripts.conditions import Truth, truth
from trainjob.scripts.expansion import Expander, Variables, Word, text_of
from trainjob.scripts.values import Value, joined, unknown

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_CALLS = 4  # of functions and scripts inside one another
_MOST_COMMANDS = 20_000


class Condition(NamedTuple):
    """The branch of an `if` in which a command stands."""

    number: int  # of the if
    branch: int
    text: str  # the tests that led here


@dataclass
class Command:
    """A command that the script runs."""

    words: list[Word]
    line: int
    settings: dict[str, Value]  # NAME=value before it
    variables: Variables  # as they are when it starts
    options: frozenset[str]  # of the shell: e, u, pipefail
    within: tuple[
        str, ...
    ] = ()  # from the outermost: if, loop, function, substitution, subshell, and, or, not, called, handler
    conditions: tuple[Condition, ...] = ()  # the ifs around it
    source: str = ""  # the file, where it is not the batch file itself
    piped_into: str | None = None  # the last command of its pipeline
    background: bool = False
    dead: bool = False  # in a branch that this job never takes
    writes_to: list[tuple[str, Value]] = field(default_factory=list)  # operator, file
    reads: Value | None = None  # a here-string

    @property
    def name(self) -> str:
        """The command's own name, without its folder."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    @property
    def text(self) -> str:
        """All words in one line."""
        return " ".join(word.text for word in self.words)

    @property
    def top_level(self) -> bool:
        """Whether the script's end depends on it: it is in no function, substitution or subshell."""
        return not {"function", "substitution", "handler"} & set(self.within)


@dataclass
class Assignment:
    """A variable's new value."""

    name: str
    value: Value
    line: int
    exported: bool
    source: str
    array: list[Word] | None = None
    within: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    dead: bool = False
    text: str = ""


@cache
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse(text: str) -> Node:
    """Return the tree of a script."""
    root: Node = _parser().parse(text.encode(errors="replace")).root_node
    return root


class Shell:
    """Reads a script as bash would run it: `commands` and `assignments` are what it meets, in order."""

    def __init__(
        self, variables: Variables, find_script: Callable[[str], tuple[str, str] | None], depth: int = 0
    ) -> None:
        self.variables, self.find_script, self.depth = variables, find_script, depth
        self.commands: list[Command] = []
        self.assignments: list[Assignment] = []
        self.not_here: dict[str, int] = {}  # scripts that it calls and that are not beside it, and the lines
        self.functions: dict[str, Node] = {}
        self._called: set[str] = set()
        self.options: set[str] = set()
        self._within: tuple[str, ...] = ()
        self._conditions: tuple[Condition, ...] = ()
        self._dead = False
        self.source = ""
        self.first_line = 0  # added to line numbers: where a text that this shell runs stands in the file
        self._expander = Expander(variables, self._substitution)

    def run(self, root: Node) -> None:
        """Read a whole script, then the functions that it never calls by name: handlers of traps are among them."""
        self._block(root.children)
        for name, body in list(self.functions.items()):
            if name not in self._called:
                self._inside("handler", body)

    def _line(self, node: Node) -> int:
        return node.start_point.row + 1 + self.first_line

    def _block(self, nodes: list[Node]) -> None:
        for at, node in enumerate(nodes):
            follows = nodes[at + 1].type if at + 1 < len(nodes) else ""
            before = len(self.commands)
            self._statement(node)
            if follows == "&":
                for command in self.commands[before:]:
                    command.background = True

    def _inside(self, what: str, node: Node) -> None:
        outer, self._within = self._within, (*self._within, what)
        if len(self._within) < 40:
            self._statement(node)
        self._within = outer

    def _statement(self, node: Node) -> None:
        if len(self.commands) > _MOST_COMMANDS:
            return
        reader = _READERS.get(node.type)
        if reader is not None:
            reader(self, node)
        elif node.named_children and node.type not in ("comment", "heredoc_body"):
            self._block(node.children)

    def _subshell(self, node: Node) -> None:
        outer, self.variables = self.variables, self.variables.copy()
        self._expander.variables = self.variables
        outer_within, self._within = self._within, (*self._within, "subshell")
        self._block(node.children)
        self._within = outer_within
        self.variables = self._expander.variables = outer

    def _substitution(self, node: Node) -> None:
        outer, self._within = self._within, (*self._within, "substitution")
        if len(self._within) < 40:
            self._subshell(node)
        self._within = outer

    def _command(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        for alternative in self._alternatives(node):
            self._one_command(node, name, alternative)

    def _alternatives(self, node: Node) -> Iterator[tuple[str, Value] | None]:
        """Yield None, and each other value that a branch gave to a variable outside quotes."""
        yield None
        for child in node.named_children:
            inner = child.named_children[0] if child.type == "command_name" and child.named_children else child
            if inner.type in ("simple_expansion", "expansion"):
                variable = text_of(inner).strip("${}")
                for value in self.variables.others.get(variable, [])[:3]:
                    if value != self.variables.values.get(variable):
                        yield variable, value

    def _one_command(self, node: Node, name: Node | None, alternative: tuple[str, Value] | None) -> None:
        kept = None
        if alternative is not None:
            kept = self.variables.values.get(alternative[0])
            self.variables.values[alternative[0]] = alternative[1]
        words: list[Word] = []
        settings: dict[str, Value] = {}
        reads: Value | None = None
        writes: list[tuple[str, Value]] = []
        for child in node.children:
            if child.type == "variable_assignment":
                settings[text_of(child.named_children[0])] = self._expander.value(child.child_by_field_name("value"))
            elif child.type == "herestring_redirect":
                reads = joined(self._expander.value(part) for part in child.named_children)
            elif child.type == "file_redirect":
                writes.append(self._redirect(child))
            elif child.is_named and child.type != "comment":
                words.extend(
                    self._expander.words(child.named_children[0] if child == name and child.named_children else child)
                )
        while len(words) > 1 and not words[0].text and not words[0].quoted:
            words.pop(0)
        self._note(words, self._line(node), settings, reads, writes)
        if alternative is not None and kept is not None:
            self.variables.values[alternative[0]] = kept

    def _note(
        self,
        words: list[Word],
        line: int,
        settings: dict[str, Value],
        reads: Value | None,
        writes: list[tuple[str, Value]],
    ) -> None:
        # NAME=value that came from a variable, as in LAUNCHER="DEBUG=1 torchrun"
        command = Command(
            words, line, settings, self.variables.copy(), frozenset(self.options), self._within, self._conditions,
            self.source, dead=self._dead, reads=reads, writes_to=writes,
        )  # fmt: skip
        self.commands.append(command)
        if words and self.first_line:
            for word in words:
                word.line = line
        _obey(self, command)

    def call(self, name: str) -> bool:
        """Run a function; returns whether there is one of this name."""
        body = self.functions.get(name)
        if body is None or self._within.count("function") >= _MOST_CALLS:
            return False
        self._called.add(name)
        self._inside("function", body)
        return True

    def run_text(self, text: str, line: int, *, shell_of_its_own: bool, source: str = "") -> None:
        """Read another script: in this shell, as `source` and `eval` do, or as a child."""
        if self.depth >= _MOST_CALLS:
            return
        variables = self.variables.of_child() if shell_of_its_own else self.variables
        inner = Shell(variables, self.find_script, self.depth + 1)
        inner.commands, inner.assignments, inner.not_here = self.commands, self.assignments, self.not_here
        inner.functions = {} if shell_of_its_own else self.functions
        inner.options = set() if shell_of_its_own else self.options
        inner._within = (*self._within, "called") if shell_of_its_own else self._within
        inner._conditions, inner._dead = self._conditions, self._dead
        inner.source, inner.first_line = source or self.source, 0 if source else line - 1
        inner.run(parse(text))

    def _redirect(self, node: Node) -> tuple[str, Value]:
        sign = next((child.type for child in node.children if not child.is_named), ">")
        return sign, self._expander.value(node.child_by_field_name("destination"))

    def _redirected(self, node: Node) -> None:
        before = len(self.commands)
        redirects: list[tuple[str, Value]] = []
        for child in node.children:
            if child.type == "heredoc_redirect":
                redirects.extend(
                    self._redirect(inner) for inner in child.named_children if inner.type == "file_redirect"
                )
                self._block([inner for inner in child.named_children if inner.type in ("pipeline", "command", "list")])
            elif child.type == "file_redirect":
                redirects.append(self._redirect(child))
            elif child.type == "herestring_redirect":
                value = joined(self._expander.value(part) for part in child.named_children)
                for command in self.commands[before:]:
                    command.reads = value
            else:
                self._statement(child)
        for command in self.commands[before:]:
            command.writes_to.extend(redirects)

    def _pipeline(self, node: Node) -> None:
        parts = node.named_children
        ranges = []
        for part in parts:
            before = len(self.commands)
            self._statement(part)
            ranges.append((before, len(self.commands)))
        last = self.commands[ranges[-1][0]].name if ranges and ranges[-1][0] < ranges[-1][1] else ""
        for start, end in ranges[:-1]:
            for command in self.commands[start:end]:
                # What runs in a shell that this pipeline starts has that shell's exit code.
                if "called" not in command.within[len(self._within) :]:
                    command.piped_into = command.piped_into or last

    def _list(self, node: Node) -> None:
        # left && right: only the last command of a chain ends a shell with `set -e`.
        sign = next((child.type for child in node.children if child.type in ("&&", "||")), "&&")
        left, *right = [child for child in node.named_children if child.type != "comment"]
        self._inside("and" if sign == "&&" else "or", left)
        for child in right:
            self._inside("after-and" if sign == "&&" else "after-or", child)

    def _negated(self, node: Node) -> None:
        for child in node.named_children:
            self._inside("not", child)

    def _if(self, node: Node) -> None:
        branches = [node, *(child for child in node.children if child.type in ("elif_clause", "else_clause"))]
        before = dict(self.variables.values)
        ends: list[tuple[dict[str, Value], bool]] = []
        outer_conditions, outer_dead, outer_within = self._conditions, self._dead, self._within
        taken, tests = Truth(holds=False), ""
        for number, branch in enumerate(branches):
            condition, body = _halves(branch)
            verdict = Truth(holds=None) if branch.type == "else_clause" else truth(condition, self._expander)
            tests += " ".join(text_of(part) for part in condition)
            self._conditions = (*outer_conditions, Condition(node.start_byte, number, tests))
            for part in condition:
                self._inside("condition", part)
            never = taken.holds is True or verdict.holds is False
            self._dead = outer_dead or (taken.always if taken.holds else never and verdict.always)
            self._within = (*outer_within, "if")
            self._block(body)
            self._within = outer_within
            ends.append((dict(self.variables.values), not never))
            self.variables.values = dict(before)
            taken = verdict if verdict.holds else taken
        self._conditions, self._dead = outer_conditions, outer_dead
        self._merge(before, ends)

    def _merge(self, before: dict[str, Value], ends: list[tuple[dict[str, Value], bool]]) -> None:
        """Keep what the last branch that may be taken has set, and what the others set as alternatives."""
        for end, possible in ends:
            for name, value in end.items():
                if before.get(name) == value:
                    continue
                kept = self.variables.values.get(name)
                if possible:
                    self.variables.values[name] = value
                replaced = kept if possible else value
                if replaced is not None and replaced != self.variables.values.get(name):
                    self.variables.others.setdefault(name, []).append(replaced)

    def _loop(self, node: Node) -> None:
        variable = node.child_by_field_name("variable")
        if variable is not None:
            values = [self._expander.value(child) for child in node.children_by_field_name("value")]
            self.variables.set(text_of(variable), unknown(*joined(values).origins))
        for part in node.children_by_field_name("condition"):
            self._inside("condition", part)
        bodies = node.children_by_field_name("body") or [child for child in node.children if child.type == "do_group"]
        if node.type == "c_style_for_statement":
            for name in re.findall(r"\b([A-Za-z_]\w*)\s*=[^=]", text_of(node).partition("do")[0]):
                self.variables.set(name, unknown())
        for body in bodies:
            self._inside("loop", body)

    def _case(self, node: Node) -> None:
        before = dict(self.variables.values)
        ends = []
        for item in node.named_children:
            if item.type == "case_item":
                self._inside("if", item)
                ends.append((dict(self.variables.values), True))
                self.variables.values = dict(before)
        self._merge(before, ends)

    def _function(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[text_of(name)] = body

    def _declaration(self, node: Node) -> None:
        keyword = text_of(node.children[0])
        exports = keyword == "export" or any(
            text_of(child) == "-x" for child in node.named_children if child.type == "word"
        )
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child, exports=exports)
            elif exports and child.type == "variable_name":
                self.variables.exported.add(text_of(child))

    def _assignment(self, node: Node) -> None:
        self._assign(node, exports=False)

    def _assign(self, node: Node, *, exports: bool) -> None:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return
        name = text_of(target).partition("[")[0]
        adds = any(child.type == "+=" for child in node.children)
        array: list[Word] | None = None
        if value is not None and value.type == "array":
            array = [
                word
                for child in value.named_children
                if child.type != "comment"
                for word in self._expander.words(child)
            ]
            self.variables.set_array(name, [*self.variables.arrays.get(name, []), *array] if adds else array)
            folded = joined((word.value for word in array), " ")
        else:
            folded = self._expander.value(value)
            if adds:
                folded = joined([self.variables.look_up(name), folded])
            if text_of(target) == name:
                self.variables.set(name, folded)
        if exports or "a" in self.options:
            self.variables.exported.add(name)
        self.assignments.append(
            Assignment(
                name,
                folded,
                self._line(node),
                exports or name in self.variables.exported,
                self.source,
                array,
                self._within,
                self._conditions,
                self._dead,
                text_of(node),
            )  # fmt: skip
        )


def _halves(branch: Node) -> tuple[list[Node], list[Node]]:
    """Return the condition and the body of a branch."""
    inner = [child for child in branch.children if child.type not in ("elif_clause", "else_clause", "fi", "comment")]
    if branch.type == "else_clause":
        return [], inner[1:]
    then = next((at for at, child in enumerate(inner) if child.type == "then"), len(inner))
    return [child for child in inner[1:then] if child.is_named], inner[then + 1 :]


_READERS: dict[str, Callable[[Shell, Node], None]] = {
    "command": Shell._command,
    "redirected_statement": Shell._redirected,
    "pipeline": Shell._pipeline,
    "list": Shell._list,
    "subshell": Shell._subshell,
    "command_substitution": Shell._subshell,
    "negated_command": Shell._negated,
    "if_statement": Shell._if,
    "for_statement": Shell._loop,
    "c_style_for_statement": Shell._loop,
    "while_statement": Shell._loop,
    "case_statement": Shell._case,
    "function_definition": Shell._function,
    "declaration_command": Shell._declaration,
    "variable_assignment": Shell._assignment,
    "comment": lambda _shell, _node: None,
}


def _obey(shell: Shell, command: Command) -> None:
    from trainjob.scripts.builtins import obey

    obey(shell, command)
