"""A YAML text as values, with the line of every key and every problem of the YAML.

Plain words that YAML 1.1 misreads (no, 24:00:00, 010, 2024-01-01) are refused, and the cure quotes them, so that people
and all YAML readers agree on the meaning of a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import yaml

from trainjob.cluster.faults import Fault
from trainjob.cluster.strict import KeyPath

# The values below these keys are always text: 3.10 stays "3.10".
AS_WRITTEN = ("env", "command", "arguments")

_TAG = "tag:yaml.org,2002:"
_TYPES = ("str", "int", "float", "bool", "null", "timestamp")
_TEXT, _INT, _FLOAT, _BOOL, _NULL, _DATE = (_TAG + name for name in _TYPES)
_NUMBERS = (_INT, _FLOAT)
_MERGE = _TAG + "merge"
# Plain = and << have a meaning as keys; as values they are text.
_SIGNS = (_TAG + "value", _MERGE)

# More than a sweep of thousands of elements needs. Reading checks each key, which is slow.
MOST_BYTES = 256 * 1024
_LONGEST_NUMBER = 40
# Of a file of that size, written out.
_MOST_VALUES = 1_000_000
_MEANINGS = {_BOOL: "true or false", _NULL: "nothing", _DATE: "a date", _INT: "a number", _FLOAT: "a number"}


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but with 1e-3 as a number, as in every other YAML reader."""


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # libyaml may be missing
    """The same in libyaml, fifty times as fast. Its messages differ, and it does not limit nesting."""


_EXPONENT = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+\Z")
for _kind in (_Loader, _FastLoader):
    _kind.add_implicit_resolver(_FLOAT, _EXPONENT, list("-+0123456789"))
# A text of at most this many characters can't be nested deeply enough to overflow the stack.
_FAST_UP_TO = 8192


class Document(NamedTuple):
    """The values of a mapping, the nodes they come from, and the problems; `values` is empty if it can't be read."""

    values: dict[str, object]
    root: yaml.Node | None
    problems: tuple[Fault, ...]

    def line(self, path: Sequence[str | int]) -> int:
        """Return the line (from 1) of the deepest part of `path` that the text contains."""
        return _find(self.root, path)[0]

    def written(self, path: Sequence[str | int]) -> str | None:
        """Return the plain, unquoted text at `path`; None if the value there is not plain text."""
        node = _find(self.root, path)[1]
        return node.value if isinstance(node, yaml.ScalarNode) and not node.style else None


def load(text: str) -> Document:
    """Return `text` as a document. Never raises: the document lists its problems."""
    return _read(text, lambda loader, root: [_document(loader, root)])[0]


def load_list(text: str) -> list[Document]:
    """Return each item of a list as a document. Never raises: if `text` is no list, one document has the problem."""
    return _read(text, _items)


def _items(loader: _Loader, root: yaml.Node | None) -> list[Document]:
    if isinstance(root, yaml.SequenceNode) and root.value:
        return [_document(loader, item) for item in root.value]
    expected = "expected a list with an item for each element, such as - learning_rate: 0.1"
    return [Document({}, None, (Fault((), expected, line=1),))]


def _read(text: str, documents: Callable[[_Loader, yaml.Node | None], list[Document]]) -> list[Document]:
    for kind in (_FastLoader, _Loader) if len(text) <= _FAST_UP_TO else (_Loader,):
        try:
            loader = kind(text)
            return documents(loader, loader.get_single_node())
        except (yaml.YAMLError, UnicodeEncodeError, RecursionError) as error:
            refused = error  # by libyaml: PyYAML says it in better words
    problem = Fault((), "is nested too deeply to be read", line=1)
    if isinstance(refused, yaml.reader.ReaderError):
        line = text.count("\n", 0, refused.position) + 1
        text = f"this is not YAML: the character U+{refused.character:04X} may not be in it"
        problem = Fault((), text, line=line)
    elif isinstance(refused, yaml.MarkedYAMLError):
        problem = _not_yaml(refused)
    return [Document({}, None, (problem,))]


def _not_yaml(error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 0)
    context = f" {error.context}" if error.context else ""
    if error.context and error.context_mark and error.context_mark.line + 1 != line:
        context += f" (line {error.context_mark.line + 1})"
    text = f"this is not YAML:{context + ',' if context else ''} {error.problem}"
    return Fault((), text, line=line, column=column)


def _document(loader: _Loader, root: yaml.Node | None) -> Document:
    if not isinstance(root, yaml.MappingNode):
        content = "is empty" if root is None else f"holds {_kind_of(root)} at its top"
        text = f"{content}: expected keys with values, such as kind: local or instances: 2"
        return Document({}, None, (Fault((), text, line=1 if root is None else root.start_mark.line + 1),))
    for key, node in root.value:
        if key.value in AS_WRITTEN:
            items = [pair[1] for pair in node.value] if isinstance(node, yaml.MappingNode) else node.value
            for item in items if isinstance(items, list) else ():
                if item.tag in (*_NUMBERS, _DATE):
                    item.tag = _TEXT
    if _expanded(root, {}) > _MOST_VALUES:
        text = f"aliases (*) and merges (<<) make it larger than {_MOST_VALUES:,} values"
        fault = Fault((), text, "write what is needed without them", root.start_mark.line + 1)
        return Document({}, None, (fault,))
    checker = _Checker(loader)
    checker.check(root, ())
    return Document(loader.construct_document(root), root, tuple(checker.problems))


