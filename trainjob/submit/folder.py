"""Makes a run directory: whole under its name, or not there at all."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import trainjob
from trainjob.contract.errors import UserError
from trainjob.contract.files import sync_folder, write_atomically
from trainjob.contract.paths import RunPaths
from trainjob.render.rendered import Rendered
from trainjob.submit import project as projects
from trainjob.submit.project import Project, Selection

# The rooms that run on the cluster: every run carries the code it ran.
_RUNTIME_ROOMS = ("contract", "data", "train")


class FolderError(UserError):
    """The run directory can't be made."""


def create(target: Path, rendered: Rendered, project: Project | None, selection: Selection | None) -> RunPaths:
    """Return the new run directory `target`, filled beside and moved into place.

    Raises FolderError (not writable, disk full, name taken) with nothing left behind.
    """
    target = Path(os.path.abspath(target))
    staging = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging.mkdir()
        _fill(RunPaths(staging), rendered, project, selection)
        _move(staging, target)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise FolderError(_why(error, target)) from error
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return RunPaths(target)


def refuse_what_slurm_misreads(target: Path, script: str) -> None:
    """Raise FolderError for a folder in which Slurm would look for a job's output under another name."""
    where = os.path.abspath(target)
    if script.endswith(".sbatch") and "\\" in where:
        raise FolderError(f"{where} has a backslash in its path, which Slurm leaves out of it: choose another folder")


def _fill(paths: RunPaths, rendered: Rendered, project: Project | None, selection: Selection | None) -> None:
    for folder in (paths.code, paths.logs, paths.checkpoints):
        folder.mkdir()
    _copy_runtime(paths.code / "trainjob")
    if project is not None and selection is not None:
        projects.copy(project, selection, paths.project)
    write_rendered(paths, rendered)


def write_rendered(paths: RunPaths, rendered: Rendered) -> None:
    """Write the rendered files into a run directory, each atomically."""
    for name, file in rendered.files.items():
        (paths.folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(paths.folder / name, file.content, file.mode)


def _copy_runtime(target: Path) -> None:
    source = Path(trainjob.__file__).parent
    target.mkdir()
    shutil.copy2(source / "__init__.py", target)
    for room in _RUNTIME_ROOMS:
        _copy_room(source / room, target / room)


def _copy_room(source: Path, target: Path) -> None:
    # shutil.copytree would gather the errors into one that no longer says "disk full".
    target.mkdir()
    for entry in sorted(source.iterdir()):
        if entry.is_dir() and entry.name != "__pycache__":
            _copy_room(entry, target / entry.name)
        elif entry.is_file():
            shutil.copy2(entry, target)


def _move(staging: Path, target: Path) -> None:
    if os.path.lexists(target) and not _is_free_to_take(target):
        raise FolderError(f"{target} is already there and not an empty folder: choose another one")
    staging.replace(target)
    sync_folder(target.parent)


def _is_free_to_take(target: Path) -> bool:
    # A shell that stands in the folder would be left standing in one that is gone.
    is_plain = target.is_dir() and not target.is_symlink()
    return is_plain and not any(target.iterdir()) and not target.samefile(".")


def _why(error: OSError, target: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space is left for run directory {target}: free some (`trainjob prune`), or set runs_dir elsewhere"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"run directory {target} can't be written ({error.strerror}): set runs_dir to a folder that you may write"
        )
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"run directory {target} can't be made: a part of its path is a file. Set runs_dir to a folder"
    return f"run directory {target} can't be made: {error.strerror}"
