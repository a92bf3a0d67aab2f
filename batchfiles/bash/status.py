"""What a script ends with if one of its commands fails and all others succeed: its statements on every path."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from batchfiles.bash.expansion import text_of
from batchfiles.bash.statements import COMPARES, branch_halves
from batchfiles.bash.syntax import shebang_options

if TYPE_CHECKING:
    from tree_sitter import Node

# A status: of the command that fails, 0, another than 0, or one that only a run can tell.
FAILED, ZERO, OTHER, UNKNOWN = "failed", "0", "other", "unknown"
_MOST_PATHS = 48
_MOST_STEPS = 20_000
_MOST_VALUES = 1000
_MOST_TURNS = 3
_MOST_CALLS = 6
_OWN_VALUE = re.compile(r"\"?\$\{?(\w+|\?|!)(?::-[^}]*)?\}?\"?")
_PIPE_STATUS = re.compile(r"\"?\$\{PIPESTATUS(?:\[(\d|@|\*)\])?\}\"?")


class ScriptEnd(NamedTuple):
    """How a script may end, and the line and the words of the command whose status it ends with."""

    status: str
    line: int
    text: str


@dataclass(frozen=True)
class _State:
    """A path, as far as it has come. `leaves`: exit, return, break or continue, whatever comes next."""

    last: str = ZERO
    by: tuple[int, str] = (1, "")  # the command that gave it
    values: tuple[tuple[str, str], ...] = ()  # the statuses that variables hold
    pipe: tuple[str, ...] = ()
    stops: bool = False  # set -e
    pipefail: bool = False
    beside: bool = False  # the command failed in the background
    met: int = 0  # how often the command was started
    leaves: str = ""

    def ended(self, status: str, node: Node) -> _State:
        """Return the path after a command."""
        return replace(self, last=status, by=(node.start_point.row + 1, text_of(node)), pipe=(status,))

    def with_value(self, name: str, status: str) -> _State:
        """Return the path on which a variable holds a status. Raises RecursionError for too many."""
        if len(self.values) > _MOST_VALUES:
            raise RecursionError
        return replace(self, values=tuple(sorted({**dict(self.values), name: status}.items())))


def ends(root: Node, failing: Collection[tuple[int, str]]) -> set[ScriptEnd]:
    """Return how a script may end if a command fails; none where that is never started, or never ends.

    `failing`: the line of the command and its first word; an empty word stands for all commands of that line.
    """
    walk = _Walk(dict(failing), text_of(root))
    first = _State(stops="e" in shebang_options(walk.text))
    try:
        reached = [state for state in walk.block(root.children, [first], tested=False) if state.met]
    except RecursionError:  # brackets inside brackets, loops inside loops, too many variables: unknown
        return set()
    return {ScriptEnd(state.last, *state.by) for state in reached}


def _few(states: Iterable[_State]) -> list[_State]:
    return list(dict.fromkeys(states))[:_MOST_PATHS]


class _Walk:
    """Follows the paths through a script. `tested`: a failure does not end the shell, as in the test of an if."""

    def __init__(self, lines: dict[int, str], text: str) -> None:
        self.lines, self.text = lines, text
        self.functions: dict[str, Node] = {}
        self.depth = self.steps = 0
        self.once = False  # in a loop over cases the command fails in the first

    def block(self, nodes: list[Node], states: list[_State], *, tested: bool) -> list[_State]:
        for at, node in enumerate(nodes):
            going = [state for state in states if not state.leaves]
            gone = [state for state in states if state.leaves]
            if not going or (not node.is_named and node.type != "compound_statement"):
                continue
            if at + 1 < len(nodes) and nodes[at + 1].type == "&":
                going = [self._in_background(node, state) for state in going]
            else:
                going = self.statement(node, going, tested=tested)
            states = _few([*gone, *going])
        return states

    def statement(self, node: Node, states: list[_State], *, tested: bool) -> list[_State]:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise RecursionError
        reader = _READERS.get(node.type)
        if reader is not None:
            return _few(reader(self, node, states, tested))
        return self.block(node.children, states, tested=tested) if node.named_children else states

    def is_it(self, node: Node, name: str) -> bool:
        return self.lines.get(node.start_point.row + 1, name + "?") in ("", name)

    def is_never_set(self, word: str) -> bool:
        """Return whether a word is a variable that the script only expands: it vanishes."""
        name = re.fullmatch(r"\$\{?([a-z]\w*)\}?", word)
        return name is not None and re.search(rf"(?<![$\w{{]){name[1]}\b", self.text) is None

    def holds(self, node: Node) -> bool:
        """Return whether the command that fails is part of `node`."""
        return any(node.start_point.row < line <= node.end_point.row + 1 for line in self.lines)

    def is_run_in(self, value: Node) -> bool:
        """Return whether the command that fails is started by a value, and not only written in its line."""
        return self.holds(value) and re.search(r"\$\(|`", text_of(value)) is not None

    def checked(self, states: list[_State], *, tested: bool) -> list[_State]:
        """End the paths that set -e ends."""
        ending = {FAILED, OTHER}
        return [
            replace(state, leaves="exit")
            if state.stops and not tested and state.last in ending and not state.leaves
            else state
            for state in states
        ]

    def fail(self, node: Node, state: _State) -> _State:
        status = ZERO if self.once and state.met else FAILED
        return replace(state.ended(status, node), met=state.met + 1)

    def _in_background(self, node: Node, state: _State) -> _State:
        if self.holds(node):
            return replace(state.ended(ZERO, node), beside=True, met=state.met + 1).with_value("!", FAILED)
        return state.ended(ZERO, node).with_value("!", ZERO)


def _value(word: str, state: _State) -> str:
    """Return the status that a word expands to."""
    word = word.strip()
    plain = word.strip("\"'")
    if plain.isascii() and plain.isdigit():
        return ZERO if int(plain[:9]) == 0 else OTHER
    of_pipe = _PIPE_STATUS.fullmatch(word)
    if of_pipe is not None:
        at = int(of_pipe[1]) if of_pipe[1] and of_pipe[1].isdigit() else 0
        return state.pipe[at] if at < len(state.pipe) else UNKNOWN
    match = _OWN_VALUE.fullmatch(word)
    if match is None:
        inner = re.fullmatch(r"\$\(\(\s*\$?(\w+)\s*\)\)", word)
        return dict(state.values).get(inner[1], UNKNOWN) if inner else UNKNOWN
    return state.last if match[1] == "?" else dict(state.values).get(match[1], UNKNOWN)


def _command(walk: _Walk, node: Node, states: list[_State], tested: bool) -> Iterator[_State]:
    name_node = node.child_by_field_name("name")
    words = [
        text_of(child)
        for child in node.named_children
        if child.type not in ("variable_assignment", "comment", "file_redirect", "herestring_redirect")
    ]
    name = words[0].strip("\"'") if words and name_node is not None else ""
    for state in states:
        if name in walk.functions and walk.depth < _MOST_CALLS:
            walk.depth += 1
            called = walk.statement(walk.functions[name], [state], tested=tested)
            walk.depth -= 1
            yield from (replace(one, leaves="") if one.leaves == "return" else one for one in called)
        elif name in _BUILTINS:
            given = [word for word in words[1:] if not walk.is_never_set(word)]
            yield from walk.checked([_BUILTINS[name](node, given, state)], tested=tested)
        elif walk.is_it(node, words[0] if words else "") or (
            walk.holds(node) and any(child.type == "command_substitution" for child in node.named_children)
        ):
            ended = walk.fail(node, state)
            yield from walk.checked([replace(ended, leaves="exit") if name == "exec" else ended], tested=tested)
        else:
            yield state.ended(ZERO, node)


def _set(node: Node, words: list[str], state: _State) -> _State:
    for at, word in enumerate(words):
        if not re.fullmatch(r"[-+][A-Za-z]+", word):
            continue
        on = word[0] == "-"
        named = words[at + 1] if word.endswith("o") and at + 1 < len(words) else ""
        if "e" in word or named == "errexit":
            state = replace(state, stops=on)
        if named == "pipefail":
            state = replace(state, pipefail=on)
    return state.ended(ZERO, node)


def _leave(what: str) -> Callable[[Node, list[str], _State], _State]:
    def leave(node: Node, words: list[str], state: _State) -> _State:
        if what in ("exit", "return") and words:
            state = state.ended(_value(words[0], state), node)
        elif what in ("break", "continue"):
            state = state.ended(ZERO, node)
        return replace(state, leaves=what)

    return leave


def _wait(node: Node, words: list[str], state: _State) -> _State:
    named = [word for word in words if not word.startswith("-")]
    if any(word.startswith("-") for word in words):
        return state.ended(FAILED if state.beside else ZERO, node)
    if not named:
        return state.ended(ZERO, node)
    status = _value(named[-1], state)
    return state.ended(status if status != UNKNOWN or not state.beside else FAILED, node)


_BUILTINS: dict[str, Callable[[Node, list[str], _State], _State]] = {
    "set": _set,
    "wait": _wait,
    "true": lambda node, _words, state: state.ended(ZERO, node),
    ":": lambda node, _words, state: state.ended(ZERO, node),
    "false": lambda node, _words, state: state.ended(OTHER, node),
    "kill": lambda node, words, state: state.ended(UNKNOWN if "-0" in words else ZERO, node),
    "test": lambda node, _words, state: state.ended(UNKNOWN, node),
    **{what: _leave(what) for what in ("exit", "return", "break", "continue")},
}


def _assigned(walk: _Walk, node: Node, states: list[_State], tested: bool) -> Iterator[_State]:
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    for state in states:
        if name is None or value is None:
            yield state.ended(ZERO, node)
        elif walk.is_run_in(value):
            yield from walk.checked([walk.fail(node, state)], tested=tested)
        else:
            held = _value(text_of(value), state)
            if "!" in text_of(value) and _OWN_VALUE.fullmatch(text_of(value)):
                held = dict(state.values).get("!", UNKNOWN)
            yield state.ended(ZERO, node).with_value(text_of(name), held)


def _declared(walk: _Walk, node: Node, states: list[_State], _tested: bool) -> Iterator[_State]:
    """Local rc=$(program) ends with 0, whatever the program does."""
    for state in states:
        after = state
        for child in node.named_children:
            if child.type == "variable_assignment":
                value = child.child_by_field_name("value")
                held = _value(text_of(value), state) if value is not None else UNKNOWN
                if value is not None and walk.is_run_in(value):
                    after = walk.fail(node, after)
                after = after.with_value(text_of(child.named_children[0]), held)
        yield after.ended(ZERO, node)


def _listed(walk: _Walk, node: Node, states: list[_State], tested: bool) -> list[_State]:
    left, *rest = [child for child in node.named_children if child.type != "comment"]
    sign = next((child.type for child in node.children if child.type in ("&&", "||")), "&&")
    done: list[_State] = []
    for state in walk.statement(left, states, tested=True):
        goes_on = {"&&": (ZERO, UNKNOWN), "||": (FAILED, OTHER, UNKNOWN)}[sign]
        if state.leaves:
            done.append(state)
            continue
        if state.last in goes_on:
            done += walk.block(rest, [state], tested=tested)
        if state.last not in goes_on or state.last == UNKNOWN:
            done.append(replace(state, last=ZERO if sign == "||" and state.last == UNKNOWN else state.last))
    return done


def _negated(walk: _Walk, node: Node, states: list[_State], _tested: bool) -> Iterator[_State]:
    opposite = {ZERO: OTHER, FAILED: ZERO, OTHER: ZERO, UNKNOWN: UNKNOWN}
    for state in walk.block(node.named_children, states, tested=True):
        yield state if state.leaves else replace(state, last=opposite[state.last])


def _piped(walk: _Walk, node: Node, states: list[_State], tested: bool) -> list[_State]:
    done: list[_State] = []
    for state in states:
        parts = [walk.statement(part, [state], tested=True) for part in node.named_children]
        statuses = [next((one.last for one in part), ZERO) for part in parts]
        met = max(one.met for part in parts for one in part) if all(parts) else state.met
        last = parts[-1][0] if parts and parts[-1] else state
        status = (
            next((one for one in statuses if one in (FAILED, OTHER)), statuses[-1]) if state.pipefail else statuses[-1]
        )
        after = replace(state, last=status, by=last.by, pipe=tuple(statuses), met=met)
        done += walk.checked([after], tested=tested)
    return done


def _grouped(walk: _Walk, node: Node, states: list[_State], tested: bool) -> list[_State]:
    """( … ): what leaves it leaves only it; its variables and options end with it."""
    done: list[_State] = []
    for state in states:
        for inner in walk.block(node.children, [state], tested=tested):
            kept = replace(inner, values=state.values, stops=state.stops, pipefail=state.pipefail, leaves="")
            done += walk.checked([kept], tested=tested)
    return done


def _redirected(walk: _Walk, node: Node, states: list[_State], tested: bool) -> list[_State]:
    for child in node.named_children:
        if child.type not in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
            states = walk.statement(child, states, tested=tested)
    for child in node.named_children:
        if child.type == "heredoc_redirect":
            later = [one for one in child.named_children if one.type in ("pipeline", "command", "list")]
            states = walk.block(later, states, tested=tested) if later else states
    return states


def _tested(_walk: _Walk, node: Node, states: list[_State], tested: bool) -> Iterator[_State]:
    for state in states:
        holds = _truth(text_of(node), state)
        status = UNKNOWN if holds is None else ZERO if holds else OTHER
        yield from _walk.checked([state.ended(status, node)], tested=tested)


_COMPARED = re.compile(
    r"(?:\[\[?|\(\()\s*(?P<left>\"?\$?[\w?{}\[\]:!-]+\"?)\s*(?P<sign>-ne|-eq|-gt|-ge|-lt|-le|!=|==?|>|<|>=)\s*"
    r"(?P<right>\"?\$?[\w?{}\[\]]+\"?)\s*(?:\]\]?|\)\))"
)


def _truth(text: str, state: _State) -> bool | None:
    match = _COMPARED.fullmatch(text.strip())
    if match is None:
        return None
    in_brackets = text.startswith("((")
    sides = (f"${one}" if in_brackets and one[:1].isalpha() else one for one in (match["left"], match["right"]))
    left, right = (_value(side, state) for side in sides)
    if UNKNOWN in (left, right) or ZERO not in (left, right):
        return None
    # A status is not negative: 1 stands for all others than 0.
    return _COMPARES[match["sign"]](int(left != ZERO), int(right != ZERO))


_COMPARES: dict[str, Callable[[int, int], bool]] = {**COMPARES, "=": operator.eq, "==": operator.eq, "!=": operator.ne}


def _if(walk: _Walk, node: Node, states: list[_State], tested: bool) -> list[_State]:
    done: list[_State] = []
    branches = [node, *(child for child in node.children if child.type in ("elif_clause", "else_clause"))]
    for branch in branches:
        condition, body = branch_halves(branch)
        going = [state for state in states if not state.leaves]
        done += [state for state in states if state.leaves]
        if not condition:
            done += walk.block(body, going, tested=tested)
            states = []
            break
        after = walk.block(condition, going, tested=True)
        done += [state for state in after if state.leaves]
        yes = [state for state in after if not state.leaves and state.last in (ZERO, UNKNOWN)]
        states = [state for state in after if not state.leaves and state.last != ZERO]
        done += walk.block(body, yes, tested=tested)
    # No branch was taken: if itself ends with 0.
    return [*done, *(replace(state, last=ZERO) for state in states)]


def _loop(walk: _Walk, node: Node, states: list[_State], tested: bool) -> list[_State]:
    # What for (( … )) tests is no command.
    condition = node.children_by_field_name("condition") if node.type != "c_style_for_statement" else []
    bodies = [child for child in node.children if child.type == "do_group"]
    until = any(child.type == "until" for child in node.children)
    # A loop that tries again ends with the try that succeeds; one over cases continues with the next.
    kept, walk.once = (
        walk.once,
        not condition or any(text_of(part).lstrip().startswith(("read", "IFS=")) for part in condition),
    )
    done: list[_State] = []
    values = node.children_by_field_name("value")
    once = len(values) == 1 and re.fullmatch(r"[\w./:=-]+", text_of(values[0])) is not None
    for turn in range(_MOST_TURNS if condition else 1 if once else 2):
        going = [state for state in states if not state.leaves]
        if condition and not walk.once:
            after = walk.block(condition, going, tested=True)
            goes_on = (FAILED, OTHER, UNKNOWN) if until else (ZERO, UNKNOWN)
            done += [
                replace(one, last=ZERO)
                for one in after
                if not one.leaves and (one.last not in goes_on or one.last == UNKNOWN)
            ]
            going = [one for one in after if not one.leaves and one.last in goes_on]
        elif turn == 0 and not walk.once:
            done += going
        states = []
        for state in walk.block(bodies, going, tested=tested):
            if state.leaves in ("break", "exit", "return"):
                done.append(replace(state, leaves="") if state.leaves == "break" else state)
            else:
                states.append(replace(state, leaves=""))
        states = _few(states)
    ends_by_itself = walk.once
    walk.once = kept
    return [*done, *(states if ends_by_itself else [])]


def _case(walk: _Walk, node: Node, states: list[_State], tested: bool) -> list[_State]:
    items = [child for child in node.named_children if child.type == "case_item"]
    has_default = any(text_of(item).lstrip().startswith("*)") for item in items)
    done = [] if has_default else [replace(state, last=ZERO) for state in states]
    for item in items:
        done += walk.block(item.named_children[1:], states, tested=tested)
    return done


def _function(walk: _Walk, node: Node, states: list[_State], _tested: bool) -> list[_State]:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is not None and body is not None:
        walk.functions[text_of(name)] = body
    return states


def _compound(walk: _Walk, node: Node, states: list[_State], tested: bool) -> list[_State]:
    if text_of(node).startswith("(("):
        return list(_tested(walk, node, states, tested))
    return walk.block(node.children, states, tested=tested)


_READERS: dict[str, Callable[[_Walk, Node, list[_State], bool], Iterable[_State]]] = {
    "command": _command,
    "variable_assignment": _assigned,
    "declaration_command": _declared,
    "list": _listed,
    "negated_command": _negated,
    "pipeline": _piped,
    "subshell": _grouped,
    "redirected_statement": _redirected,
    "test_command": _tested,
    "compound_statement": _compound,
    "if_statement": _if,
    "for_statement": _loop,
    "c_style_for_statement": _loop,
    "while_statement": _loop,
    "case_statement": _case,
    "function_definition": _function,
    "comment": lambda _walk, _node, states, _tested: states,
}
