"""A run directory on another machine and the record of it here: sent whole, brought up to date, fetched, removed."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainjob.contract import job as jobs
from trainjob.contract.errors import UserError
from trainjob.contract.files import remove_if_there, write_atomically
from trainjob.contract.paths import RunPaths
from trainjob.submit import remote_files
from trainjob.submit.base import Remote, read_submission
from trainjob.submit.machine import Machine

_ABSENT = 44
# Into a run directory that is whole; what an earlier attempt was asked to do is over.
_REPLACE = 'cd "$1" 2>/dev/null || exit 44; rm -f stop; exec tar -xf -'
_REMOVE = 'if [ -e "$1" ]; then [ -f "$1/job.json" ] || exit 45; rm -rf -- "$1"; fi; rm -rf -- "$2"'


def place(paths: RunPaths, remote: Remote) -> None:
    """Make the run directory over there what the one here is; its files are replaced where it is whole already.

    Raises UserError.
    """
    machine = remote.machine
    archive = _archive(path for path in sorted(paths.folder.iterdir()) if path.name.startswith("job"))
    ended = machine.run(["sh", "-c", _REPLACE, "sh", remote.folder], stdin=archive, check=False)
    if ended.code == _ABSENT:
        machine.send(paths.folder, remote.folder)
    elif ended.code != 0:
        raise UserError(f"run directory {remote.folder} on {machine.name} can't be written: {ended.stderr.strip()}")


def _archive(files: Iterable[Path]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in files:
            archive.add(path, arcname=path.name)
    return stream.getvalue()


def refresh(runs: Iterable[RunPaths]) -> dict[str, str]:
    """Bring the words of all runs up to date, in one call a machine; of runs that are here nothing is asked.

    Return why that failed, by run folder: what is here is then what was last known.
    """
    placed = _by_machine(runs)
    with ThreadPoolExecutor(max_workers=8) as pool:
        failed = pool.map(lambda item: _refresh_on(*item), placed.items())
        return {folder: why for some in failed for folder, why in some.items()}


def _by_machine(runs: Iterable[RunPaths]) -> dict[Machine, list[tuple[RunPaths, str]]]:
    placed: dict[Machine, list[tuple[RunPaths, str]]] = {}
    for paths in runs:
        submission = read_submission(paths)
        if submission is not None and submission.remote is not None:
            placed.setdefault(submission.remote.machine, []).append((paths, submission.remote.folder))
    return placed


def _words_of(paths: RunPaths) -> tuple[Path, ...]:
    # The state last: who reads the new one finds the rest as new.
    return (
        *(paths.attempt, paths.job_id, paths.progress, paths.failure, paths.requeue, paths.stop),
        *(paths.exit_code, paths.state),
    )


def _refresh_on(machine: Machine, runs: Sequence[tuple[RunPaths, str]]) -> dict[str, str]:
    asked = [f"{there}/{path.name}" for paths, there in runs for path in _words_of(paths)]
    try:
        found = remote_files.present(machine, [*(there for _, there in runs), *asked])
    except UserError as error:
        return {str(paths.folder): f"what was last known: {error}" for paths, _ in runs}
    gone = {}
    for paths, there in runs:
        if there in found:
            _take_over(paths, there, found)
        else:
            gone[str(paths.folder)] = f"its run directory {there} on {machine.name} is not there"
    return gone


def _take_over(paths: RunPaths, there: str, found: Mapping[str, bytes]) -> None:
    for path in _words_of(paths):
        content = found.get(f"{there}/{path.name}")
        if content is None:
            remove_if_there(path)
        elif not path.is_file() or path.read_bytes() != content:
            write_atomically(path, content)


def refresh_output(paths: RunPaths) -> None:
    """Add to the metrics and logs of a run what they have more over there. Raises UserError."""
    submission = read_submission(paths)
    if submission is None or submission.remote is None:
        return
    machine, there = submission.remote.machine, submission.remote.folder
    local = {f"{there}/{path.relative_to(paths.folder)}": path for path in _outputs_of(paths)}
    while grown := remote_files.grown(machine, {name: _size(path) for name, path in local.items()}):
        for name, more in grown.items():
            _append(local[name], more)
        if all(len(more.content) < remote_files.MOST_BYTES for more in grown.values()):
            return


def _outputs_of(paths: RunPaths) -> list[Path]:
    ranks = range(jobs.read(paths.job).plan["topology"]["instances"])
    return [paths.metrics, paths.scheduler_log, *(paths.rank_log(rank) for rank in ranks)]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _append(path: Path, more: remote_files.Grown) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("r+b" if path.exists() else "w+b") as stream:
        stream.truncate(more.offset)
        stream.seek(more.offset)
        stream.write(more.content)


def fetch_checkpoints(paths: RunPaths) -> None:
    """Fetch the newest checkpoint that is not here yet. Raises UserError."""
    submission = read_submission(paths)
    if submission is None or submission.remote is None:
        return
    machine, there = submission.remote.machine, submission.remote.folder
    listed = machine.run(["sh", "-c", 'cd "$1" && ls', "sh", f"{there}/{paths.checkpoints.name}"], check=False).text
    complete = sorted(name for name in listed.split() if name.startswith("update-"))
    if complete and not (paths.checkpoints / complete[-1]).exists():
        machine.receive(f"{there}/{paths.checkpoints.name}/{complete[-1]}", paths.checkpoints / complete[-1])


def ask_to_stop(paths: RunPaths) -> None:
    """Make the stop file, where the ranks look for it. Raises UserError."""
    submission = read_submission(paths)
    if submission is not None and submission.remote is not None:
        submission.remote.machine.run(["touch", f"{submission.remote.folder}/{paths.stop.name}"])
    paths.stop.touch()


def take_back_stop(paths: RunPaths) -> None:
    """Remove the stop file, of which the next attempt must not hear. Raises UserError."""
    submission = read_submission(paths)
    if submission is not None and submission.remote is not None:
        submission.remote.machine.run(["rm", "-f", f"{submission.remote.folder}/{paths.stop.name}"])
    remove_if_there(paths.stop)


def remove(paths: RunPaths) -> None:
    """Remove the run directory over there; the one here is the caller's. Raises UserError."""
    submission = read_submission(paths)
    if submission is None or submission.remote is None:
        return
    machine, there = submission.remote.machine, submission.remote.folder
    folder, _, name = there.rpartition("/")
    ended = machine.run(["sh", "-c", _REMOVE, "sh", there, f"{folder}/.{name}.part"], check=False)
    if ended.code != 0:
        said = ended.stderr.strip() or "it is not a run directory"
        raise UserError(f"{there} on {machine.name} can't be removed: {said}")
