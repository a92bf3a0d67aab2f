"""Proofs that a script resumes: kept in the user's data folder, valid until a file changes that the script imports.

One file for each script of a project, and each cluster that it was proved on. The digests are of what ran, so edits
while `verify` ran count as changes.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainjob.check.script import script_of
from trainjob.contract import clock
from trainjob.contract.paths import RunPaths, home
from trainjob.planning.words import quantity
from trainjob.records import typed, updates
from trainjob.records.files import DamagedError, only_owner_writes, write_json
from trainjob.requests.prepared import Prepared

_MOST_PROOFS = 200  # of all projects; the oldest go
_MOST_NAMED = 3


@dataclass(frozen=True)
class ResumeProof:
    """The verdict of `verify --resume` about one script."""

    proved_at: float  # seconds since 1970
    command: Sequence[str]
    instances: int
    interruptions: int
    codes: Sequence[str]  # of what was lost; none: it resumes
    files: Mapping[str, str]  # path in the project: SHA-256 of a file that the script imported
    cluster: str = ""  # whose jobs it was; "": this machine

    def changed(self, top: Path) -> list[str]:
        """Return which of the files are other ones now in the project `top`, or gone."""
        return [name for name, digest in self.files.items() if _digest(top / name) != digest]


@dataclass(frozen=True)
class KnownProof:
    """A proof, and which of its files have changed since. `--json` prints the fields."""

    proof: ResumeProof
    changed: Sequence[str]

    def __str__(self) -> str:
        """Return it in words, which begin with the day and end with the files that changed."""
        one = self.proof
        day = time.strftime("%-d %b %Y", time.localtime(one.proved_at))
        what = "disproved" if one.codes else "proved"
        lost = f" ({', '.join(one.codes)})" if one.codes else ""
        place = f" on cluster {one.cluster}" if one.cluster else ""
        how = f"{quantity(one.interruptions, 'interruption')} of `{shlex.join(one.command)}`"
        if not self.changed:
            return f"resume {what} on {day}{place}{lost} by {how}; no file that it imports changed since"
        more = len(self.changed) - _MOST_NAMED
        named = ", ".join(self.changed[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"resume {what} on {day}{place}{lost}; {quantity(len(self.changed), 'file')} changed since: {named}"


def keep(prepared: Prepared, run: RunPaths, *, interruptions: int, codes: Sequence[str]) -> None:
    """Keep the proof that the uninterrupted `run` belongs to, unless nothing says which files it imported."""
    cluster = prepared.named_cluster
    where = "" if cluster.cluster.trains_here else cluster.name
    path = _path(prepared, where)
    names = {
        name
        for events in updates.UpdatePaths(run).ranks()
        for event in events
        if event["event"] == updates.IMPORTS
        for name in event["files"]
    }
    if path is None or not names:
        return
    job = prepared.request.job
    proof = ResumeProof(
        proved_at=clock.time(),
        command=job.command or (),
        instances=job.instances or 1,
        interruptions=interruptions,
        codes=codes,
        files={name: _digest(run.project / name) for name in sorted(names)},
        cluster=where,
    )
    with contextlib.suppress(OSError), only_owner_writes():  # a proof that can't be kept is only made again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, typed.to_json(proof))
        kept = sorted(path.parent.glob("*.json"), key=lambda one: one.stat().st_mtime)
        for old in kept[:-_MOST_PROOFS]:
            old.unlink(missing_ok=True)


def known(prepared: Prepared) -> KnownProof | None:
    """Return the newest proof of the job's script, on its cluster or here, one whose files are unchanged before others.

    None for a job without a script, or one that was never verified.
    """
    if not _folder().is_dir():
        return None  # before git is asked for the project's files
    paths = filter(None, (_path(prepared, cluster) for cluster in ("", prepared.named_cluster.name)))
    proofs = [proof for path in paths if (proof := typed.read(ResumeProof, path)) is not None]
    found = [KnownProof(one, one.changed(prepared.project.top)) for one in proofs]
    return max(found, key=lambda one: (not one.changed, one.proof.proved_at), default=None)


def _path(prepared: Prepared, cluster: str) -> Path | None:
    script = script_of(prepared.request, prepared.project, prepared.selection) if prepared.request.job.command else None
    if script is None:
        return None
    import hashlib  # loads OpenSSL, which most plans don't need

    named = "\0".join([str(prepared.project.top), str(script.path), *([cluster] if cluster else [])])
    key = hashlib.sha256(named.encode(errors="surrogateescape")).hexdigest()
    return _folder() / f"{key[:24]}.json"


def _folder() -> Path:
    return home() / "proofs"


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file; "" if there is none."""
    from trainjob.records.checkpoints import sha256_of  # loads OpenSSL

    try:
        return sha256_of(path)
    except (OSError, DamagedError):
        return ""
