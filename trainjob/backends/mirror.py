"""A run directory on another machine and its record on this one: sends, updates, fetches and removes them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainjob.backends.base import Remote, read_submission
from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines import remote_files
from trainjob.machines.machine import Machine
from trainjob.records import job as jobs
from trainjob.records.files import remove_if_there, write_atomically

_ABSENT = 44  # exit code of replace_files.sh


def place(paths: RunPaths, remote: Remote) -> None:
    """Send the run directory, or only the job's files if the rest is already there. Raises UserError."""
    machine = remote.machine
    archive = _archive(path for path in sorted(paths.folder.iterdir()) if path.name.startswith("job"))
    ended = machine.run(package.program_command(__file__, "replace_files", remote.folder), stdin=archive, check=False)
    if ended.code == _ABSENT:
        machine.send(paths.folder, remote.folder)
    elif ended.code != 0:
        raise UserError(
            f"run directory {remote.folder} on {machine.name} can't be written: {ended.stderr.strip()}",
            "free some space there, or set runs_dir to a folder that you may write",
        )


def _archive(files: Iterable[Path]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in files:
            archive.add(path, arcname=path.name)
    return stream.getvalue()


def refresh(runs: Iterable[RunPaths]) -> dict[str, str]:
    """Bring the small files of all remote runs up to date, by one call to each machine.

    Returns, by run folder, why that failed: the record then shows the last state that was seen.
    """
    remote = _by_machine(runs)
    with ThreadPoolExecutor(max_workers=8) as pool:
        failures = pool.map(lambda item: _refresh_on(*item), remote.items())
        return {folder: why for failed in failures for folder, why in failed.items()}


def _by_machine(runs: Iterable[RunPaths]) -> dict[Machine, list[tuple[RunPaths, str]]]:
    remote: dict[Machine, list[tuple[RunPaths, str]]] = {}
    for paths in runs:
        submission = read_submission(paths)
        if submission is not None and submission.remote is not None:
            remote.setdefault(submission.remote.machine, []).append((paths, submission.remote.folder))
    return remote


def _small_files(paths: RunPaths) -> tuple[Path, ...]:
    # The state comes last: a reader of a new state finds the other files up to date.
    return (
        *(paths.attempt, paths.job_id, paths.progress, paths.failure, paths.requeue, paths.stop, paths.step_gone),
        *(paths.excluded_nodes, paths.events),
        *(paths.exit_code, paths.state),
    )


def _refresh_on(machine: Machine, runs: Sequence[tuple[RunPaths, str]]) -> dict[str, str]:
    wanted = [f"{folder}/{path.name}" for paths, folder in runs for path in _small_files(paths)]
    try:
        contents = remote_files.present(machine, [*(folder for _, folder in runs), *wanted])
    except UserError as error:
        return {str(paths.folder): f"state as last seen: {error}" for paths, _ in runs}
    missing = {}
    for paths, folder in runs:
        if folder in contents:
            _take_over(paths, folder, contents)
        else:
            missing[str(paths.folder)] = f"its run directory {folder} on {machine.name} does not exist"
    return missing


def _take_over(paths: RunPaths, folder: str, contents: Mapping[str, bytes]) -> None:
    for path in _small_files(paths):
        content = contents.get(f"{folder}/{path.name}")
        if content is None:
            remove_if_there(path)
        elif not path.is_file() or path.read_bytes() != content:
            write_atomically(path, content)


def _remote(paths: RunPaths) -> Remote | None:
    submission = read_submission(paths)
    return None if submission is None else submission.remote


def refresh_output(paths: RunPaths) -> None:
    """Append the new lines of a remote run's metrics and logs. Raises UserError."""
    if (remote := _remote(paths)) is not None:
        of_ranks = (path for rank in _ranks(paths) for path in (paths.rank_log(rank), paths.rank_times(rank)))
        _refresh_grown(remote, paths, [paths.metrics, paths.scheduler_log, *of_ranks])


def refresh_usage(paths: RunPaths) -> None:
    """Append the new samples of what a remote run's ranks use. Raises UserError."""
    if (remote := _remote(paths)) is not None:
        _refresh_grown(remote, paths, [paths.rank_usage(rank) for rank in _ranks(paths)])


def _ranks(paths: RunPaths) -> range:
    return range(jobs.read(paths.job).plan.topology.instances)


def _refresh_grown(remote: Remote, paths: RunPaths, outputs: Sequence[Path]) -> None:
    copies = {f"{remote.folder}/{path.relative_to(paths.folder)}": path for path in outputs}
    while additions := remote_files.grown(remote.machine, {name: _size(path) for name, path in copies.items()}):
        for name, addition in additions.items():
            _append(copies[name], addition)
        if all(len(addition.content) < remote_files.MOST_BYTES for addition in additions.values()):
            return


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _append(path: Path, addition: remote_files.Grown) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("r+b" if path.exists() else "w+b") as stream:
        stream.truncate(addition.offset)
        stream.seek(addition.offset)
        stream.write(addition.content)


def fetch_checkpoints(paths: RunPaths) -> None:
    """Fetch the newest checkpoint of a remote run, unless it is here already. Raises UserError."""
    remote = _remote(paths)
    if remote is None:
        return
    folder = f"{remote.folder}/{paths.checkpoints.name}"
    names = remote.machine.run(["ls", folder], check=False).text.split()
    complete = sorted(name for name in names if name.startswith("update-"))
    if complete and not (paths.checkpoints / complete[-1]).exists():
        remote.machine.receive(f"{folder}/{complete[-1]}", paths.checkpoints / complete[-1])


def ask_to_stop(paths: RunPaths) -> None:
    """Create the stop file that the ranks look for. Raises UserError."""
    remote = _remote(paths)
    if remote is not None:
        remote.machine.run(["touch", f"{remote.folder}/{paths.stop.name}"])
    paths.stop.touch()


def take_back_stop(paths: RunPaths) -> None:
    """Remove the stop file, which would stop the next attempt. Raises UserError."""
    remote = _remote(paths)
    if remote is not None:
        remote.machine.run(["rm", "-f", f"{remote.folder}/{paths.stop.name}"])
    remove_if_there(paths.stop)


def set_checkpoints_aside(paths: RunPaths) -> None:
    """Rename the checkpoints on the run's machine, so that the next attempt does not see them. Raises UserError."""
    submission = read_submission(paths)
    if submission is None or submission.remote is None:
        return
    machine, there = submission.remote.machine, f"{submission.remote.folder}/{paths.checkpoints.name}"
    names = machine.run(["ls", there], check=False).text.split()
    for name in (name for name in names if name.startswith("update-")):
        machine.run(["rm", "-rf", f"{there}/set-aside-{name}"])
        machine.run(["mv", f"{there}/{name}", f"{there}/set-aside-{name}"])


def remove(paths: RunPaths) -> None:
    """Remove a remote run's directory; its record on this machine is the caller's. Raises UserError."""
    remote = _remote(paths)
    if remote is None:
        return
    parent, _, name = remote.folder.rpartition("/")
    command = package.program_command(__file__, "remove_run", remote.folder, f"{parent}/.{name}.part")
    ended = remote.machine.run(command, check=False)
    if ended.code != 0:
        why = ended.stderr.strip() or "it is not a run directory"
        raise UserError(
            f"{remote.folder} on {remote.machine.name} can't be removed: {why}",
            "remove it there by hand, if it is yours",
        )
