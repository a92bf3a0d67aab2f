"""A run directory on another machine and its record on this one: sends, updates, fetches and removes them."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from trainjob.backends.base import machine_of, place_of
from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines import remote_files
from trainjob.machines.access import HERE
from trainjob.machines.machine import Machine
from trainjob.machines.side_by_side import side_by_side
from trainjob.records import job as jobs
from trainjob.records import roles as role_records
from trainjob.records.files import for_owner, only_owner_writes, remove_if_there, write_atomically
from trainjob.records.submission import Remote, Submission
from trainjob.records.updates import UpdatePaths

_ABSENT = 44  # exit code of replace_files.sh
# Reading a run directory with large checkpoints.
_READ_S = 4 * 3600.0


def _there(submission: Submission | None) -> tuple[Machine, str] | None:
    """Return the machine of a remote run and its run directory there; None for a run of this machine."""
    remote = None if submission is None else submission.remote
    return None if remote is None else (machine_of(remote), remote.folder)


def place(paths: RunPaths, remote: Remote) -> None:
    """Send the run directory, or only the job's files if the rest is already there. Raises UserError."""
    import tarfile

    machine, stream = machine_of(remote), io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(paths.folder.glob("job*")):
            archive.add(path, arcname=path.name)
    command = package.program_command(__file__, "replace_files", remote.folder)
    ended = machine.run(command, stdin=stream.getvalue(), check=False)
    if ended.code == _ABSENT:
        machine.send(paths.folder, remote.folder)
    elif ended.code != 0:
        raise UserError(
            f"run directory {remote.folder} on {machine.name} can't be written: {ended.stderr.strip()}",
            "free some space there, or set runs_dir to a folder that you may write",
        )


def refresh(runs: Iterable[tuple[RunPaths, Submission]]) -> dict[str, str]:
    """Bring the small files of all remote runs up to date, by one call to each machine.

    Returns, by run folder, why that failed: the record then shows the last state that was seen.
    """
    remote: dict[Machine, list[tuple[RunPaths, str]]] = {}
    for paths, submission in runs:
        there = _there(submission)
        if there is not None:
            remote.setdefault(there[0], []).append((paths, there[1]))
    failures = side_by_side(lambda item: _refresh_on(*item), remote.items())
    return {folder: why for failed in failures for folder, why in failed.items()}


def _refresh_on(machine: Machine, runs: Sequence[tuple[RunPaths, str]]) -> dict[str, str]:
    wanted = [f"{folder}/{path.relative_to(paths.folder)}" for paths, folder in runs for path in _small_files(paths)]
    try:
        contents = remote_files.present(machine, [*(folder for _, folder in runs), *wanted])
    except UserError as error:
        return {str(paths.folder): f"state as last seen: {error}" for paths, _ in runs}
    missing = {}
    for paths, folder in runs:
        if folder not in contents:
            missing[str(paths.folder)] = f"its run directory {folder} on {machine.name} does not exist"
            continue
        for path in _small_files(paths):
            content = contents.get(f"{folder}/{path.relative_to(paths.folder)}")
            if content is None:
                remove_if_there(path)
            elif not path.is_file() or path.read_bytes() != content:
                write_atomically(path, content)
    return missing


def _small_files(paths: RunPaths) -> tuple[Path, ...]:
    # The state comes last: a reader of a new state finds the other files up to date.
    return (
        *(paths.attempt, paths.job_id, paths.progress, paths.failure, paths.requeue, paths.stop, paths.step_gone),
        *(paths.excluded_nodes, paths.events, paths.outlived),
        *(server.role_record for server in role_records.of_run(paths)),
        *(paths.exit_code, paths.state),
    )


def refresh_output(paths: RunPaths, submission: Submission | None) -> None:
    """Append the new lines of a remote run's metrics and logs. Raises UserError."""
    _refresh_grown(paths, submission, [paths.metrics, paths.scheduler_log], (paths.rank_log, paths.rank_times))


def refresh_usage(paths: RunPaths, submission: Submission | None) -> None:
    """Append the new samples of what a remote run's ranks use. Raises UserError."""
    _refresh_grown(paths, submission, [], (paths.rank_usage,))


def refresh_updates(paths: RunPaths, submission: Submission | None) -> None:
    """Append what a remote run's ranks have recorded of their updates since the last time. Raises UserError."""
    _refresh_grown(paths, submission, [], (UpdatePaths(paths).rank,))


