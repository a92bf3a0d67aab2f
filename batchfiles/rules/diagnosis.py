"""The diagnosis of a batch file."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchfiles.bash.syntax import syntax_fault
from batchfiles.bash.values import HOLE
from batchfiles.rules import RULES
from batchfiles.rules.codes import CODES, Finding, Severity
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import BatchScript, read_script
from trainjob.contract.programs.secrets_in_shell import secrets_in
from trainjob.machines.process import CommandError

_ORDER = list(Severity)
_IGNORE = re.compile(r"#\s*trainjob:\s*ignore=([\w-]+(?:\s*,\s*[\w-]+)*)")


@dataclass(frozen=True)
class Diagnosis:
    """The faults of one file, and what could not be known of it."""

    path: str
    findings: tuple[Finding, ...]
    not_known: tuple[str, ...]
    lines: tuple[str, ...] = ()  # of the file

    def only(self, select: Collection[str], ignore: Collection[str]) -> Diagnosis:
        """Return the diagnosis without what is ignored; `select`, unless it is empty, names all codes that count."""
        kept = (one for one in self.findings if (not select or one.code in select) and one.code not in ignore)
        return replace(self, findings=tuple(kept))

    def as_json(self) -> dict[str, Any]:
        """Return the diagnosis for `--json`."""
        findings = [finding.as_json() | {"path": finding.path or self.path} for finding in self.findings]
        return {"path": self.path, "findings": findings, "not_known": list(self.not_known)}


def diagnose(path: Path, site: SiteFacts) -> Diagnosis:
    """Return what is wrong with the batch file `path`. Raises OSError."""
    return diagnosis_with_bash(read_script(path, site))


def diagnosis_with_bash(script: BatchScript) -> Diagnosis:
    """Return what is wrong with a script; bash itself says whether it can be read."""
    return diagnosis_of(script, asked_bash(script))


def asked_bash(script: BatchScript) -> list[Finding]:
    """Return the fault of grammar that bash itself finds; where there is no bash, or another shell, our guess."""
    if not re.match(r"#!.*\b(?:ba)?sh\b|(?!#!)", script.lines[0].lstrip("\ufeff")):
        return []
    try:
        fault = syntax_fault("\n".join(script.lines).encode())
    except CommandError:
        return _guessed(script)
    return [] if fault is None else [Finding("not-bash", fault.line, fault.text)]


def _guessed(script: BatchScript) -> list[Finding]:
    if script.first_error is None:
        return []
    text = script.lines[script.first_error - 1].strip()[:60]
    return [Finding("not-bash", script.first_error, text, Severity.NOTE)]


def diagnosis_of(script: BatchScript, grammar: Sequence[Finding] | None = None) -> Diagnosis:
    """Return what is wrong with a script that was read; `grammar` are faults that bash finds, if it was asked."""
    found = [finding for rule in RULES for finding in rule(script)]
    found += _guessed(script) if grammar is None else grammar
    everywhere, by_line = _ignored(script)
    found += _unused(found, everywhere, by_line)
    found = [_in_this_file(script, finding) for finding in found]
    seen: set[tuple[str, int, str, str]] = set()
    kept = []
    for finding in sorted(found, key=lambda one: (one.path, one.line, _ORDER.index(one.severity), one.code)):
        place = (finding.code, finding.line, finding.path, finding.text)
        ignored = finding.code in everywhere or (not finding.path and finding.code in by_line.get(finding.line, {}))
        if place not in seen and not ignored:
            seen.add(place)
            kept.append(finding if finding.path else finding._replace(column=_column(script, finding)))
    keys = {key for one in kept if one.code == "secret-in-script" for key in secrets_in(script.line(one.line))}
    told = (one._replace(text=_without(keys, one.text)) for one in kept)
    return Diagnosis(str(script.path), tuple(told), tuple(_not_known(script)), tuple(script.lines))


def _without(keys: Collection[str], text: str) -> str:
    """Return a text up to where a key begins, which may be cut off: no log gets one."""
    begins = [at for key in keys if (at := text.find(key[:8])) >= 0]
    return f"{text[: min(begins)]}…" if begins else text


def _in_this_file(script: BatchScript, finding: Finding) -> Finding:
    """Return a finding of a script that the file itself writes, where it is written."""
    written = script.shell.written.get(finding.path)
    return finding if written is None else finding._replace(path="", line=written[1] + finding.line - 1)


def _unused(found: Sequence[Finding], everywhere: dict[str, int], by_line: dict[int, dict[str, int]]) -> list[Finding]:
    """Return what comments want ignored, and there is not."""
    codes = {one.code for one in found}
    unused = [(line, code) for code, line in everywhere.items() if code not in codes]
    for at, ignored in by_line.items():
        here = {one.code for one in found if one.line == at and not one.path}
        unused += [(line, code) for code, line in ignored.items() if code not in here]
    return [
        Finding("ignore-unused", line, f"{code} is {'not found here' if code in CODES else 'no code of doctor'}")
        for line, code in sorted(unused)
    ]


# What is not there has no place in a line.
_MISSING = ("no-time", "no-mem", "no-cpus")


def _column(script: BatchScript, finding: Finding) -> int:
    """Return where in its line a fault is: at the longest word that its text has from there, else at its first word."""
    if not 0 < finding.line <= len(script.lines) or finding.code in _MISSING:
        return 0
    line = script.lines[finding.line - 1]
    words = sorted(re.findall(r"[^\s\"':,]{4,}", finding.text), key=len, reverse=True)
    place = next((at for word in words if (at := line.find(word)) >= 0), len(line) - len(line.lstrip()))
    return place + 1


def _ignored(script: BatchScript) -> tuple[dict[str, int], dict[int, dict[str, int]]]:
    """Return the codes that the file wants ignored, in all of it and in single lines, and where it says so."""
    everywhere: dict[str, int] = {}
    by_line: dict[int, dict[str, int]] = {}
    for number, comment in script.comments:
        match = _IGNORE.search(comment)
        if match is None or not 0 < number <= len(script.lines):
            continue
        codes = {code.strip(): number for code in match[1].split(",")}
        own_line = script.lines[number - 1].lstrip().startswith("#") and not script.lines[number - 1].startswith(
            "#SBATCH"
        )
        if own_line and (script.header.first_command is None or number < script.header.first_command):
            everywhere |= codes
        else:
            # On a separate line further below it is about the next one.
            by_line.setdefault(number + own_line, {}).update(codes)
    return everywhere, by_line


def _not_known(script: BatchScript) -> list[str]:
    """Return, each once, what only a run can tell and what a launch line depends on."""
    reported = [f"{source} (line {line}) is not here" for source, line in script.shell.not_here.items()]
    for launch in script.training:
        for name in ("nproc_per_node", "nnodes", "num_processes", "num_gpus"):
            value = launch.launcher.options.get(name) if launch.launcher else None
            if value is not None and HOLE in value.text:
                source = value.commands() or ", ".join(f"${one}" for one in sorted(value.origins) if one.isidentifier())
                reported.append(
                    f"--{name.replace('_', '-')} (line {launch.line}) comes from {source or 'a value of the run'}"[:120]
                )
    return list(dict.fromkeys(reported))
