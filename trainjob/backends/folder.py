"""Run directories: created complete under their names or not at all, and used only where no other user can write.

What is in them is executed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import struct
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

from trainjob.backends import project as projects
from trainjob.backends.project import Project, Selection
from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines.machine import Machine
from trainjob.records.files import only_owner_writes, sync_folder, write_atomically

if TYPE_CHECKING:
    from trainjob.render.rendered import Rendered

# What `share` in a cluster file gives a run directory. Only its owner ever writes in it.
MODES = {"none": 0o700, "group": 0o750, "all": 0o755}
_32_BITS = 0xFFFFFFFF


class FolderError(UserError):
    """The run directory can't be created."""

    code = "run-directory"

    @classmethod
    def of(cls, error: OSError, target: Path) -> FolderError:
        """Return the error about `target`, with its cure."""
        return cls(*_why(error, target))


@only_owner_writes()
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
        paths = RunPaths(staging)
        for folder in (paths.code, paths.logs, paths.checkpoints):
            folder.mkdir()
        # Slurm would create it with the modes of the user's umask.
        paths.scheduler_log.touch()
        _copy_runtime(paths.code / "trainjob")
        if project is not None and selection is not None:
            projects.copy(project, selection, paths.project)
        write_rendered(paths, rendered)
        staging.chmod(MODES[share])
        _refuse_taken(target)
        staging.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise FolderError.of(error, target) from error
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return RunPaths(target)


@only_owner_writes()
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
    write_rendered(paths, rendered)


# What a run directory holds of the place where it ran: jobs, nodes, and requests to ranks.
_OF_ITS_PLACE = frozenset(
    ["job.sh", "job.sbatch", "job_id", "excluded_nodes", "stop", "requeue", "step_gone", "hosts", "partition"]
)


@only_owner_writes()
def move_in(paths: RunPaths, rendered: Rendered, share: str) -> None:
    """Make the copy of a run directory one of its new place, whose job `rendered` is. Raises OSError.

    What the user's own programs have written stays.
    """
    for path in paths.folder.iterdir():
        if path.is_dir() and path.name in _OF_ITS_PLACE:
            shutil.rmtree(path)
        elif path.name in _OF_ITS_PLACE or (path.name.startswith(".") and path.is_file()):
            path.unlink()
    write_again(paths, rendered)
    paths.folder.chmod(MODES[share])


def write_rendered(paths: RunPaths, rendered: Rendered) -> None:
    """Write the rendered files into the run directory. Raises OSError."""
    for name, file in rendered.files.items():
        (paths.folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(paths.folder / name, file.content, file.mode)


def _copy_runtime(target: Path) -> None:
    # Paths are text here: three hundred files are copied, and each Path takes as long as a call of the kernel.
    source = str(package.folder())
    target.mkdir()
    _copy_module(source, "__init__.py", str(target), compiled=True)
    for name in package.RUNTIME_PACKAGES:
        # Compiled are what the launcher of every rank imports. A task imports torch, which takes much longer.
        compiled = name in ("contract", "records", "launch")
        _copy_package(f"{source}/{name}", f"{target}/{name}", compiled=compiled)


def _copy_package(source: str, target: str, *, compiled: bool) -> None:
    # shutil.copytree would merge the errors into one that no longer says "disk full".
    os.mkdir(target)
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "__pycache__":
            _copy_package(entry.path, f"{target}/{entry.name}", compiled=compiled)
        elif entry.is_file():
            _copy_module(source, entry.name, target, compiled=compiled)


def _copy_module(source: str, name: str, target: str, *, compiled: bool) -> None:
    """Copy a file of the runtime into the folder `target`, with its bytecode.

    Linking it from another run would save a third of the time, and let that run's folder decide what runs in this one.
    """
    projects.copy_file(f"{source}/{name}", f"{target}/{name}")
    content = _bytecode(f"{source}/{name}") if compiled and name.endswith(".py") else None
    if content is not None:
        kept = cache_from_source(f"{target}/{name}", optimization="")
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(kept))
        with open(kept, "wb") as copied:  # unbuffered, a disk that fills up would keep a part without an error
            copied.write(content)


def _bytecode(module: str) -> bytes | None:
    """Return what this release of Python reads in place of `module`; None if there is nothing.

    Python takes it only in the release that wrote it, and for a source of the time and size that it was compiled from:
    the first sixteen bytes say so. Without it a rank compiles the module, so nothing here is an error.
    """
    with contextlib.suppress(OSError, NotImplementedError):
        status = os.stat(module)
        begins = MAGIC_NUMBER + struct.pack("<3I", 0, int(status.st_mtime) & _32_BITS, status.st_size & _32_BITS)
        kept = cache_from_source(module, optimization="")
        with contextlib.suppress(OSError), open(kept, "rb", buffering=0) as file:
            content = file.read()
            if content.startswith(begins):
                return content
        if os.access(os.path.dirname(module), os.W_OK) and not sys.dont_write_bytecode:
            import py_compile  # once after each installation

            timestamp = py_compile.PycInvalidationMode.TIMESTAMP
            made = py_compile.compile(module, kept, optimize=0, quiet=2, invalidation_mode=timestamp)
            return None if made is None else Path(kept).read_bytes()
    return None


def _refuse_taken(target: Path) -> None:
    # A shell in an empty working folder would be left in a folder that no longer exists.
    is_plain = target.is_dir() and not target.is_symlink()
    is_free = is_plain and not any(target.iterdir()) and not target.samefile(".")
    if os.path.lexists(target) and not is_free:
        raise FolderError(f"{target} already exists and is not an empty folder", "choose another name")


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


class ForeignRunError(UserError):
    """A run directory in which another user has put, or could have put, files that we would execute."""

    code = "foreign-run"


def refuse_foreign(folder: Path) -> None:
    """Raise ForeignRunError unless `folder` is a folder, no link, of this user, in which nobody else may write."""
    try:
        status = folder.lstat()
    except OSError as error:
        raise UserError(
            f"run directory {folder} can't be read: {error.strerror}", "`trainjob list` shows the runs"
        ) from None
    if stat.S_ISLNK(status.st_mode):
        raise ForeignRunError(
            f"run directory {folder} is a link, and a run is used only under its own path",
            f"Either you put it there, or another user has replaced your run. Look at it: ls -ld {folder}",
        )
    if status.st_uid != os.geteuid():
        owner, user = (_user_name(uid) for uid in (status.st_uid, os.geteuid()))
        raise ForeignRunError(
            f"run directory {folder} belongs to {owner}, and you are {user}",
            "Only its owner can use it: trainjob would execute what is in it",
        )
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise ForeignRunError(
            f"run directory {folder} has mode {stat.S_IMODE(status.st_mode):04o}: others can change what it executes",
            f"If you trust what is in it: chmod go-w {folder}",
        )


def refuse_foreign_content(machine: Machine, folder: str) -> None:
    """Raise ForeignRunError where others could have replaced what is executed in the run directory on `machine`."""
    ended = machine.run(package.program_command(__file__, "foreign_files", folder), check=False)
    if ended.code != 0:
        listed = ended.text.strip().splitlines() or [ended.stderr.strip() or "it can't be read"]
        raise ForeignRunError(
            f"run directory {folder} on {machine.name} holds what others can have put there: {'; '.join(listed)}",
            f"If you trust it: chmod -R go-w {folder}. Remove links, and files of other users",
        )


def _user_name(uid: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
