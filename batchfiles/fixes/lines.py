"""The parts of edits: a line replaced, a directive or an option of srun added."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from batchfiles.bash.expansion import text_of
from batchfiles.rules.codes import Finding
from batchfiles.slurm.directives import Directive
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.script import BatchScript, nodes_of

if TYPE_CHECKING:
    from tree_sitter import Node

Edit = Callable[[BatchScript, Finding], str | None]
_LINES_OF_COMMAND = 12


def with_line(script: BatchScript, number: int, new: str | None) -> str | None:
    """Return the text with another line `number`, or without it; None if that changes nothing."""
    if not 0 < number <= len(script.lines) or script.lines[number - 1] == new:
        return None
    lines = list(script.lines)
    lines[number - 1 : number] = [] if new is None else new.split("\n")
    return "\n".join(lines)


def line_like(script: BatchScript, pattern: str, behind: int = 0) -> int:
    """Return the number of the first line behind line `behind` that begins like a pattern; 0 if none does."""
    return next((at for at, text in enumerate(script.lines, 1) if at > behind and re.match(pattern, text)), 0)


def renamed(script: BatchScript, pattern: str, new: str) -> str:
    """Return the text with all that is like a pattern replaced, but in comments."""
    return "\n".join([one if one.lstrip().startswith("#") else re.sub(pattern, new, one) for one in script.lines])


def with_before(script: BatchScript, number: int, *new: str) -> str:
    """Return the text with lines before line `number`."""
    return "\n".join([*script.lines[: number - 1], *new, *script.lines[number - 1 :]])


def spliced(script: BatchScript, start: int, end: int, new: str) -> str | None:
    """Return the text with other bytes from `start` to `end` of the tree; None if the tree is of other bytes."""
    raw = "\n".join(script.lines).encode()
    return (raw[:start] + new.encode() + raw[end:]).decode() if raw == script.root.text else None


def inserted(script: BatchScript, places: Mapping[int, str]) -> str | None:
    """Return the text with more at these bytes of the tree; None if the tree is of other bytes."""
    raw = script.root.text or b""
    for place in sorted(places, reverse=True):
        raw = raw[:place] + places[place].encode() + raw[place:]
    return spliced(script, 0, script.root.end_byte, raw.decode())


def replaced(pattern: str, new: str | Callable[[re.Match[str]], str], flags: int = 0) -> Edit:
    """Return an edit of the first match in the fault's line, or in those that continue it."""
    return lambda script, one: first_changed(
        script, one, lambda line: re.sub(pattern, new, line, count=1, flags=flags), most_lines=0
    )


def first_changed(
    script: BatchScript, one: Finding, change: Callable[[str], str], most_lines: int = _LINES_OF_COMMAND
) -> str | None:
    """Return the text with the first line changed that `change` affects; None without one.

    It is that of the fault, one of `most_lines` below it, or one that continues it after a backslash.
    """
    for number in _lines_of(script, one, most_lines):
        line = script.lines[number - 1]
        if (new := change(line)) != line:
            return with_line(script, number, new)
    return None


def _lines_of(script: BatchScript, one: Finding, most_lines: int) -> Iterator[int]:
    """Yield the lines of a fault's command, and those of the variables of which it is made."""
    sources: list[str] = []
    for number in range(one.line, len(script.lines) + 1):
        yield number
        sources.append(script.lines[number - 1])
        if number - one.line >= most_lines and not sources[-1].endswith("\\"):
            break
    for given in reversed(script.assignments):
        own = rf"\$\{{?{re.escape(given.name)}\b"
        if not given.source and given.line < one.line and any(re.search(own, text) for text in sources):
            sources.append(given.text)
            yield from range(given.line, given.line + given.text.count("\n") + 1)


def directive_added(script: BatchScript, *options: str) -> str:
    """Return the text with more directives, behind the last one."""
    return with_before(script, behind_directives(script), *(f"#SBATCH {option}" for option in options))


def behind_directives(script: BatchScript) -> int:
    """Return the number of the line behind the last directive."""
    return max((one.line for one in script.header.directives), default=1) + 1


def free_name(script: BatchScript, *names: str) -> str:
    """Return the first of these names that is no variable of the file; the last, if all are."""
    return next((name for name in names if names_are_free(script, name)), names[-1])


