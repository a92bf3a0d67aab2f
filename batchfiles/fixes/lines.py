"""The parts of edits: a line replaced, a directive or an option of srun added."""

from __future__ import annotations

import re
from collections.abc import Callable

from batchfiles.rules.codes import Finding
from batchfiles.slurm.directives import Directive
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.script import BatchScript

Edit = Callable[[BatchScript, Finding], str | None]


def with_line(script: BatchScript, number: int, new: str | None) -> str | None:
    """Return the text with another line `number`, or without it; None if that changes nothing."""
    if not 0 < number <= len(script.lines) or script.lines[number - 1] == new:
        return None
    lines = list(script.lines)
    lines[number - 1 : number] = [] if new is None else new.split("\n")
    return "\n".join(lines)


def replaced(pattern: str, new: str, flags: int = 0) -> Edit:
    """Return an edit of the first match in the fault's line."""
    return lambda script, one: with_line(
        script, one.line, re.sub(pattern, new, script.lines[min(one.line, len(script.lines)) - 1], count=1, flags=flags)
    )


def directive_added(script: BatchScript, *options: str) -> str:
    """Return the text with more directives, behind the last one."""
    at = max((one.line for one in script.header.directives), default=1)
    return "\n".join([*script.lines[:at], *(f"#SBATCH {option}" for option in options), *script.lines[at:]])


def directive_of(script: BatchScript, one: Finding) -> Directive | None:
    """Return the directive of the fault's line that it is about."""
    here = [other for other in script.header.directives if other.line == one.line]
    return next(
        (other for other in here if f"-{other.spelled}" in one.text or other.name in one.text),
        here[0] if len(here) == 1 else None,
    )


def with_srun_option(script: BatchScript, one: Finding, option: str) -> str | None:
    """Return the text with an option for the srun that starts the fault's launch."""
    launch = next((each for each in script.training if each.line == one.line and each.srun is not None), None)
    word = None if launch is None or launch.srun is None else launch.srun.words[0]
    if launch is None or word is None:
        return None
    for number in [word.line, *range(one.line, max(0, one.line - 12), -1)]:
        if 0 < number <= len(script.lines) and re.search(r"(?<![\w$#./-])srun\b(?!=)", script.lines[number - 1]):
            line = script.lines[number - 1]
            if not line.lstrip().startswith("#"):
                return with_line(script, number, re.sub(r"(?<![\w$#./-])srun\b", f"srun {option}", line, count=1))
    return None


def exported(script: BatchScript, name: str) -> str | None:
    """Return the text in which a variable is exported where it is set first."""
    at = next((number for number, line in enumerate(script.lines, 1) if re.match(rf"\s*{name}=", line)), None)
    return None if at is None else replaced(rf"^(\s*)(?={name}=)", r"\1export ")(script, Finding("", at, ""))


def launch_at(script: BatchScript, one: Finding) -> LaunchedProgram | None:
    """Return the launch of the fault's line."""
    return next((launch for launch in script.training if launch.line == one.line and not launch.source), None)
