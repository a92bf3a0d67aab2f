"""Recall, precision and time of `trainjob doctor` on batch files with known verdicts.

python bench/batch_scripts.py FOLDER VERDICTS

VERDICTS is a table with tabs and the columns repo, path, errors, warnings, notes, whose codes are separated by commas
(CODE@LINE states the line too). FOLDER has the files as REPO/PATH, or with __ for each slash. Nothing is fetched.
"""

from __future__ import annotations

import csv
import sys
import time
from collections import Counter
from pathlib import Path

from trainjob.scripts.diagnosis import Diagnosis, diagnose
from trainjob.scripts.site import Site

_KINDS = {"error": "errors", "warning": "warnings", "note": "notes"}


def main(folder: Path, verdicts: Path) -> int:
    """Print the figures; returns 0 if all promises are kept."""
    with verdicts.open(encoding="utf-8", newline="") as file:
        rows = [(row, path) for row in csv.DictReader(file, delimiter="\t") if (path := _file(folder, row)) is not None]
    if not rows:
        sys.exit(f"none of the files of {verdicts} is in {folder}")
    before = time.perf_counter()
    diagnoses = [diagnose(path, Site()) for _, path in rows]
    seconds = time.perf_counter() - before
    figures: dict[str, Counter[str]] = {kind: Counter() for kind in _KINDS}
    for (row, _), diagnosis in zip(rows, diagnoses, strict=True):
        _compare(row, diagnosis, figures)
    print(f"\n{len(rows)} files, {seconds:.2f} s ({1000 * seconds / len(rows):.0f} ms each)")
    for kind, counts in figures.items():
        found, expected, both = counts["found"], counts["expected"], counts["both"]
        shares = f"recall {_share(both, expected)}, precision {_share(both, found)}"
        print(f"{kind + 's':9} {expected:4} expected, {found:4} found: {shares}")
    errors, warnings = figures["error"], figures["warning"]
    kept = (
        errors["both"] >= 0.95 * max(errors["expected"], errors["found"])
        and warnings["both"] >= 0.9 * warnings["expected"]
    )
    return 0 if kept else 1


def _file(folder: Path, row: dict[str, str]) -> Path | None:
    name = f"{row['repo']}/{row['path']}"
    return next((path for path in (folder / name, folder / name.replace("/", "__")) if path.is_file()), None)


def _compare(row: dict[str, str], diagnosis: Diagnosis, figures: dict[str, Counter[str]]) -> None:
    """Count what agrees, and print what does not."""
    differences = []
    anywhere = {finding.code for finding in diagnosis.findings}
    for kind, column in _KINDS.items():
        expected = {code.partition("@")[0] for code in row[column].split(",") if code}
        found = {finding.code for finding in diagnosis.findings if finding.severity.value == kind}
        # A code whose weight alone differs was found, and counts as wrong only among errors.
        both = expected & (found if kind == "error" else anywhere)
        figures[kind].update(expected=len(expected), found=len(found | both), both=len(both))
        missing, more = sorted(expected - both), sorted(found - expected)
        if kind != "note":
            differences.extend([f"  {kind}s missed: {', '.join(missing)}"] if missing else [])
            differences.extend([f"  {kind}s beyond the table: {', '.join(more)}"] if more else [])
    if differences:
        print(f"{row['repo']}/{row['path']}", *differences, sep="\n")


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
