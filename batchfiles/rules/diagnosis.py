"""The diagnosis of a batch file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchfiles.bash.values import HOLE
from batchfiles.rules import RULES
from batchfiles.rules.codes import Finding, Severity
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import BatchScript, read_script

_ORDER = list(Severity)
_IGNORE = re.compile(r"#\s*trainjob:\s*ignore=([\w-]+(?:\s*,\s*[\w-]+)*)")


@dataclass(frozen=True)
class Diagnosis:
    """The faults of one file, and what could not be known of it."""

    path: str
    findings: tuple[Finding, ...]
    not_known: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the diagnosis for `--json`."""
        findings = [finding.as_json() | {"path": finding.path or self.path} for finding in self.findings]
        return {"path": self.path, "findings": findings, "not_known": list(self.not_known)}


def diagnose(path: Path, site: SiteFacts) -> Diagnosis:
    """Return what is wrong with the batch file `path`. Raises OSError."""
    return diagnosis_of(read_script(path, site))


def diagnosis_of(script: BatchScript) -> Diagnosis:
    """Return what is wrong with a script that was read."""
    found = [finding for rule in RULES for finding in rule(script)]
    if script.first_error is not None:
        found.append(Finding("not-bash", script.first_error, script.lines[script.first_error - 1].strip()[:60]))
    everywhere, by_line = _ignored(script)
    seen: set[tuple[str, int, str, str]] = set()
    kept = []
    for finding in sorted(found, key=lambda one: (one.path, one.line, _ORDER.index(one.severity), one.code)):
        place = (finding.code, finding.line, finding.path, finding.text)
        ignored = finding.code in everywhere or (not finding.path and finding.code in by_line.get(finding.line, ()))
        if place not in seen and not ignored:
            seen.add(place)
            kept.append(finding)
    return Diagnosis(str(script.path), tuple(kept), tuple(_not_known(script)))


def _ignored(script: BatchScript) -> tuple[set[str], dict[int, set[str]]]:
    """Return the codes that the file wants ignored: in all of it, and in single lines."""
    everywhere: set[str] = set()
    by_line: dict[int, set[str]] = {}
    for number, comment in script.comments:
        match = _IGNORE.search(comment)
        if match is None or not 0 < number <= len(script.lines):
            continue
        codes = {code.strip() for code in match[1].split(",")}
        own_line = script.lines[number - 1].lstrip().startswith("#") and not script.lines[number - 1].startswith(
            "#SBATCH"
        )
        if own_line and (script.header.first_command is None or number < script.header.first_command):
            everywhere |= codes
        else:
            # On a separate line further below it is about the next one.
            by_line.setdefault(number + own_line, set()).update(codes)
    return everywhere, by_line


def _not_known(script: BatchScript) -> list[str]:
    """Return, each once, what only a run can tell and what a launch line depends on."""
    told = [f"{source} (line {line}) is not here" for source, line in script.shell.not_here.items()]
    for launch in script.training:
        for name in ("nproc_per_node", "nnodes", "num_processes", "num_gpus"):
            value = launch.launcher.options.get(name) if launch.launcher else None
            if value is not None and HOLE in value.text:
                source = value.commands() or ", ".join(f"${one}" for one in sorted(value.origins) if one.isidentifier())
                told.append(
                    f"--{name.replace('_', '-')} (line {launch.line}) comes from {source or 'a value of the run'}"[:120]
                )
    return list(dict.fromkeys(told))
