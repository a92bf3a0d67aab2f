"""Recall, precision and time of `trainjob doctor` on batch files with known verdicts, and how many of them adopt takes.

python benchmarks/batch_scripts.py FOLDER VERDICTS [--prove]

VERDICTS is a table with tabs and the columns repo, path, errors, warnings, notes, whose codes are separated by commas
(CODE@LINE states the line too), adopt, which is yes for a file that can be a job, and arguments, if a file needs some.
FOLDER has the files as REPO/PATH, or with __ for each slash. Nothing is fetched. A file is submitted in FOLDER/REPO.
With --prove each file that can be a job and its job run on a private Slurm, which takes about a minute each.
"""

from __future__ import annotations

import contextlib
import csv
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from batchfiles.adoption.adopt import adopt
from batchfiles.rehearsal.proving import prove
from batchfiles.rules.diagnosis import Diagnosis, diagnose
from batchfiles.slurm.request import SiteFacts
from trainjob.cluster.base import with_directives
from trainjob.cluster.reading import job_from_text
from trainjob.contract.errors import UserError
from trainjob.kinds.lookup import cluster_from_text
from trainjob.planning.build import plan
from trainjob.render.request import Request
from trainjob.requests.prepared import rendered

_KINDS = {"error": "errors", "warning": "warnings", "note": "notes"}


def main(folder: Path, verdicts: Path, *, proves: bool) -> int:
    """Print the figures; returns 0 if all promises are kept."""
    with verdicts.open(encoding="utf-8", newline="") as file:
        rows = [(row, path) for row in csv.DictReader(file, delimiter="\t") if (path := _file(folder, row)) is not None]
    if not rows:
        sys.exit(f"none of the files of {verdicts} is in {folder}")
    before = time.perf_counter()
    diagnoses = [diagnose(path, SiteFacts()) for _, path in rows]
    seconds = time.perf_counter() - before
    figures: dict[str, Counter[str]] = {kind: Counter() for kind in _KINDS}
    for (row, _), diagnosis in zip(rows, diagnoses, strict=True):
        _compare(row, diagnosis, figures)
    print(f"\n{len(rows)} files, {seconds:.2f} s ({1000 * seconds / len(rows):.0f} ms each)")
    for kind, counts in figures.items():
        found, expected, both = counts["found"], counts["expected"], counts["both"]
        shares = f"recall {_share(both, expected)}, precision {_share(both, found)}"
        print(f"{kind + 's':9} {expected:4} expected, {found:4} found: {shares}")
    adoptable = [
        Adoptable(
            path,
            own if (own := folder / row["repo"]).is_dir() else path.parent,
            tuple((row.get("arguments") or "").split()),
        )
        for row, path in rows
        if row.get("adopt") == "yes"
    ]
    kept_promises = _counted("adopted, planned and rendered", adoptable, _refusal)
    if proves:
        adopted = [one for one in adoptable if _refusal(one) is None]
        kept_promises &= _counted("proved by running both", adopted, _unproved)
    errors, warnings = figures["error"], figures["warning"]
    kept = (
        errors["both"] >= 0.95 * max(errors["expected"], errors["found"])
        and warnings["both"] >= 0.9 * warnings["expected"]
        and kept_promises
    )
    return 0 if kept else 1


class Adoptable(NamedTuple):
    """A file that can be a job, the folder in which it is submitted, and its arguments."""

    path: Path
    folder: Path
    arguments: tuple[str, ...]


def _counted(what: str, files: list[Adoptable], fails: Callable[[Adoptable], str | None]) -> bool:
    """Print how many of `files` succeed, and why the others don't; returns whether nine in ten do."""
    failed = [f"  {one.path}: {why}" for one in files if (why := fails(one)) is not None]
    succeeded = len(files) - len(failed)
    print(f"{what}: {succeeded} of {len(files)}: {_share(succeeded, len(files))}", *failed, sep="\n")
    return succeeded >= 0.9 * len(files)


def _refusal(file: Adoptable) -> str | None:
    """Return why a file is no job that can be planned and rendered; None if it is."""
    try:
        adoption = adopt(*file)
        job = job_from_text(adoption.job, "job.yaml")
        cluster = with_directives("cluster", cluster_from_text(str(adoption.cluster), "cluster.yaml"), job)
        rendered(Request(cluster, "cluster.yaml", job, {}, plan("cluster", cluster, job)))
    except UserError as error:
        return str(error)
    return None


def _unproved(file: Adoptable) -> str | None:
    """Return why a file is not proved to be the same as its job; None if it is, or differs because it is wrong."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(file.folder):
        adoption, place = adopt(*file), Path(name)
        (place / "job.yaml").write_text(adoption.job)
        (place / "cluster.yaml").write_text(str(adoption.cluster))
        try:
            job, cluster = place / "job.yaml", str(place / "cluster.yaml")
            proof = prove(file.path, file.path.read_bytes(), file.arguments, job, cluster, lambda _line: None)
        except UserError as error:
            return str(error)
    return next((one.text for one in proof.unexplained(adoption.explained)), None)


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
    words = [word for word in sys.argv[1:] if word != "--prove"]
    if len(words) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(words[0]).absolute(), Path(words[1]), proves="--prove" in sys.argv))
