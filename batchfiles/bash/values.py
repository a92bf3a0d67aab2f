"""Values of a shell's variables, as far as they can be known without running it."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

HOLE = "\ufffc"  # stands for a piece that is known only when the script runs
_MOST_CHARACTERS = 100_000


@dataclass(frozen=True)
class Value:
    """A text with holes, and what it was made from: names of variables, `$(COMMAND)`, and `unset NAME`."""

    text: str = ""
    origins: frozenset[str] = frozenset()
    holes: tuple[str, ...] = field(default=(), compare=False)  # the variable of each hole: $NAME; empty if it is none

    @property
    def known(self) -> bool:
        """True if all of the text is known before the script runs."""
        return HOLE not in self.text

    @property
    def fixed(self) -> bool:
        """True if every job has the same text."""
        return self.known and not self.origins

    def with_text(self, text: str) -> Value:
        """Return another text of the same origins."""
        at = max(0, self.text.find(text))
        return Value(text[:_MOST_CHARACTERS], self.origins, self._holes_of(at, text))

    def pieces(self) -> Iterator[Value]:
        """Yield the words of it."""
        for match in re.finditer(r"\S+", self.text):
            yield Value(match[0], self.origins, self._holes_of(match.start(), match[0]))

    def _holes_of(self, start: int, text: str) -> tuple[str, ...]:
        first = self.text[:start].count(HOLE)
        return self.sources[first : first + text.count(HOLE)]

    @property
    def sources(self) -> tuple[str, ...]:
        """The variable of each hole, or an empty text."""
        count = self.text.count(HOLE)
        return self.holes if len(self.holes) == count else ("",) * count

    @property
    def written(self) -> str:
        """The text with the variables of its holes in it, as far as they are known."""
        first, *pieces = self.text.split(HOLE)
        filled = zip(self.sources, pieces, strict=True)
        return first + "".join(braced(source, piece) + piece for source, piece in filled)

    def comes_from(self, *names: str) -> bool:
        """Return whether one of the variables `names` is part of it."""
        return not self.origins.isdisjoint(names)

    def commands(self) -> str:
        """Return the commands whose output is part of it, as one text."""
        return " ".join(sorted(origin for origin in self.origins if origin.startswith("$(")))


def braced(source: str, piece: str) -> str:
    """Return what stands for a hole before `piece`: a variable in braces, where its name would go on there."""
    is_name = re.fullmatch(r"\$[A-Za-z_]\w*", source) is not None and re.match(r"[\w\[]", piece) is not None
    return f"${{{source[1:]}}}" if is_name else source or HOLE


def unknown(*origins: str) -> Value:
    """Return a value of which only the origins are known."""
    named = [one for one in origins if not one.startswith(("unset ", "kept back "))]
    name = named[0] if len(named) == 1 and re.fullmatch(r"\w+|[@*#?]", named[0]) else ""
    return Value(HOLE, frozenset(origins), (f"${name}" if name else "",))


def joined(parts: Iterable[Value], between: str = "") -> Value:
    """Return `parts` as one value."""
    listed = list(parts)
    text = between.join(part.text for part in listed)
    holes = tuple(source for part in listed for source in part.sources)
    return Value(text[:_MOST_CHARACTERS], frozenset().union(*(part.origins for part in listed)), holes)


_NAME = re.compile(r"\$\{(\w+)(?::-(\w+))?\}|\$?\b([A-Za-z_]\w*)\b|\$(\d+)")
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_LARGEST = 2**63
_CALCULATED = re.compile(
    r"(?P<changed>[A-Za-z_]\w*)\s*(?P<subscript>\[[^\]]*\])?\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|"
    r"(?:\+\+|--)\s*(?P<stepped>[A-Za-z_]\w*)"
)
_FIGURES = re.compile(r"(?:[-+*/%()\s\\]|[0-9])*")


def arithmetic(text: str, look_up: Callable[[str], Value]) -> Value:
    """Return the value of $((TEXT)); a hole if an operand is not known or the expression is an unusual one."""
    origins: set[str] = set()

    def operand(match: re.Match[str]) -> str:
        value = look_up(match[1] or match[3] or match[4])
        origins.update(value.origins)
        if not value.text and match[2]:
            return match[2]
        return value.text.strip() or "0"

    plain = _NAME.sub(operand, text)
    if not _FIGURES.fullmatch(plain):
        return unknown(*origins)
    try:
        tree = ast.parse(plain.strip().replace("/", "//").replace("\\\n", " ").replace("\n", " "), mode="eval")
        return Value(str(_calculated(tree.body)), frozenset(origins))
    except (ArithmeticError, SyntaxError, ValueError, RecursionError, MemoryError):
        return unknown(*origins)


def names_calculated(text: str) -> list[str]:
    """Return the variables to which arithmetic gives values: by =, +=, ++ and their like."""
    return list(dict.fromkeys(match["changed"] or match["stepped"] for match in _CALCULATED.finditer(text)))


def _calculated(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_calculated(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        result = int(_OPERATORS[type(node.op)](_calculated(node.left), _calculated(node.right)))
        if abs(result) < _LARGEST:
            return result
    raise ValueError


def number(text: str | None) -> int | None:
    """Return a whole number as written; None for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None
