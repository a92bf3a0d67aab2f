"""Text that bash, or the program that gets it, reads otherwise than it looks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from batchfiles.bash.expansion import text_of
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
    for launch in script.living:
        if launch.source or launch.outer is not None:
            continue
        is_first = True
        for before, word in pairwise(launch.program):
            value = before.source.startswith("-") and "=" not in before.source
            if is_first and _STARTED.fullmatch(word.source):
                break
            is_first &= word.source.startswith("-")
            starts = word.line > launch.line and not word.quoted and script.line(word.line).startswith(word.source)
            if starts and _COMMANDS.fullmatch(word.source) and (not value or before.line < word.line):
                text = f"{word.source} … becomes an argument of line {launch.line}"
                yield Finding("argument-swallowed", word.line, text)
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
        line = script.line(at)
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
        name = match[1] if match is not None else ""
        if (name in known or name.startswith("SLURM_")) and name not in script.shell.functions:
            text = f"{text_of(node)} runs a command of this name: ${{{name}}}?"
            yield Finding("command-not-found", node.start_point.row + 1, text)


# It is cut short, or a program of its own makes it.
_SHORTENED = re.compile(r"[%&|/`]|\$\((?!\(|\s*echo\b)|\$\{\w+[:#]")


def large_ports(script: BatchScript) -> Iterator[Finding]:
    """Find ports made of a job's number, which grows beyond the largest port."""
    assigned = {one.name: one for one in script.assigned(PORT_NAMES)}  # the last of each
    for one in assigned.values():
        if re.search(r"\bSLURM_JOB_?ID\b", one.text) and not _SHORTENED.search(one.text) and "if" not in one.within:
            yield found("port-too-large", one, one.text[:60])
            return


_PROGRAM = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|bash|sh|srun|mpirun|apptainer|singularity")


def submitted_programs(script: BatchScript) -> Iterator[Finding]:
    """Find programs that are given to sbatch in the place of a batch file."""
    for command in script.named("sbatch"):
        words = [word.text for word in command.words[1:]]
        given = words[max((following for _, _, following in read_options(words)), default=0) :]
        if given and _PROGRAM.fullmatch(given[0]) and not command.dead:
            yield found("sbatch-of-a-program", command, f"sbatch {' '.join(given[:2])[:40]}")
            return