def _refresh_grown(
    paths: RunPaths,
    submission: Submission | None,
    files: Sequence[Path],
    of_rank: Sequence[Callable[[int], Path]],
) -> None:
    there = _there(submission)
    if there is None:
        return
    machine, folder = there
    ranks = range(jobs.read(paths.job).plan.topology.ranks)
    outputs = [*files, *(file(rank) for rank in ranks for file in of_rank)]
    copies = {f"{folder}/{path.relative_to(paths.folder)}": path for path in outputs}
    while True:
        sizes = {name: path.stat().st_size if path.exists() else 0 for name, path in copies.items()}
        additions = remote_files.grown(machine, sizes)
        for name, addition in additions.items():
            path = copies[name]
            path.parent.mkdir(mode=0o755, exist_ok=True)
            with open(path, "r+b" if path.exists() else "w+b", opener=for_owner) as stream:
                stream.truncate(addition.offset)
                stream.seek(addition.offset)
                stream.write(addition.content)
        if all(len(addition.content) < remote_files.MOST_BYTES for addition in additions.values()):
            return


@only_owner_writes()
def copy(paths: RunPaths, submission: Submission, target: Path) -> None:
    """Copy a run directory from its machine to the new folder `target`, and compare every file. Raises UserError."""
    machine, source = place_of(paths, submission)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        machine.receive(source, target)
    except BaseException as error:
        shutil.rmtree(target.with_name(f".{target.name}.part"), ignore_errors=True)
        if isinstance(error, OSError):
            raise UserError(f"{target.parent} can't be created: {error.strerror}", "Set runs_dir to a folder") from None
        raise
    there, here = _digests(machine, source), _digests(HERE, str(target))
    if there != here:
        shutil.rmtree(target)
        line = min(set(there) ^ set(here), key=lambda one: one.partition("  ")[2])
        raise UserError(
            f"{line.partition('  ')[2]} in {source} on {machine.name} is not what arrived here",
            "See that nothing writes there any more, and try again",
        )


def _digests(machine: Machine, folder: str) -> list[str]:
    return machine.run(package.program_command(__file__, "digests", folder), timeout_s=_READ_S).text.splitlines()


@only_owner_writes()
def fetch_checkpoints(paths: RunPaths, submission: Submission | None) -> None:
    """Fetch the newest checkpoint of a remote run, unless it is here already. Raises UserError."""
    there = _there(submission)
    if there is None:
        return
    machine, names = there[0], _checkpoints_there(paths, *there)
    newest = max(names, default=None)
    if newest is not None and not (paths.checkpoints / newest).exists():
        machine.receive(f"{there[1]}/{paths.checkpoints.name}/{newest}", paths.checkpoints / newest)


def _checkpoints_there(paths: RunPaths, machine: Machine, folder: str) -> list[str]:
    names = machine.run(["ls", f"{folder}/{paths.checkpoints.name}"], check=False).text.split()
    return [name for name in names if name.startswith("update-")]


def ask_to_stop(paths: RunPaths, submission: Submission | None) -> None:
    """Create the stop file that the ranks look for. Raises UserError."""
    there = _there(submission)
    if there is not None:
        there[0].run(["touch", f"{there[1]}/{paths.stop.name}"])
    paths.stop.touch(mode=0o644)


def take_back_stop(paths: RunPaths, submission: Submission | None) -> None:
    """Remove the stop file, which would stop the next attempt. Raises UserError."""
    there = _there(submission)
    if there is not None:
        there[0].run(["rm", "-f", f"{there[1]}/{paths.stop.name}"])
    remove_if_there(paths.stop)


def set_checkpoints_aside(paths: RunPaths, submission: Submission | None) -> None:
    """Rename the checkpoints on the run's machine, so that the next attempt does not see them. Raises UserError."""
    there = _there(submission)
    if there is None:
        return
    machine, folder = there[0], f"{there[1]}/{paths.checkpoints.name}"
    for name in _checkpoints_there(paths, *there):
        machine.run(["rm", "-rf", f"{folder}/set-aside-{name}"])
        machine.run(["mv", f"{folder}/{name}", f"{folder}/set-aside-{name}"])


def remove(submission: Submission | None) -> None:
    """Remove a remote run's directory; its record on this machine is the caller's. Raises UserError."""
    there = _there(submission)
    if there is None:
        return
    machine, folder = there
    parent, _, name = folder.rpartition("/")
    command = package.program_command(__file__, "remove_run", folder, f"{parent}/.{name}.part")
    ended = machine.run(command, check=False)
    if ended.code != 0:
        why = ended.stderr.strip() or "it is not a run directory"
        raise UserError(
            f"{folder} on {machine.name} can't be removed: {why}", "remove it there by hand, if it is yours"
        )
