"""Faults as text, as annotations of a GitHub workflow, and as SARIF."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import trainjob
from batchfiles.rules.codes import CODES, Severity
from batchfiles.rules.diagnosis import Diagnosis

_MOST_NOT_KNOWN = 5  # in text; --json has all
_MOST_SHOWN, _MOST_BEFORE = 100, 60  # characters of a line
_GITHUB = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


Paint = Callable[[str, Severity], str]


def _plain(text: str, _severity: Severity) -> str:
    return text


def text(diagnoses: Sequence[Diagnosis], paint: Paint = _plain) -> str:
    """Return the faults as people read them: what happens and the cure are printed once for each code of a file."""
    lines = [line for diagnosis in diagnoses for line in _of_file(diagnosis, paint)]
    return "\n".join([*lines, _sum(diagnoses)])


def _of_file(diagnosis: Diagnosis, paint: Paint) -> Iterator[str]:
    reported: set[str] = set()
    secret = {finding.line for finding in diagnosis.findings if finding.code == "secret-in-script"}  # no log gets a key
    for finding in diagnosis.findings:
        column = f":{finding.column}" if finding.column else ""
        where = _printable(f"{finding.path or diagnosis.path}:{finding.line}{column}")
        kind = paint(finding.severity.value, finding.severity)
        yield f"{where}: {kind}: {_printable(f'{finding.code}: {finding.text}')}"
        if finding.column and finding.severity is not Severity.NOTE and finding.line not in secret:
            source = _printable(diagnosis.lines[finding.line - 1])
            start = max(0, finding.column - 1 - _MOST_BEFORE)
            yield f"    | {source[start : start + _MOST_SHOWN]}"
            yield f"    | {' ' * (finding.column - 1 - start)}{paint('^', finding.severity)}"
        if finding.code not in reported and finding.severity is not Severity.NOTE:
            reported.add(finding.code)
            yield f"    {finding.row.happens}"
            yield f"    Cure: {finding.cure}"
    if diagnosis.not_known:
        more = len(diagnosis.not_known) - _MOST_NOT_KNOWN
        unknown = [*diagnosis.not_known[:_MOST_NOT_KNOWN], *([f"and {more} more"] if more > 0 else [])]
        yield _printable(f"{diagnosis.path}: not known without running it: {'; '.join(unknown)}")


def _sum(diagnoses: Sequence[Diagnosis]) -> str:
    counts = Counter(finding.severity for diagnosis in diagnoses for finding in diagnosis.findings)
    if not counts:
        return "no faults found"
    words = [
        f"{counts[severity]} {severity.value}{'' if counts[severity] == 1 else 's'}"
        for severity in Severity
        if counts[severity]
    ]
    files = f" in {len(diagnoses)} files" if len(diagnoses) > 1 else ""
    return f"{', '.join(words)}{files}. trainjob doctor --explain CODE says more"


def github(diagnoses: Sequence[Diagnosis]) -> str:
    """Return one workflow command a fault."""
    return "\n".join(
        f"::{_GITHUB[finding.severity]} file={_escaped(finding.path or diagnosis.path, ':,')}"
        f",line={finding.line}{f',col={finding.column}' if finding.column else ''},title={finding.code}::"
        + _escaped(f"{finding.text}. {finding.row.happens} Cure: {finding.cure}")
        for diagnosis in diagnoses
        for finding in diagnosis.findings
    )


def _escaped(message: str, more: str = "") -> str:
    return "".join(f"%{ord(sign):02X}" if sign in "%\r\n" + more else sign for sign in message)


def sarif(diagnoses: Sequence[Diagnosis]) -> str:
    """Return a log in SARIF 2.1.0."""
    used = sorted({finding.code for diagnosis in diagnoses for finding in diagnosis.findings})
    driver = {
        "name": "trainjob doctor",
        "version": trainjob.__version__,
        "rules": [
            {
                "id": code,
                "shortDescription": {"text": CODES[code].happens},
                "help": {"text": f"{CODES[code].happens} Cure: {CODES[code].cure}"},
                "defaultConfiguration": {"level": CODES[code].severity.value},
            }
            for code in used
        ],
    }
    results = [
        {
            "ruleId": finding.code,
            "ruleIndex": used.index(finding.code),
            "level": finding.severity.value,
            "message": {"text": f"{finding.text}. {finding.row.happens} Cure: {finding.cure}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": finding.path or diagnosis.path},
                        "region": {"startLine": finding.line}
                        | ({"startColumn": finding.column} if finding.column else {}),
                    }
                }
            ],
        }
        for diagnosis in diagnoses
        for finding in diagnosis.findings
    ]
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps(
        {"version": "2.1.0", "$schema": schema, "runs": [{"tool": {"driver": driver}, "results": results}]}, indent=1
    )


def _printable(line: str) -> str:
    return "".join(sign if sign.isprintable() else "…" for sign in line)
