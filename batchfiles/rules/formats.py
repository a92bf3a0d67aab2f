"""Faults as text, as annotations of a GitHub workflow, and as SARIF."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

import trainjob
from batchfiles.rules.codes import CODES, Severity
from batchfiles.rules.diagnosis import Diagnosis

_MOST_NOT_KNOWN = 5  # in text; --json has all
_GITHUB = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def text(diagnoses: Sequence[Diagnosis]) -> str:
    """Return the faults as people read them: what happens and the cure are printed once for each code of a file."""
    lines = [line for diagnosis in diagnoses for line in _of_file(diagnosis)]
    return "\n".join([*lines, _sum(diagnoses)])


def _of_file(diagnosis: Diagnosis) -> Iterator[str]:
    told: set[str] = set()
    for finding in diagnosis.findings:
        where = f"{finding.path or diagnosis.path}:{finding.line}"
        yield _printable(f"{where}: {finding.severity.value}: {finding.code}: {finding.text}")
        if finding.code not in told and finding.severity is not Severity.NOTE:
            told.add(finding.code)
            yield f"    {finding.row.happens}"
            yield f"    Cure: {finding.row.cure}"
    if diagnosis.not_known:
        more = len(diagnosis.not_known) - _MOST_NOT_KNOWN
        told_of = [*diagnosis.not_known[:_MOST_NOT_KNOWN], *([f"and {more} more"] if more > 0 else [])]
        yield _printable(f"{diagnosis.path}: not known without running it: {'; '.join(told_of)}")


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
        f",line={finding.line},title={finding.code}::"
        + _escaped(f"{finding.text}. {finding.row.happens} Cure: {finding.row.cure}")
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
            "message": {"text": f"{finding.text}. {finding.row.happens} Cure: {finding.row.cure}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": finding.path or diagnosis.path},
                        "region": {"startLine": finding.line},
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