def _expanded(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node has once its aliases and merges are written out; `known` has parts seen before."""
    if id(node) not in known:
        known[id(node)] = 1  # for an alias of what it is in, which is refused elsewhere
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            parts = node.value
        known[id(node)] = 1 + sum(_expanded(part, known) for part in parts)
    return known[id(node)]


def _kind_of(node: yaml.Node) -> str:
    return "a list" if isinstance(node, yaml.SequenceNode) else "one value"


def _find(node: yaml.Node | None, path: Sequence[str | int]) -> tuple[int, yaml.Node | None]:
    """Return the line of the last key of `path` that exists, and the node at `path` if all of its keys exist."""
    line = node.start_mark.line + 1 if node else 1
    for step in path:
        match: tuple[yaml.Node, yaml.Node] | None = None
        if isinstance(node, yaml.MappingNode):
            # Once values are constructed, merged keys come first; of equal keys the last one counts.
            match = next((pair for pair in reversed(node.value) if pair[0].value == step), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            match = (node.value[step], node.value[step])
        if match is None:
            return line, None
        line, node = match[0].start_mark.line + 1, match[1]
    return line, node


class _Checker:
    """Visits all nodes once, notes problems, and turns each faulty node into text so that values can be constructed."""

    def __init__(self, loader: _Loader) -> None:
        self.loader = loader
        self.problems: list[Fault] = []
        self._seen: set[int] = set()

    def check(self, node: yaml.Node, path: KeyPath) -> None:
        """Note the problems of `node` and of all nodes below it."""
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        plain = isinstance(node, yaml.ScalarNode) and not node.style
        expected: str = self.loader.resolve(type(node), node.value, (plain, not plain))  # type: ignore[no-untyped-call]
        if node.tag not in (expected, _TEXT):
            self._note(node, path, f"has the tag {node.tag.replace(_TAG, '!!')}", "take it out")
            node.tag = expected
        if isinstance(node, yaml.MappingNode):
            self._check_mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.check(item, (*path, index))
        elif isinstance(node, yaml.ScalarNode):
            misread = None if node.tag in _SIGNS else _misreading(node)
            if misread:
                self._note(node, path, *misread)
            if misread or node.tag in _SIGNS:
                node.tag = _TEXT

    def _note(self, node: yaml.Node, path: KeyPath, text: str, cure: str) -> None:
        self.problems.append(Fault(path, text, cure, node.start_mark.line + 1))

    def _check_mapping(self, node: yaml.MappingNode, path: KeyPath) -> None:
        first: dict[str, int] = {}
        node.value = [pair for pair in node.value if self._is_a_key(pair[0], path)]
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in first and key.tag != _MERGE:
                text = f"is given twice, in line {first[key.value]} and in line {line}"
                self._note(key, (*path, key.value), text, "take one out")
            first[key.value] = line
            self.check(value, (*path, key.value))

    def _is_a_key(self, key: yaml.Node, path: KeyPath) -> bool:
        if not isinstance(key, yaml.ScalarNode):
            self._note(key, path, f"has {_kind_of(key)} for a key", "write a word")
            return False
        if key.tag not in (_TEXT, _MERGE):
            text = f"is a key that YAML takes for {_MEANINGS.get(key.tag, 'something else')}"
            self._note(key, (*path, key.value), text, f'quote it, "{key.value}"')
            key.tag = _TEXT
        return True


def _misreading(node: yaml.ScalarNode) -> tuple[str, str] | None:
    """Return how YAML misreads a plain word, and the cure; None if it reads what a person means."""
    word: str = node.value
    if node.tag == _BOOL and word.lower() not in ("true", "false"):
        value = "true" if word.lower() in ("yes", "on") else "false"
        return f"YAML takes {word} for {value}", f'write {value}, or quote it, "{word}"'
    if node.tag == _DATE:
        return f"YAML takes {word} for a date", f'quote it, "{word}"'
    if node.tag not in _NUMBERS:
        return None
    if len(word) > _LONGEST_NUMBER:
        return f"is too long for a number ({len(word)} characters)", "correct the number, or quote it"
    loader = yaml.SafeLoader("")
    try:
        number = loader.construct_yaml_int(node) if node.tag == _INT else loader.construct_yaml_float(node)
    except ValueError:
        return f"YAML takes {word} for a number and can't read it", f'quote it, "{word}"'
    if ":" in word or re.match(r"[-+]?0[0-9_]", word):
        return f"YAML takes {word} for the number {number}", f'quote it, "{word}", or write {number}'
    return None
