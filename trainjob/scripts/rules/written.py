"""Faults of the shell that the file is written in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainjob.scripts.codes import Severity
from trainjob.scripts.commands import Command
from trainjob.scripts.finding import Finding
from trainjob.scripts.rules.names import KNOWN_COMMANDS, SLURM_VARIABLES, differs_by_typing_error
from trainjob.scripts.script import Script
from trainjob.scripts.values import HOLE

_OWN_PATH = re.compile(r"\$0\b|\$\{0\}|BASH_SOURCE")


def spool_folder(script: Script) -> Iterator[Finding]:
    """Find paths that are relative to the file, which runs from slurmd's folder."""
    if not script.is_batch_file:
        return
    for command in script.named("dirname"):
        source = command.words[-1].source
        from_own = _OWN_PATH.search(source) and "scontrol" not in source
        if from_own and not command.source and not _knows_of_slurm(script, command):
            yield Finding("script-dir-is-spool", command.line, f"dirname {command.words[-1].source}")
            return
    for one in script.assignments:
        if (
            re.search(r"\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}", one.text)
            and not one.source
            and "SLURM_" not in one.text
        ):
            yield Finding("script-dir-is-spool", one.line, one.text[:60])
            return


def _knows_of_slurm(script: Script, command: Command) -> bool:
    """Return whether the author takes another folder under Slurm: ${SLURM_SUBMIT_DIR:-…}, or in an if."""
    if any(re.search("SLURM_|BASH_SOURCE", one.text) for one in command.conditions):
        return True
    line = script.lines[command.line - 1] if command.line <= len(script.lines) else ""
    if "SLURM_SUBMIT_DIR" in line:
        return True
    name = re.match(r"\s*(?:export\s+|readonly\s+)?(\w+)=", line)
    return name is not None and any(
        one.name == name[1]
        and one.line != command.line
        and re.search(r"SLURM_|scontrol", one.text + "".join(each.text for each in one.conditions))
        for one in script.assignments
    )


def arrays(script: Script) -> Iterator[Finding]:
    """Find lists that became one element."""
    for one in script.assignments:
        if (
            one.array is None
            or len(one.array) != 1
            or not re.search(r"\w=\(\s*\"\$[\w({][^\"]*\"\s*\)$", one.text.replace("\n", " "))
        ):
            continue
        value = one.array[0].value
        if re.search(
            r"scontrol show hostname|\b(?:ls|find|seq|cat|awk|sort|nodeset|sinfo)\b", value.commands()
        ) and not re.search(r"head|tail -n? ?1|wc", value.commands()):
            yield Finding("array-quoted", one.line, one.text[:60], path=one.source)


_NOT_WORDS = re.compile(r"[^\w./~$%:+@\[\]{}!,-]|^[\d.]+$")


def commands(script: Script) -> Iterator[Finding]:
    """Find words that bash takes for commands, and are none."""
    for command in script.commands:
        why = _no_command(script, command)
        if why is not None:
            yield Finding("command-not-found", command.line, why, path=command.source)


def _no_command(script: Script, command: Command) -> str | None:
    if not command.words or command.words[0].source.startswith(("$", '"', "'", "`")) or command.dead:
        return None
    name = command.words[0].text
    following = command.words[1].text if len(command.words) > 1 else ""
    if HOLE in name or not name or name in script.shell.functions or script.first_error == command.line:
        return None
    if re.match(r"--?[A-Za-z]", name):
        return f"{name} begins a line: the line above does not end in a backslash, or a space or a comment follows it"
    if following == "=" or (
        re.match(r"=[^=]", following)
        and name not in KNOWN_COMMANDS
        and name.isidentifier()
        and not command.words[1].quoted
    ):
        return f"{name} {following} …: no spaces around = in bash"
    if "```" in script.lines[min(command.line, len(script.lines)) - 1]:
        return "``` is Markdown"
    if name[0].isalpha() and not name[0].isascii():
        return f"{name} …: a comment without its #?"
    if (
        re.fullmatch(r"[A-Z][a-z]+[:,]?", name)
        and name not in ("Rscript", "Xvfb", "Xorg", "Xvnc")
        and len(command.words) > 2
    ):
        return f"{name} {following} …: a comment without its #?"
    near = next((known for known in KNOWN_COMMANDS if differs_by_typing_error(name, known)), None)
    if near is not None and name not in KNOWN_COMMANDS and not re.fullmatch(r"python[\d.]+|\w+\.\w+|[pa]run", name):
        return f"{name}: {near}?"
    return None


