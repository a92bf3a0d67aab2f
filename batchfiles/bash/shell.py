"""The commands that a shell script runs, in order, with the values that are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from batchfiles.bash.commands import Assignment, Condition, ShellCommand
from batchfiles.bash.expansion import Expander, Variables, Word, text_of
from batchfiles.bash.values import HOLE, Value, joined, names_calculated, number, unknown

if TYPE_CHECKING:
    from tree_sitter import Node

_NAME = re.compile(rb"[A-Za-z_]\w*|[0-9@*#?!$-]")
_OPERAND = re.compile(r"\$\{(\w+)\}|(?<![\w{$])\$?\b([A-Za-z_]\w*)")
_MOST_CALLS = 4  # of functions and scripts inside one another
_MOST_COMMANDS = 20_000


@cache
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse(text: str) -> Node:
    """Return the tree of a script, with other bytes for what the grammar misreads, on the same lines."""
    raw = text.encode(errors="replace")
    root: Node = _parser().parse(raw).root_node
    while misread := sorted(_misread(root, raw)):
        for start, end, instead in reversed(misread):
            raw = raw[:start] + instead + raw[end:]
        root = _parser().parse(raw).root_node
    return root


def _misread(root: Node, raw: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the bytes that the grammar misreads, and what to read instead.

    It ends a word in two behind some names: of a/$B/c/$D/e it makes a/$B/c/$ and D/e. And it takes a line of several
    assignments for a part of the command on the next.
    """
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == "$" and node.parent is not None and node.parent.type == "concatenation":
            name = _NAME.match(raw, node.end_byte)
            if name is not None and node.next_sibling is None:
                yield *name.span(), b"{" + name[0] + b"}"
        elif node.type == "command":
            given = [child for child in node.children if child.type == "variable_assignment"]
            rest = node.child_by_field_name("name")
            if len(given) > 1 and rest is not None and b"\n" in _between(raw, given[-1], rest):
                gaps = pairwise(given)
                yield from ((one.end_byte, one.end_byte + 1, b";") for one, two in gaps if _between(raw, one, two))
        waiting.extend(node.children)


def _between(raw: bytes, one: Node, two: Node) -> bytes:
    return raw[one.end_byte : two.start_byte].replace(b"\\\n", b"")


def _continues(node: Node) -> bool:
    """Return whether nothing but a backslash and the end of its line stands between a node and the one before it."""
    before, around = node.prev_sibling, node.parent
    if before is None or around is None:
        return False
    whole = around.text or b""
    return whole[before.end_byte - around.start_byte : node.start_byte - around.start_byte] == b"\\\n"


def _path_of(value: Value) -> str:
    """Return a path by which a file is known again: with the names of variables whose values a run decides."""
    return value.written.replace(HOLE, "").removeprefix("./")


class Bash(NamedTuple):
    """A model of bash: a reader for each kind of statement, and the effects of builtins."""

    readers: Mapping[str, Callable[[ShellReader, Node], None]]
    obey: Callable[[ShellReader, ShellCommand], None]


