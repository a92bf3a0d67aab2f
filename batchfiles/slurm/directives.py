"""The lines that sbatch reads, and those that it does not though they look as if."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from trainjob.contract.programs.helpers import is_typing_error
from trainjob.contract.programs.slurm_options import OPTIONS, options_of_word

_MAGIC = "#SBATCH"
_LONGEST = 1 << 16  # of a line with quotes
_SPACE = "has a space after the #"
_ALMOST = re.compile(r"[^\S\n]*(?P<marks>[#!$]*(?:\s*#)*)\s*(?P<word>S[A-Z]{4,7})\b(?P<rest>\s*--?\w.*)", re.IGNORECASE)


@dataclass(frozen=True)
class Directive:
    """An option that sbatch reads."""

    line: int
    name: str  # the long name
    value: str | None
    spelled: str = ""  # the name as the file has it, without its dashes
    written: str | None = None  # the value as the file has it, where an argument of the file stands in its place


@dataclass(frozen=True)
class Ignored:
    """A line that looks like a directive, and is a comment to sbatch. `why` says so; `meant` are its options."""

    line: int
    text: str
    why: str
    meant: tuple[str, ...] = ()
    on_purpose: bool = False


@dataclass
class Header:
    """The part of a file that sbatch reads."""

    directives: list[Directive] = field(default_factory=list)
    strays: list[Directive] = field(default_factory=list)  # words that are neither options nor values
    ignored: list[Ignored] = field(default_factory=list)
    first_command: int | None = None  # its line; sbatch reads no directive below

    def last(self, *names: str) -> Directive | None:
        """Return the first of `names` that is stated; of several lines, the last counts."""
        return next((one for name in names for one in reversed(self.directives) if one.name == name), None)

    def value(self, *names: str) -> str | None:
        """Return the value of the first of `names` that is stated."""
        one = self.last(*names)
        return None if one is None else one.value or ""

    def line(self, *names: str) -> int:
        """Return the line of the first of `names` that is stated, or of the first directive, or 1."""
        one = self.last(*names) or next(iter(self.directives), None)
        return 1 if one is None else one.line


def read_header(lines: Sequence[str], comments: frozenset[int]) -> Header:
    """Return what sbatch reads of `lines`. `comments` are the numbers of the lines that are comments to bash, too."""
    header = Header()
    late: list[tuple[int, str]] = []
    conflict = any(line.startswith("<<<<<<< ") for line in lines)  # of a merge: a here-document to bash
    for number, line in enumerate(lines, start=1):
        if line.startswith(_MAGIC) and header.first_command is None:
            options = list(_options(number, line.removeprefix(_MAGIC)))
            header.directives.extend(one for one in options if one.name)
            header.strays.extend(one for one in options if not one.name)
        elif number in comments or (line.startswith(_MAGIC) and conflict):
            late.append((number, line))
        elif number == 1 and re.match(r"\s*[#!]*\s*/(?:usr/)?bin/(?:env |\w*sh\b)", line):
            continue  # is meant to be #!
        elif line.strip() and not line.lstrip().startswith("#") and header.first_command is None:
            header.first_command = number
            # Commands to bash: of nothing that is negated, and of a variable that nobody sets.
            if line.startswith(("!#", "$SBATCH")):
                late.append((number, line))
    for number, line in late:
        header.ignored.extend(_ignored(number, line, header))
    return header


def with_arguments(header: Header, arguments: Sequence[str]) -> Header:
    """Return the header with the arguments of the file where its author writes $1, which sbatch expands nowhere."""

    def expanded(one: Directive) -> Directive:
        text = one.value or ""
        value = re.sub(
            r"\$(?:([1-9])|\{([1-9])\})",
            lambda match: next(iter(arguments[int(match[1] or match[2]) - 1 :]), match[0]),
            text,
        )
        return one if value == text else replace(one, value=value, written=text)

    return replace(header, directives=[expanded(one) for one in header.directives])


def _options(number: int, text: str) -> Iterator[Directive]:
    """Yield the options of a line; a word that is neither an option nor a value is one without a name."""
    words = [word for word in re.split(r"[ \t\r]+", text) if word]
    # shlex takes time by the square of a word's length.
    if len(text) < _LONGEST and re.search(r"""['"\\#]""", text):
        with suppress(ValueError):
            words = shlex.split(text, comments=True)
    at = 0
    while at < len(words):
        word = words[at]
        one_dash = re.fullmatch(r"-(\w[\w-]+)(?:=.*)?", word)
        if not word.startswith("-") or word in ("-", "--"):
            yield Directive(number, "", word)
            at += 1
            continue
        if one_dash is not None and one_dash[1] in OPTIONS:  # -gres=gpu:1: what its author means
            words[at] = f"-{word}"
        found, following = options_of_word(words, at)
        for name, value in found:
            letter = OPTIONS[name].short if name in OPTIONS else name
            spelled = words[at][2:].partition("=")[0] if words[at].startswith("--") else letter
            yield Directive(number, name, value, spelled if words[at] == word else word)
        at = following


def _ignored(number: int, line: str, header: Header) -> Iterator[Ignored]:
    match = _ALMOST.fullmatch(line.rstrip())
    word = match["word"].upper() if match is not None else ""
    if match is None or not (word == "SBATCH" or is_typing_error(word, "SBATCH")):
        return
    marks, rest = match["marks"], match["rest"].strip()
    meant = tuple(one.name for one in _options(number, rest) if one.name)
    spelled = match["word"] == "SBATCH"
    below = header.first_command is not None and number > header.first_command
    active = {one.name for one in header.directives}
    if not meant or not marks or _is_usage(match["marks"], line, rest, number):
        return
    if marks.count("#") > 1 and spelled:
        return  # ##SBATCH switches a directive off, and says so
    if below and spelled and re.fullmatch(r"\s*#SBATCH.*", line):
        yield Ignored(
            number,
            line,
            f"stands below the first command (line {header.first_command}), where sbatch no longer reads",
            meant,
        )
    elif spelled and re.fullmatch(r"#\s+SBATCH\s.*", line):
        # Where others are read, it was switched off; where none is, all were meant.
        yield Ignored(number, line, _SPACE, meant, on_purpose=below or bool(active))
    elif not below:
        why = "does not begin at the start of its line" if spelled and line[:1].isspace() else "is not spelled #SBATCH"
        yield Ignored(number, line, why, meant)


def _is_usage(marks: str, line: str, rest: str, number: int) -> bool:
    """Return whether a comment shows how to call sbatch: in lower case, behind a blank or with a file."""
    if not re.match(r"\W*sbatch\b", line):
        return False
    words = [one.value or "" for one in _options(number, rest) if not one.name]
    return bool(re.match(r"\s*#+\s", line)) or any(re.search(r"[./$<]", word) for word in words) or "!" in marks
