"""Text that bash, or the program that gets it, reads otherwise than it looks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchfiles.bash.expansion import text_of
from batchfiles.bash.values import HOLE, number
from batchfiles.rules.codes import Finding, found
from batchfiles.rules.meeting import PORT_NAMES
from batchfiles.slurm.script import BatchScript, nodes_of
from trainjob.contract.programs.slurm_options import read_options

_COMMANDS = re.compile(
    r"echo|srun|wait|exit|date|torchrun|sbatch|conda|module|export|cd|sleep|mpirun|accelerate|deepspeed|source|rm|mkdir"
)
_STARTED = re.compile(r"srun|torchrun|mpirun|accelerate|deepspeed")  # perhaps by a program that runs its arguments


def swallowed(script: BatchScript) -> Iterator[Finding]:
    """Find commands that a backslash on the line above makes arguments of the training."""
    for launch in script.training:
        if launch.source or launch.command.dead or launch.outer is not None:
            continue
        words, is_first = launch.program[1:], True
        for before, word in zip(launch.program, words, strict=False):
            line = script.lines[word.line - 1] if 0 < word.line <= len(script.lines) else ""
            starts = line.startswith(word.source) and word.line > launch.line and not word.quoted
            value = before.source.startswith("-") and "=" not in before.source
            if is_first and _STARTED.fullmatch(word.source):
                break
            is_first &= word.source.startswith("-")
            if starts and _COMMANDS.fullmatch(word.source) and (not value or before.line < word.line):
                yield Finding(
                    "argument-swallowed", word.line, f"{word.source} … becomes an argument of line {launch.line}"
                )
                return


_SIGNS = re.compile("[\u2010-\u2015\u2212](?=[A-Za-z\u2010-\u2015\u2212-])|[\u201c\u201d\u2018\u2019]")


def typographic(script: BatchScript) -> Iterator[Finding]:
    """Find dashes and quotes of a word processor where bash and options need those of ASCII."""
    for launch in script.training:
        for word in launch.command.words:
            sign = _SIGNS.match(word.source) or re.search("=([\u201c\u201d\u2018\u2019])", word.source)
            if sign is not None and not word.quoted and not launch.command.dead:
                yield found("typographic-sign", launch, f'"{sign[0]}" in {word.source[:40].replace(HOLE, "…")}')
                return


_BEFORE = r"(?:^|[;&|(!]|\b(?:if|elif|while|until|then|do|else)\b)\s*"
_ALWAYS = re.compile(_BEFORE + r"(\[\[?\s+\"?\$\{?\w+\}?\"?(?:==?|!=)\"?[\w.-]*\"?\s+\])")
_NO_BLANK = re.compile(_BEFORE + r"(\[\[?(?=[\"$]|-[a-z]\b)[^\s\]]+)(?=\s.*\])")
_SPACED = re.compile(r"^\s*(?:export|declare|local|readonly)\s+(\w+)(?:\s+=\s*|=\s+)(?=[\w\"'$./-])(?!.*\w+=\S)")


def tests(script: BatchScript) -> Iterator[Finding]:
    """Find tests that are always true, and words that lack a blank or have one too many."""
    kinds = ("test_command", "command", "declaration_command", "ERROR")
    # What stands in a text is its output.
    commands = {node.start_point.row + 1 for node in nodes_of(script.root, *kinds, outside=("string", "heredoc_body"))}
    for at in sorted(commands):
        line = script.lines[at - 1] if at <= len(script.lines) else ""
        if (match := _ALWAYS.search(line)) is not None and not _is_quoted(line, match):
            yield Finding("test-always-true", at, f"{match[1]} has no blanks around =")
        elif (match := _NO_BLANK.search(line)) is not None and not _is_quoted(line, match):
            yield Finding("command-not-found", at, f"{match[1]}: no blank behind [")
        elif (match := _SPACED.match(line)) is not None:
            yield Finding("command-not-found", at, f"{match[1]} = …: no spaces around = in bash")


def _is_quoted(line: str, match: re.Match[str]) -> bool:
    before = line[: match.start(1)]
    return bool(before.count('"') % 2 or before.count("'") % 2)


def substituted_names(script: BatchScript) -> Iterator[Finding]:
    """Find $(NAME) where ${NAME} is meant."""
    known = {one.name for one in script.assignments} | set(script.shell.variables.values)
    for node in nodes_of(script.root, "command_substitution"):
        match = re.fullmatch(r"\$\(\s*([A-Z][A-Z0-9_]+)\s*\)", text_of(node))
        if (
            match is not None
            and (match[1] in known or match[1].startswith("SLURM_"))
            and match[1] not in script.shell.functions
        ):
            yield Finding(
                "command-not-found",
                node.start_point.row + 1,
                f"{match[0]} runs a command of this name: ${{{match[1]}}}?",
            )


# It is cut short, or a program of its own makes it.
_SHORTENED = re.compile(r"[%&|/`]|\$\((?!\(|\s*echo\b)|\$\{\w+[:#]")


def large_ports(script: BatchScript) -> Iterator[Finding]:
    """Find ports made of a job's number, which grows beyond the largest port."""
    assigned = {one.name: one for one in script.assigned(PORT_NAMES)}  # the last of each
    for one in assigned.values():
        if re.search(r"\bSLURM_JOB_?ID\b", one.text) and not _SHORTENED.search(one.text) and "if" not in one.within:
            yield found("port-too-large", one, one.text[:60])
            return


