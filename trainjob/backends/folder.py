"""Creates run directories: complete under their names, or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from trainjob.backends import project as projects
from trainjob.backends import trust
from trainjob.backends.project import Project, Selection
from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records.files import sync_folder, write_atomically
from trainjob.render.rendered import Rendered

# Whatever the umask is, only the owner may write to a folder from which code is executed.
_OWN_MODE = 0o755


class FolderError(UserError):
    """The run directory can't be created."""

    code = "run-directory"


def create(
    target: Path, rendered: Rendered, project: Project | None, selection: Selection | None, share: str = "none"
) -> RunPaths:
    """Return the new run directory `target`, filled under another name and then moved into place.

    `share` is the cluster file's: who else may read it.

    Raises FolderError (not writable, disk full, name taken) and leaves nothing behind.
    """
    target = Path(os.path.abspath(target))
    staging = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging.mkdir(mode=0o700)
        _fill(RunPaths(staging), rendered, project, selection)
        staging.chmod(trust.MODES[share])
        _move(staging, target)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise FolderError(*_why(error, target)) from error
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return RunPaths(target)


def _fill(paths: RunPaths, rendered: Rendered, project: Project | None, selection: Selection | None) -> None:
    for folder in (paths.code, paths.logs, paths.checkpoints):
        folder.mkdir(mode=_OWN_MODE)
    _copy_runtime(paths.code / "trainjob")
    if project is not None and selection is not None:
        projects.copy(project, selection, paths.project)
    _write_rendered(paths, rendered)


def write_again(paths: RunPaths, rendered: Rendered) -> None:
    """Rewrite the rendered files of an existing run, and our runtime with them.

    Another release may have made the run, and a job script refuses a shell library that it was not rendered with.
    """
    fresh, old = paths.code / ".trainjob.part", paths.code / ".trainjob.old"
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    _copy_runtime(fresh)
    if (paths.code / "trainjob").exists():
        (paths.code / "trainjob").replace(old)
    fresh.replace(paths.code / "trainjob")
    shutil.rmtree(old, ignore_errors=True)
    _write_rendered(paths, rendered)


def _write_rendered(paths: RunPaths, rendered: Rendered) -> None:
    for name, file in rendered.files.items():
        (paths.folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(paths.folder / name, file.content, file.mode)


def _copy_runtime(target: Path) -> None:
    target.mkdir(mode=_OWN_MODE)
    projects.copy_file(package.folder() / "__init__.py", target / "__init__.py")
    for name in package.RUNTIME_PACKAGES:
        _copy_package(package.folder() / name, target / name)


def _copy_package(source: Path, target: Path) -> None:
    # shutil.copytree would merge the errors into one that no longer says "disk full".
    target.mkdir(mode=_OWN_MODE)
    for entry in sorted(source.iterdir()):
        if entry.is_dir() and entry.name != "__pycache__":
            _copy_package(entry, target / entry.name)
        elif entry.is_file():
            projects.copy_file(entry, target / entry.name)


def _move(staging: Path, target: Path) -> None:
    if os.path.lexists(target) and not _is_free_to_take(target):
        raise FolderError(f"{target} already exists and is not an empty folder", "choose another name")
    staging.replace(target)
    sync_folder(target.parent)


def _is_free_to_take(target: Path) -> bool:
    # A shell in this working folder would be left in a folder that no longer exists.
    is_plain = target.is_dir() and not target.is_symlink()
    return is_plain and not any(target.iterdir()) and not target.samefile(".")


def _why(error: OSError, target: Path) -> tuple[str, str]:
    """Return the error with its cure."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space is left for run directory {target}", "free some (`trainjob prune`), or change runs_dir"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        text = f"run directory {target} can't be written ({error.strerror})"
        return text, "set runs_dir to a folder that you may write"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"run directory {target} can't be created: a part of its path is a file", "Set runs_dir to a folder"
    return f"run directory {target} can't be created: {error.strerror}", "Set runs_dir to another folder"