def names_are_free(script: BatchScript, *names: str) -> bool:
    """Return whether the file itself has no variable of these names, which an edit writes."""
    read = re.compile(rf"\$\{{?[#!]?(?:{'|'.join(names)})\b")
    return not (any(one.name in names for one in script.assignments) or read.search("\n".join(script.lines)))


def stands_alone(script: BatchScript, line: int) -> bool:
    """Return whether a line has one directive."""
    return sum(one.line == line for one in script.header.directives) == 1


def directive_named(script: BatchScript, *names: str) -> Directive | None:
    """Return the first directive of these names."""
    return next((one for one in script.header.directives if one.name in names), None)


def directive_of(script: BatchScript, one: Finding) -> Directive | None:
    """Return the directive of the fault's line that it is about."""
    here = [other for other in script.header.directives if other.line == one.line]
    return next(
        (other for other in here if other.name == one.facts.get("directive")),
        here[0] if len(here) == 1 else None,
    )


TORCHRUN = r"(\btorchrun\b|-m torch\.distributed\.(?:run|launch)\b)(?=\s|$)"
SRUN = r"(?<![\w$#./-])srun\b"


def with_srun_option(script: BatchScript, option: str, launches: Iterable[LaunchedProgram]) -> str | None:
    """Return the text with an option for each srun that starts one of `launches`, and does not have it."""
    name = option.removeprefix("--").partition("=")[0]
    lines = list(script.lines)
    for number in {_line_of_srun(script, each) for each in launches if each.srun and name not in each.srun.options}:
        if number:
            before, srun, behind = re.split(rf"({SRUN})", lines[number - 1], maxsplit=1)
            own = option.replace('"', "") if before.count('"') % 2 else option  # inside of quotes
            lines[number - 1] = f"{before}{srun} {own}{behind}"
    return None if lines == script.lines else "\n".join(lines)


def _line_of_srun(script: BatchScript, launch: LaunchedProgram) -> int:
    """Return the line on which the srun of a launch is written; 0 if there is none."""
    step = launch.step
    written = step.srun.words[0].line if step.srun else 0
    candidates: list[int] = [written, *range(step.line, max(0, step.line - _LINES_OF_COMMAND), -1)]
    for number in candidates:
        if 0 < number <= len(script.lines) and re.search(rf"^(?!\s*#).*{SRUN}(?!=)", script.lines[number - 1]):
            return number
    return 0


def behind_srun(script: BatchScript, launch: LaunchedProgram) -> tuple[Node, int] | None:
    """Return the command with the srun of a launch, and the byte of the file where srun's own options end."""
    step = launch.step
    srun = next((layer for layer in step.layers if layer.name == "srun"), None)
    if srun is None or not srun.left:
        return None
    first = srun.words[len(srun.words) - srun.left].source
    for node in nodes_of(script.root, "command"):
        words = [text_of(child) for child in node.named_children]
        if node.start_point.row + 1 == step.line and "srun" in words and first in words[words.index("srun") + 1 :]:
            return node, node.named_children[words.index(first, words.index("srun") + 1)].start_byte
    return None


def with_srun(script: BatchScript, one: Finding, options: str = "--kill-on-bad-exit=1") -> str | None:
    """Return the text with srun before the program of the fault's launch, behind NAME=… and what only a shell knows."""
    launch = launch_at(script, one)
    at = None if launch is None else launch.outermost.command.at
    node = next((node for node in nodes_of(script.root, "command") if node.start_byte == at), None)
    words = (child for child in node.named_children if child.type != "variable_assignment") if node else ()
    program = next((word for word in words if not _OF_SHELL.match(text_of(word))), None)
    if program is None or re.match(r"-|(?:eval|source|\.)$", text_of(program)):
        return None
    return inserted(script, {program.start_byte: f"srun {options} "})


_OF_SHELL = re.compile(r"(?:time|-p|exec|command)$|[A-Za-z_]\w*=")


def exported(script: BatchScript, name: str) -> str | None:
    """Return the text in which a variable is exported where it is set first."""
    at = line_like(script, rf"\s*{name}=")
    return replaced(rf"^(\s*)(?={name}=)", r"\1export ")(script, Finding("", at, "")) if at else None


def launch_at(script: BatchScript, one: Finding) -> LaunchedProgram | None:
    """Return the launch of the fault's line."""
    return next((launch for launch in script.training if launch.line == one.line and not launch.source), None)