def elements(script: BatchScript) -> Iterator[Finding]:
    """Find arrays of jobs with more elements than the list that they index."""
    last = re.fullmatch(r"(?:[0-9]+|[0-9,-]*[,-])([0-9]+)(?:%[0-9]+)?", (script.header.value("array") or "").strip())
    highest = number(last[1]) if last else number(script.header.value("array"))
    if highest is None:
        return
    text = text_of(script.root)
    index = {
        "SLURM_ARRAY_TASK_ID",
        *re.findall(r"^\s*(?:export\s+)?(\w+)=\"?\$\{?SLURM_ARRAY_TASK_ID\}?\"?\s*(?:#.*)?$", text, re.MULTILINE),
    }
    for match in re.finditer(r"\$\{(\w+)\[\"?\$?\{?(\w+)\}?\"?\]\}", text):
        lists = [one for one in script.assignments if one.name == match[1] and one.array is not None]
        tested = re.search(
            rf"(?:\[|\(\(|\bcase\b)[^\]\n]*\b{match[2]}\b[^\n]*(?:-(?:lt|le|gt|ge|eq|ne)\b|[<>=]|\bin\b)", text
        )
        changes = len(re.findall(rf"(?<![\w$-]){match[2]}\s*(?:[-+*/%]?=(?!=)|--|\+\+)|(?:--|\+\+){match[2]}\b", text))
        is_as_given = changes == (match[2] != "SLURM_ARRAY_TASK_ID")
        if match[2] not in index or len(lists) != 1 or _grows(match[1], text) or tested or not is_as_given:
            continue
        words = lists[0].array or []
        if (
            words
            and all(word.value.fixed and not re.search(r"[*?$`]|^\[", word.source) for word in words)
            and highest >= len(words)
        ):
            line = text[: match.start()].count("\n") + 1
            size = f"{match[1]} has elements 0 to {len(words) - 1}"
            yield Finding("array-beyond-list", line, f"--array={script.header.value('array')}, and {size}")
            return


def _grows(name: str, text: str) -> bool:
    return re.search(rf"\b{name}(?:\+=|\[[^\]]*\]\+?=)|(?:mapfile|readarray|read)\b.*\b{name}\b", text) is not None


_PROGRAM = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|bash|sh|srun|mpirun|apptainer|singularity")


def submitted_programs(script: BatchScript) -> Iterator[Finding]:
    """Find programs that are given to sbatch in the place of a batch file."""
    for command in script.named("sbatch"):
        words = [word.text for word in command.words[1:]]
        at = max((following for _, _, following in read_options(words)), default=0)
        if words[at:] and _PROGRAM.fullmatch(words[at]) and not command.dead:
            yield found(
                "sbatch-of-a-program", command, f"sbatch {' '.join(words[at : at + 2]).replace(HOLE, '…')[:40]}"
            )
            return
