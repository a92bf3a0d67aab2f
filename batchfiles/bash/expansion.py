"""Words of bash, expanded as far as their values are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batchfiles.bash.values import HOLE, Value, arithmetic, joined, unknown

if TYPE_CHECKING:
    from tree_sitter import Node

# Set by Slurm, by the login environment, or by bash itself: not missing where the script doesn't set them.
_FROM_OUTSIDE = re.compile(
    r"SLURM\w*|SBATCH_\w+|SRUN_\w+|HOME|USER|PATH|PWD|OLDPWD|SHELL|HOSTNAME|HOST|LANG|LC_\w+|"
    r"TMPDIR|RANDOM|SECONDS|LINENO|UID|EUID|PPID|"
    r"BASH\w*|IFS|LOGNAME|TERM|DISPLAY|SCRATCH|WORK|PROJECT|LD_LIBRARY_PATH|LIBRARY_PATH|CPATH|PYTHONPATH|"
    r"CUDA\w*|ROCR?_\w+|HIP_\w+|CONDA\w*|VIRTUAL_ENV|MODULE\w*|EBROOT\w*|XDG_\w+|OPTARG|"
    r"OPTIND|REPLY|PIPESTATUS|FUNCNAME|GROUPS|OSTYPE|_"
)
# Set by srun, and not in the batch shell (asked, Slurm 22.05).
_OF_STEPS = re.compile("SLURM_(?:LAUNCH_NODE_IPADDR|STEP_(?:NODELIST|NUM_NODES|NUM_TASKS|TASKS_PER_NODE))")
_MOST_DEPTH = 60
# Elements of arrays that are looked at in one file: each statement could double them.
_MOST_SPREAD = 200_000
# Characters by which expansions make the words of one file longer than they are written.
_MOST_GROWN, _SHORT = 1_000_000, 100


@dataclass
class Word:
    """A word of a command: what bash makes of it, as far as known."""

    value: Value
    source: str
    quoted: bool = False
    line: int = 0

    @property
    def text(self) -> str:
        """The text, with holes."""
        return self.value.text


@dataclass
class Variables:
    """The variables of a shell at one moment."""

    values: dict[str, Value] = field(default_factory=dict)
    arrays: dict[str, list[Word]] = field(default_factory=dict)
    # Set in branches of which only a run can tell whether they are taken.
    undecided: set[str] = field(default_factory=set)
    hides_undecided: bool = False  # they are not known then, and neither is the home that ~ stands for
    exported: set[str] = field(default_factory=set)
    # Whether something outside the file may have set any variable: a sourced file that isn't here, eval.
    open_ended: bool = False
    # Declared with -i, -u, -l, -c, -n or -A: bash makes something else of what they are given.
    converted: set[str] = field(default_factory=set)
    in_step: bool = False  # run by srun: the variables of a rank are its own
    kept_back: set[str] = field(default_factory=set)  # set by the parent, and not exported
    absent: frozenset[str] = frozenset()  # set by Slurm in other jobs, and not in this one
    named: set[str] = field(default_factory=set)  # the variables that are pieces of the values of others

    def copy(self) -> Variables:
        """Return the variables of a child."""
        own = {name: copy(value) for name, value in vars(self).items()}  # of which those that change are collections
        return Variables(**own)

    def of_child(self) -> Variables:
        """Return the variables of another process: those that are exported."""
        child = self.copy()
        inherited = {
            name for name in self.values if name in self.exported or name.startswith("SLURM") or name.isdigit()
        }
        child.kept_back |= (set(self.values) | set(self.arrays)) - inherited
        child.values = {name: value for name, value in self.values.items() if name in inherited}
        child.arrays = {}
        return child

    def look_up(self, name: str) -> Value:
        """Return the value of a variable, as far as known."""
        if self.hides_undecided and name in self.undecided:
            return unknown(name)
        if name in self.values:
            value = self.values[name]
            return Value(value.text, value.origins | {name}, value.holes) if name.startswith("SLURM") else value
        if name in self.arrays:
            return self.arrays[name][0].value if self.arrays[name] else Value()
        is_missing = not self.in_step and _OF_STEPS.fullmatch(name)
        if (_FROM_OUTSIDE.fullmatch(name) and not is_missing) or name.isdigit() or not name.isidentifier():
            return unknown(name)
        return unknown(name, f"{'kept back' if name in self.kept_back else 'unset'} {name}")

    def set(self, name: str, value: Value) -> None:
        """Give a variable a value."""
        self.arrays.pop(name, None)
        self.undecided.discard(name)
        if self.hides_undecided:
            self._forget(name)
            if value.text == HOLE and not value.sources[0]:
                value = Value(HOLE, value.origins, (f"${name}",))
            self.named.update(value.sources)
        self.values[name] = value

    def _forget(self, name: str) -> None:
        """Take a variable that is given another value for no piece of what was made of the one before."""
        own = f"${name}"
        if own in self.named:
            for other, value in self.values.items():
                if own in value.sources:
                    left = tuple("" if source == own else source for source in value.sources)
                    self.values[other] = Value(value.text, value.origins, left)
            self.named.discard(own)

    def set_array(self, name: str, words: list[Word], *, adds: bool = False) -> None:
        """Give an array its elements."""
        self.values.pop(name, None)
        if not adds:
            self.undecided.discard(name)
        self.arrays[name] = words

    def leave_open(self, name: str, *, is_array: bool) -> None:
        """Let a variable be one that only a run knows."""
        if is_array:
            self.set_array(name, [Word(unknown(), "")])
            self.undecided.add(name)
        else:
            self.set(name, unknown())

    def set_arguments(self, words: list[Word]) -> None:
        """Set $1, $2, … and $@."""
        for name in [name for name in self.values if name.isdigit()]:
            del self.values[name]
        for number, word in enumerate(words, 1):
            self.values[str(number)] = word.value
        self.arrays["@"] = words
        self.values["#"] = Value(str(len(words)))
        self.values["@"] = self.values["*"] = joined((word.value for word in words), " ")


class Expander:
    """Expands words with `variables`; `run` is called with each command substitution, `calculate` with arithmetic.

    `give` is called with what ${NAME:=value} gives to a variable.
    """

    def __init__(
        self,
        variables: Variables,
        run: Callable[[Node], None],
        calculate: Callable[[Node], None],
        give: Callable[[Node, str, Value], None],
    ) -> None:
        self.variables, self._run, self._calculate, self._give = variables, run, calculate, give
        self._written = b""
        self._holes: tuple[str, ...] = ()
        self._ranks: frozenset[str] = frozenset()
        self._spread = self._grown = 0

    def expanded_before(self, text: str, holes: tuple[str, ...], ranks: frozenset[str]) -> None:
        """Take the variable of each hole in `text`, which the batch shell has expanded, on the first node.

        `ranks` are those of its variables that differ between ranks.
        """
        self._ranks = ranks
        self._written = text.encode()
        self._holes = tuple("" if name in ("$HOSTNAME", "$SLURMD_NODENAME") else name for name in holes)

    def _literal(self, text: str, start: int) -> Value:
        """Return a text that stands at the byte `start`."""
        if HOLE not in text or not self._holes:
            return Value(text, self._ranks)
        first = self._written[:start].count(HOLE.encode())
        return Value(text, self._ranks, self._holes[first : first + text.count(HOLE)])

    def value(self, node: Node | None, depth: int = 0) -> Value:
        """Return the value of a word, before it is split."""
        if node is None:
            return Value()
        value = self._value(node, depth)
        return value if depth else self._limited(node, value)

    def _limited(self, node: Node, value: Value) -> Value:
        self._grown += max(0, len(value.text) - (node.end_byte - node.start_byte))
        is_too_long = self._grown > _MOST_GROWN and len(value.text) > _SHORT
        return unknown(*value.origins) if is_too_long else value

    def _value(self, node: Node, depth: int) -> Value:
        if depth > _MOST_DEPTH or node.type == "brace_expression":
            return unknown()
        if node.type == "ansi_c_string":
            text = text_of(node)
            found = _ansi_c(text[2:-1])
            # Bytes that are no text are left to the shell that runs it.
            return Value(HOLE, holes=(text,)) if found is None else self._literal(found, node.start_byte)
        if self.variables.hides_undecided and (home := _home_in(node)) is not None:
            name = self._literal(home[0][:-1], node.start_byte)
            rest = self._literal(_unescaped(text_of(node)[home.end() :]), node.start_byte + home.end())
            return joined([name, Value(HOLE, frozenset({"HOME"}), ('"$HOME"',)), rest])
        if self.variables.hides_undecided and node.type == "word" and is_pattern(text_of(node)):
            return Value(HOLE, holes=(text_of(node),))  # the shell that runs it finds the files
        literal = _LITERALS.get(node.type)
        if literal is not None and not node.named_children:
            return self._literal(literal(text_of(node)), node.start_byte)
        if node.type in ("translated_string", "concatenation"):
            return joined(self.value(child, depth + 1) for child in node.children)
        return self._expanded(node, depth)

    def _expanded(self, node: Node, depth: int) -> Value:
        text = text_of_expansion(node)
        match node.type:
            case "string":
                return joined(self._pieces(node, depth))
            case "simple_expansion":
                return self.variables.look_up(text[1:])
            case "expansion":
                return self._braces(node, depth)
            case "arithmetic_expansion":
                self._substitutions_below(node)
                value = arithmetic(text[3:-2], self.variables.look_up)
                self._calculate(node)
                return value
            case "command_substitution":
                return self._output(node)
            case "process_substitution":
                self._output(node)
                return unknown()
        return self._literal(text_of(node), node.start_byte)

    def words(self, node: Node) -> Iterator[Word]:
        """Yield the words that bash makes of one."""
        line, source = node.start_point.row + 1, text_of(node)
        array = re.fullmatch(r'"?\$(?:\{(\w+)\[[@*]\]\}|\{?[@*]\}?)"?', source)
        if array and self.variables.hides_undecided and array[1] in self.variables.undecided:
            yield Word(Value(HOLE, holes=(source,)), source, quoted=True, line=line)
            return
        one_word = source.startswith('"') and "*" in source  # "${NAME[*]}"
        listed = self.variables.arrays.get(array[1] or "@") if array and not one_word else None
        rest = re.fullmatch(r'"?\$\{([@*]|\w+(?=\[[@*]\]))(?:\[[@*]\])?:(\d{1,4})\}"?', source)
        if rest:
            listed = self._from(rest[1], int(rest[2]))
        if listed is not None:
            yield from listed if self._may_spread(listed) else [Word(unknown(), source, quoted=True, line=line)]
            return
        if not self._is_split(node):
            value = self.value(node)
            yield Word(value, source, quoted=node.type in ("string", "raw_string"), line=line)
            return
        value = self._limited(node, joined(self._split_later(part) for part in _parts(node)))
        pieces = [piece.with_text(piece.text.translate(_BLANKS)) for piece in value.pieces()]
        value = value.with_text(value.text.translate(_BLANKS))
        if self.variables.hides_undecided and node.type != "concatenation" and is_pattern(value.text):
            yield Word(Value(HOLE, value.origins), source, line=line)
            return
        for piece in pieces:
            yield Word(piece, source, line=line)
        if not pieces:
            yield Word(value.with_text(""), source, line=line)

    def _from(self, name: str, first: int) -> list[Word] | None:
        """Return the words of ${NAME[@]:FIRST}, or of ${@:FIRST}, which counts from 1; None if they are not known."""
        listed = self.variables.arrays.get("@" if name == "*" else name)
        return None if listed is None else listed[max(0, first - 1) if name in "@*" else first :]

    def _may_spread(self, words: list[Word]) -> bool:
        self._spread += len(words)
        return self._spread <= _MOST_SPREAD

    def _is_split(self, node: Node) -> bool:
        return any(part.type in _SPLIT for part in _parts(node))

    def _split_later(self, part: Node) -> Value:
        """Return the value of a part of a word, with other characters for blanks at which bash does not split it."""
        value = self.value(part, depth=1)
        return value if part.type in _SPLIT else Value(value.text.translate(_NO_BLANKS), value.origins, value.sources)

    def here_document(self, node: Node) -> Value:
        """Return what a command reads from a here-document."""
        parts = {child.type: child for child in node.children}
        body = parts.get("heredoc_body")
        if body is None:
            return unknown()
        is_literal = re.search(r"['\"\\]", text_of(parts["heredoc_start"])) is not None
        value = Value(text_of(body)) if is_literal else joined(self._pieces(body, 0, quote=0))
        return value.with_text(re.sub(r"(?m)^\t+", "", value.text)) if "<<-" in parts else value

    def _pieces(self, node: Node, depth: int, quote: int = 1) -> Iterator[Value]:
        """Yield the parts of a quoted string; space before an expansion may be part of its node, or of none."""
        at = node.start_byte + quote
        whole = node.text or b""
        for child in node.named_children:
            if child.type == "heredoc_content":
                continue
            start = child.end_byte
            start -= (
                len(child.text or b"") if child.type == "string_content" else len(text_of_expansion(child).encode())
            )
            before = whole[at - node.start_byte : start - node.start_byte]
            yield self._literal(_plain(before, quote), at)
            yield self.value(child, depth + 1)
            at = child.end_byte
        yield self._literal(_plain(whole[at - node.start_byte : len(whole) - quote], quote), at)

    def _output(self, node: Node) -> Value:
        self._run(node)
        text = text_of_expansion(node).removeprefix("$(").strip("`)").strip()
        origins = {f"$({text})"}
        for name in set(re.findall(r"\$\{?(\w+)", text)):
            origins |= self.variables.look_up(name).origins
        if re.search(r"scontrol\s+show\s+hostnames?\b.*\|\s*wc\b", text) and "SLURM_NNODES" in self.variables.values:
            return Value(self.variables.values["SLURM_NNODES"].text, frozenset({*origins, "SLURM_NNODES"}))
        printed = node.named_children[0] if len(node.named_children) == 1 else None
        if printed is not None and printed.type == "redirected_statement" and len(printed.named_children) == 2:
            command, document = printed.named_children
            if text_of(command) == "cat" and document.type == "heredoc_redirect":
                value = self.here_document(document)
                return value.with_text(value.text.rstrip("\n"))
        # What a hostname was made from is no secret; what is printed is.
        return Value(HOLE, frozenset(origins), ("$PWD" if text == "pwd" else "",))

    def _substitutions_below(self, node: Node) -> None:
        for child in node.named_children:
            if child.type == "command_substitution":
                self._run(child)
            else:
                self._substitutions_below(child)

    def _braces(self, node: Node, depth: int) -> Value:
        source = text_of_expansion(node)[2:-1]
        length = re.fullmatch(r"#(\w+)\[[@*]\]", source)
        if length:
            known = self.variables.arrays.get(length[1])
            return (
                unknown(f"#{length[1]}")
                if known is None or any(not word.value.known for word in known)
                else Value(str(len(known)))
            )
        match = re.match(r"[#!]?(\w+|[@*#?])(\[[^\]]*\])?", source)
        if match is None:
            return unknown()
        value = self._element(match[1], match[2])
        rest = source[match.end() :]
        if match[1] in "@*" or match[2] in ("[@]", "[*]"):
            first = re.fullmatch(r":(\d{1,4})", rest)
            if first and (words := self._from(match[1], int(first[1]))) is not None and self._may_spread(words):
                return joined((word.value for word in words), " ")
        if not rest and not source.startswith(("#", "!")):
            return value
        default = re.match(r":?([-=+?])", rest)
        if default is None:
            self._substitutions_below(node)
            return Value(HOLE, value.origins)
        return self._default(node, value, default[1], depth, name=match[1])

    def _default(self, node: Node, value: Value, sign: str, depth: int, name: str) -> Value:
        after = [child for child in node.children if child.end_byte < node.end_byte][2:]
        if after and after[0].type != "simple_expansion" and text_of(after[0]).lstrip(":") in ("-", "=", "+", "?"):
            after = after[1:]
        if sign == "+":
            return unknown(*value.origins)
        # A command may print something, or nothing; and a branch may be taken, or not.
        may_be_set = self.variables.open_ended or name in self.variables.undecided
        is_open = value.commands() or (self.variables.hides_undecided and may_be_set)
        if sign in "-=" and not value.known and is_open:
            return Value(HOLE, value.origins, (text_of_expansion(node),))
        missing = "unset " + name in value.origins or (not value.known and not name.startswith("SLURM"))
        if sign == "?" or not (missing or not value.text):
            return value
        other = joined(self.value(child, depth + 1) for child in after)
        if sign == "=":
            self._give(node, name, other)
        return other

    def _element(self, name: str, subscript: str | None) -> Value:
        if subscript is not None and self.variables.hides_undecided and name in self.variables.undecided:
            return unknown()
        elements = self.variables.arrays.get(name)
        if elements is None or subscript is None:
            return self.variables.look_up(name)
        if (subscript == "[*]" and "IFS" in self.variables.values) or not self._may_spread(elements):
            return unknown()
        if subscript in ("[@]", "[*]"):
            return joined((word.value for word in elements), " ")
        index = arithmetic(subscript[1:-1], self.variables.look_up)
        origins = frozenset().union(*(word.value.origins for word in elements))
        # An element that came from a command's output may be several.
        if (
            index.known
            and index.text.isdigit()
            and int(index.text) < len(elements)
            and all(word.value.known for word in elements)
        ):
            return elements[int(index.text)].value
        return Value(HOLE, origins)


_SPLIT = ("simple_expansion", "expansion", "command_substitution")
_BLANKS = {0xE000 + ord(blank): blank for blank in " \t\n"}
_NO_BLANKS = {ord(blank): chr(other) for other, blank in _BLANKS.items()}


def _parts(node: Node) -> list[Node]:
    return node.children if node.type == "concatenation" else [node]


def text_of(node: Node) -> str:
    """Return the text of a node."""
    return (node.text or b"").decode(errors="replace")


def text_of_expansion(node: Node) -> str:
    """Return the text of an expansion; in a quoted string its node may begin with the space before it."""
    return re.sub(r"\A(?:\s|\\\n)+", "", text_of(node))


def is_pattern(text: str) -> bool:
    """Return whether bash puts names of files in place of an unquoted text; a=[1,2] is a list for a program."""
    return re.search(r"(?<!\\)(?:[*?]|(?<!=)\[[^\]]+\])", text) is not None


def _home_in(node: Node) -> re.Match[str] | None:
    """Return the beginning of a word, or of NAME=…, with a ~ that bash puts the home in place of."""
    is_first = node.prev_sibling is None or node.parent is None or node.parent.type != "concatenation"
    return re.match(r"(?:[A-Za-z_]\w*=)?~(?=/|$)", text_of(node)) if node.type == "word" and is_first else None


def _plain(text: bytes, quote: int = 1) -> str:
    """Return a text without the backslashes that bash takes away; in a here-document those before quotes stay."""
    escaped = r"\\([$`\"\\]|\n)" if quote else r"\\([$`\\]|\n)"
    return re.sub(escaped, lambda match: match[1].strip("\n"), text.decode(errors="replace"))


_ESCAPES = {b"a": b"\a", b"b": b"\b", b"e": b"\x1b", b"E": b"\x1b", b"f": b"\f"} | {
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}
_ESCAPE = re.compile(
    rb"\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<short>[0-9a-fA-F]{1,4})|U(?P<long>[0-9a-fA-F]{1,8})|"
    rb"(?P<octal>[0-7]{1,3})|c(?P<control>.)|(?P<one>.))",
    re.DOTALL,
)


def _ansi_c(text: str) -> str | None:
    """Return what bash makes of the inside of $'…'; None for bytes that are no text."""

    def meant(match: re.Match[bytes]) -> bytes:
        if match["hex"] or match["octal"]:
            return bytes([int(match["hex"], 16) if match["hex"] else int(match["octal"], 8) & 255])
        if code := match["short"] or match["long"]:
            return chr(int(code, 16)).encode()
        if match["control"]:
            return bytes([match["control"][0] & 31])
        return _ESCAPES.get(match["one"], match["one"] if match["one"] in b"\\'\"?" else match[0])

    try:
        return _ESCAPE.sub(meant, text.encode()).partition(b"\0")[0].decode()
    except (ValueError, OverflowError):
        return None


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.|\n)", lambda match: match[1].strip("\n"), text)


_LITERALS: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(("word", "number", "variable_name", "test_operator", "regex", "extglob_pattern"), _unescaped),
    "raw_string": lambda text: text[1:-1],
    "string_content": lambda text: _plain(text.encode()),
}