class ShellReader:
    """Reads a script as bash would run it: `commands` and `assignments` are what it meets, in order."""

    def __init__(
        self, bash: Bash, variables: Variables, find_script: Callable[[str], tuple[str, str] | None], depth: int = 0
    ) -> None:
        self.bash, self.variables, self.find_script, self.depth = bash, variables, find_script, depth
        self.commands: list[ShellCommand] = []
        self.assignments: list[Assignment] = []
        self.no_numbers: list[Assignment] = []  # what arithmetic is to calculate with, and is none
        self.not_here: dict[str, int] = {}  # scripts that it calls and that are not beside it, and the lines
        self.written: dict[str, tuple[Value, int]] = {}  # files that it writes from here-documents, and the first lines
        self.unsure: set[str] = set()  # those of which it is not known what they hold
        self.folder = ""  # in which it is, as it has changed into it
        self.functions: dict[str, tuple[Node, str, int]] = {}  # the body, its source and first_line
        self._called: set[str] = set()
        self.options: set[str] = set()
        self.within: tuple[str, ...] = ()
        self.conditions: tuple[Condition, ...] = ()
        self.dead = False
        self.input: Value | None = None  # the here-document of the next command
        self.source = ""
        self.place = 0  # the line of the batch file that leads to `source`
        self.at = 0  # the byte of the batch file that leads to what is read
        self.only_line = 0  # of all commands: those of a variable's value have no lines of their own
        self.first_line = 0  # added to line numbers: the position in the file of a text that this shell runs
        self.expander = Expander(variables, self._substitution, self._calculate, self._give)

    def run(self, root: Node) -> None:
        """Read a whole script, then its own functions that it never calls by name: handlers of traps are among them."""
        given = set(self.functions)
        self.block(root.children)
        for name in [name for name in self.functions if name not in self._called | given]:
            self._run_function(name, "handler", self.place)

    def _line(self, node: Node) -> int:
        return self.only_line or node.start_point.row + 1 + self.first_line

    def byte_of(self, node: Node) -> int:
        """Return the byte of the batch file that leads to a node, which is read now."""
        if not self.depth and not self.source:
            self.at = node.start_byte
        return self.at

    def block(self, nodes: list[Node]) -> None:
        """Read statements in order."""
        for at, node in enumerate(nodes):
            follows = nodes[at + 1].type if at + 1 < len(nodes) else ""
            before = len(self.commands)
            self.statement(node)
            if follows == "&":
                for command in self.commands[before:]:
                    command.background = True

    def inside(self, what: str, node: Node) -> None:
        """Read a statement that is part of another, which `what` names."""
        outer, self.within = self.within, (*self.within, what)
        if len(self.within) < 40:
            self.statement(node)
        self.within = outer

    def statement(self, node: Node) -> None:
        """Read one statement."""
        if len(self.commands) > _MOST_COMMANDS:
            return
        reader = self.bash.readers.get(node.type)
        if reader is not None:
            reader(self, node)
        elif node.named_children and node.type not in ("comment", "heredoc_body"):
            self.block(node.children)

    def subshell(self, node: Node) -> None:
        """Read statements whose variables and options end with them."""
        outer, self.variables = self.variables, self.variables.copy()
        options, folder = set(self.options), self.folder
        self.expander.variables = self.variables
        outer_within, self.within = self.within, (*self.within, "subshell")
        self.block(node.children)
        self.within, self.options, self.folder = outer_within, options, folder
        self.variables = self.expander.variables = outer

    def _substitution(self, node: Node) -> None:
        outer, self.within = self.within, (*self.within, "substitution")
        if len(self.within) < 40:
            self.subshell(node)
        self.within = outer

    def command(self, node: Node) -> None:
        """Read a simple command."""
        name = node.child_by_field_name("name")
        words: list[Word] = []
        settings: dict[str, Value] = {}
        reads, self.input = self.input, None
        writes: list[tuple[str, Value]] = []
        for child in node.children:
            if child.type == "variable_assignment":
                settings[text_of(child.named_children[0])] = self.expander.value(child.child_by_field_name("value"))
            elif child.type == "herestring_redirect":
                reads = joined(self.expander.value(part) for part in child.named_children)
            elif child.type == "file_redirect":
                writes.append(self.redirect(child))
            elif child.is_named and child.type != "comment":
                own = list(
                    self.expander.words(child.named_children[0] if child == name and child.named_children else child)
                )
                if words and own and _continues(child):
                    first, second = words.pop(), own.pop(0)
                    whole = joined([first.value, second.value])
                    words.append(Word(whole, first.source + second.source, line=first.line))
                words.extend(own)
        while len(words) > 1 and not words[0].text and not words[0].quoted:
            words.pop(0)
        self._note(words, node, settings, reads, writes)

    def _note(
        self,
        words: list[Word],
        node: Node,
        settings: dict[str, Value],
        reads: Value | None,
        writes: list[tuple[str, Value]],
    ) -> None:
        line = self._line(node)
        command = ShellCommand(
            words, line, settings, self.variables.copy(), frozenset(self.options), self.within, self.conditions,
            self.source, self.place, self.byte_of(node), dead=self.dead, reads=reads, writes_to=writes,
        )  # fmt: skip
        self.commands.append(command)
        if words and self.first_line:
            for word in words:
                word.line = line
        self.bash.obey(self, command)

    def _run_function(self, name: str, what: str, place: int) -> None:
        body, source, first_line = self.functions[name]
        kept = self.source, self.place, self.first_line
        if source != self.source:
            self.source, self.place = source, self.place or place
        self.first_line = first_line
        self.inside(what, body)
        self.source, self.place, self.first_line = kept

    def call(self, name: str, arguments: list[Word], line: int) -> bool:
        """Run a function that `line` calls; returns whether there is one of this name."""
        if name not in self.functions or self.within.count("function") >= _MOST_CALLS:
            return False
        self._called.add(name)
        own = {key: value for key, value in self.variables.values.items() if key.isdigit() or key in ("#", "@", "*")}
        words = self.variables.arrays.get("@")
        self.variables.set_arguments(arguments)
        self._run_function(name, "function", line)
        self.variables.set_arguments(words or [])
        if words is None:
            del self.variables.arrays["@"], self.variables.values["#"]
            del self.variables.values["@"], self.variables.values["*"]
        self.variables.values |= own
        return True

    def run_text(
        self,
        text: str,
        line: int,
        *,
        shell_of_its_own: bool,
        source: str = "",
        written_there: bool = True,
        holes: tuple[str, ...] = (),
        ranks: frozenset[str] = frozenset(),
        arguments: list[Word] | None = None,
    ) -> None:
        """Read another script: in this shell, as `source` and `eval` do, or as a child.

        `written_there`: its lines are those of the file from `line` on, and not of a variable's value. `holes` are the
        variables of its holes, and `arguments` its own, where it has some.
        """
        if self.depth >= _MOST_CALLS:
            return
        variables = self.variables.of_child() if shell_of_its_own else self.variables
        if arguments is not None:
            variables.set_arguments(arguments)
        inner = ShellReader(self.bash, variables, self.find_script, self.depth + 1)
        inner.at = self.at
        inner.expander.expanded_before(text, holes, ranks)
        inner.commands, inner.assignments, inner.not_here = self.commands, self.assignments, self.not_here
        inner.no_numbers = self.no_numbers
        inner.written, inner.unsure, inner.folder = self.written, self.unsure, self.folder
        inner.only_line = 0 if written_there else line
        inner.place = self.place or (line if source else 0)
        inner.options = set() if shell_of_its_own else self.options
        inner.within = (*self.within, "called") if shell_of_its_own else self.within
        inner.conditions, inner.dead = self.conditions, self.dead
        inner.source, inner.first_line = source or self.source, 0 if source else line - 1
        inner._called = self._called
        if shell_of_its_own:
            sent = self.functions.keys() & self.variables.exported
            inner.functions = {name: body for name, body in self.functions.items() if name in sent}
            inner.run(parse(text))
        else:
            inner.functions = self.functions
            inner.block(parse(text).children)
            self.folder = inner.folder

    def note_written(self, path: Value, text: Value, document: Node) -> None:
        """Record that a file is written from a here-document."""
        key = self._key(path)
        may_be_skipped = self.conditions or {"after-and", "after-or", "loop"} & set(self.within)
        if self.source or self.depth or (may_be_skipped and key in self.written):
            self.forget_written(path)  # which of the two is there, a run decides
        elif not self.dead:
            self.written[key] = text, self._line(document) + 1
            self.unsure.discard(key)

    def forget_written(self, path: Value) -> None:
        """Record that something else may have changed a file."""
        if not self.dead and (key := self._key(path)) in self.written:
            self.unsure.add(key)

    def _key(self, path: Value) -> str:
        """Return by what a written file is known: its path from the folder in which the script began."""
        name = _path_of(path)
        is_whole = name.startswith(("/", "$", "~")) or (path.text.startswith(HOLE) and bool(path.sources))
        return name if is_whole or not self.folder else f"{self.folder}/{name}"

    def script(self, path: Value) -> tuple[str, Value] | None:
        """Return the path and the text of a script: one that was written before, or one beside the file."""
        key = self._key(path)
        if key in self.unsure:
            return None
        if (written := self.written.get(key)) is not None:
            return key, written[0]
        found = self.find_script(path.text)
        return None if found is None else (found[0], Value(found[1]))

    def redirect(self, node: Node) -> tuple[str, Value]:
        """Return the operator and the file of a redirection."""
        sign = next((child.type for child in node.children if not child.is_named), ">")
        return sign, self.expander.value(node.child_by_field_name("destination"))

    def assign(self, node: Node, *, exports: bool) -> None:
        """Give a variable its value."""
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return
        name, subscript = text_of(target).partition("[")[::2]
        adds = any(child.type == "+=" for child in node.children)
        array: list[Word] | None = None
        if value is not None and value.type == "array":
            array = [
                word for child in value.named_children if child.type != "comment" for word in self.expander.words(child)
            ]
            self.variables.set_array(name, [*self.variables.arrays.get(name, []), *array] if adds else array, adds=adds)
            folded = joined((word.value for word in array), " ")
        else:
            folded = self.expander.value(value)
            if adds:
                folded = joined([self.variables.look_up(name), folded])
            if subscript:
                self.variables.leave_open(name, is_array=True)
                array = self.variables.arrays[name]
            else:
                if name in self.variables.converted and (adds or not re.fullmatch(r"0|[1-9]\d*", folded.text)):
                    folded = unknown(*folded.origins)
                self.variables.set(name, folded)
        self.byte_of(node)
        self.note_assignment(name, folded, text_of(node), self._line(node), array, exports=exports)

    def _give(self, node: Node, name: str, value: Value) -> None:
        self.variables.set(name, value)
        self.byte_of(node)
        self.note_assignment(name, value, text_of(node), self._line(node), None)

    def leave_open(self, name: str, text: str, line: int, *, is_array: bool = False) -> None:
        """Give a variable a value that only a run knows: the text of the statement does so in no other way."""
        self.variables.leave_open(name, is_array=is_array or name in self.variables.arrays)
        self.note_assignment(name, unknown(), text, line, self.variables.arrays.get(name))

    def note_assignment(
        self, name: str, value: Value, text: str, line: int, array: list[Word] | None, *, exports: bool = False
    ) -> None:
        """Record that the statement which is read now has given a variable its value."""
        if exports or "a" in self.options:
            self.variables.exported.add(name)
        self.assignments.append(
            Assignment(
                name, value, line, name in self.variables.exported, self.source, array, self.within,
                self.conditions, self.dead, text, self.at,
            )
        )  # fmt: skip

    def _calculate(self, node: Node) -> None:
        for match in _OPERAND.finditer(text_of(node)):
            name = match[1] or match[2]
            value = self.variables.look_up(name)
            if value.known and number(value.text or "0") is None and not self.dead:
                self.no_numbers.append(Assignment(name, value, self._line(node), exported=False, source=self.source))
        for name in names_calculated(text_of(node)):
            self.byte_of(node)
            self.leave_open(name, text_of(node), self._line(node))

    def compound(self, node: Node) -> None:
        """Read { …; }, or what (( … )) calculates."""
        self.block(node.children)
        if node.children[0].type == "((":
            self._calculate(node)