def variables(script: Script) -> Iterator[Finding]:
    """Find variables that are empty where they are used."""
    text = "\n".join(script.lines)
    used = set(re.findall(r"\$\{?[#!]?(\w+)", text)) | {
        word for body in re.findall(r"\$\(\((.*?)\)\)", text, re.DOTALL) for word in re.findall(r"[A-Za-z_]\w*", body)
    }
    assigned = {one.name for one in script.assignments} | {
        name for command in script.commands for name in command.settings
    }
    unused = {name for name in assigned - used if not name.startswith("_")}
    told: set[str] = set()
    for command in script.commands:
        if (
            command.dead
            or command.name in ("echo", "printf", "[", "test", "trap", "cat", "", "unset")
            or "substitution" in command.within
            or command.variables.open_ended
        ):
            continue
        for name, why in _missing(command, assigned, unused):
            if name not in told:
                told.add(name)
                yield Finding("unset-variable", command.line, f"${name} is {why}", path=command.source)
    yield from _slurm_names(script, assigned, told)


def _missing(command: Command, assigned: set[str], unused: set[str]) -> Iterator[tuple[str, str]]:
    for origin in sorted(
        {
            origin
            for word in command.words
            for origin in word.value.origins
            if origin.startswith(("unset ", "kept back "))
        }
    ):
        name = origin.rpartition(" ")[2]
        if origin.startswith("kept back "):
            # Only where the text of this very command names it: bash -c '… $NAME …'.
            if "called" in command.within and any(
                re.search(rf"\$\{{?{re.escape(name)}\b", word.source) for word in command.words
            ):
                yield name, "set in the batch shell, and not exported"
        elif name not in assigned and any(
            re.search(rf"\$\{{?{re.escape(name)}\}}?(?!:?[-+=?])", word.source) for word in command.words
        ):
            near = next((other for other in sorted(unused) if _means(name, other)), None)
            if near is not None:
                yield name, f"never set, and {near} is set and never used"


def _means(name: str, other: str) -> bool:
    plain, of_other = name.lower().replace("_", ""), other.lower().replace("_", "")
    return name != other and (plain == of_other or (len(plain) > 5 and differs_by_typing_error(plain, of_other)))


def _slurm_names(script: Script, assigned: set[str], told: set[str]) -> Iterator[Finding]:
    for number, line in enumerate(script.lines, 1):
        if line.lstrip().startswith("#") or re.match(r"\s*(?:echo|printf)\b", line):
            continue
        for name in re.findall(r"\$\{?(SLURM_\w+)(?=\b(?!:?[-+?]))", line):
            if name in SLURM_VARIABLES or name in assigned or name in told:
                continue
            near = next((known for known in sorted(SLURM_VARIABLES) if differs_by_typing_error(name, known)), None)
            if near is not None:
                told.add(name)
                yield Finding("unset-variable", number, f"Slurm sets no ${name}: ${near}?")


def empty_programs(script: Script) -> Iterator[Finding]:
    """Find launch lines whose program is a variable that is never set, while another one is set and never used."""
    text = "\n".join(line for line in script.lines if not line.lstrip().startswith("#"))
    used = set(re.findall(r"\$\{?[#!]?(\w+)", text))
    unused = [
        one.name
        for one in script.assignments
        if one.name not in used and re.search(r"(?i)script|program|file|args", one.name)
    ]
    for launch in script.training:
        if launch.launcher is None or not launch.program or launch.command.dead or not unused:
            continue
        missing = {
            origin.removeprefix("unset ") for origin in launch.program[0].value.origins if origin.startswith("unset ")
        }
        candidates = [name for name in re.findall(r"\$\{?(\w+)", text) if name in missing]
        if launch.program[0].text.strip(HOLE) == "" and candidates:
            why = f"${candidates[0]} is never set, and {unused[0]} is set and never used"
            elsewhere = next(iter(script.shell.not_here), None) if launch.command.variables.open_ended else None
            yield Finding(
                "unset-variable",
                launch.line,
                why if elsewhere is None else f"{why}, unless {elsewhere}, which is not here, sets it",
                Severity.WARNING if elsewhere is not None else None,
                path=launch.command.source,
            )


def empty_arguments(script: Script) -> Iterator[Finding]:
    """Find options whose value is empty and vanishes."""
    for launch in script.training:
        words = launch.command.words
        for at, word in enumerate(words):
            variable = re.fullmatch(r"\$\{?(\w+)\}?", word.source)
            follows_option = at > 0 and re.fullmatch(r"--?[A-Za-z][\w-]*", words[at - 1].text)
            if (
                variable
                and word.text == ""
                and word.value.known
                and not word.quoted
                and follows_option
                and not word.value.comes_from("SLURM_PROCID")
            ):
                yield Finding(
                    "empty-argument",
                    launch.line,
                    f"{words[at - 1].text} {word.source}, which is empty",
                    path=launch.command.source,
                )
                return


def goes_on(script: Script) -> Iterator[Finding]:
    """Find scripts that go on after a failed command."""
    if not script.training or any("e" in command.options for command in script.commands):
        return
    first = re.search(r"^#!.*\s-\w*e", script.lines[0])
    if first is None:
        yield Finding("no-set-e", script.header.first_command or 1, "no set -e", Severity.NOTE)
