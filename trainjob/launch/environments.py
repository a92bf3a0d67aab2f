"""The ranks' Python environment on a disk of their node, made once before they start.

Python looks for each module in several folders and opens thousands of files. A file system that many nodes share
answers each of these calls slowly, and all ranks of a job make them at once. A copy stays for later runs on the node; a
newer one replaces it unless it is in use.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple

from trainjob.contract import clock
from trainjob.contract.environment import Ranking
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, with_home
from trainjob.launch.host import node_name
from trainjob.records.own import is_own_folder, make_own_folder, open_own

_POLL_S = 0.05
_READERS = 32  # of a folder on a slow file system
# Programs of a virtualenv begin with its interpreter; behind a long path as a shell's `exec`.
_INTERPRETER = re.compile(rb"\A(#!(?:/bin/sh\n'''exec' \"?)?)/[^\n\"]*/bin/python[0-9.]*")


class NoEnvironmentError(UserError):
    """The environment can't be brought to this node."""

    code = "environment"


class Copy(NamedTuple):
    """An environment in use: its folder, and the lock that keeps it from being replaced."""

    folder: Path
    lock: int

    @property
    def python(self) -> str:
        """The interpreter."""
        return str(self.folder / "bin" / "python")

    def variables(self, environ: Mapping[str, str]) -> Dict[str, str]:
        """Return the variables with which programs use this environment, and uv leaves it as it is."""
        path = os.pathsep.join(filter(None, (str(self.folder / "bin"), environ.get("PATH"))))
        ours = str(self.folder)
        return {"PATH": path, "VIRTUAL_ENV": ours, "UV_PROJECT_ENVIRONMENT": ours, "UV_NO_SYNC": "1"}


def on_this_node(stated: Mapping[str, str], paths: RunPaths, project: Path, first: Ranking) -> Copy:
    """Return this node's copy of the environment that the job states, made unless it is there. Raises UserError.

    The launcher of the node's first rank makes it, those of the others wait. `project` is the folder of the job's own
    files, in which the ones of uv are.
    """
    kind = next(name for name in ("uv", "venv", "archive") if name in stated)
    source = project / stated[kind] if kind == "uv" else with_home(stated[kind])
    disk = with_home(stated.get("folder") or os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir())
    if kind == "uv":
        source = source.parent
    state, family = _state(kind, source), _digest(kind, "" if kind == "uv" else str(source))
    family = "trainjob-env-%d-%s" % (os.getuid(), family)
    target = disk / ("%s-%s" % (family, state))
    try:
        make_own_folder(target)
        # flock works here: the disk is the node's own.
        lock = open_own(target.with_name("%s.lock" % target.name))
        made = _Making(kind, source, target / "env", paths.packed_environment(state), first)
        while not _is_shared(lock, target):
            if made.is_possible and _is_alone(lock) and not _is_complete(target):
                began = clock.monotonic()
                _remove_older(disk, family, target)
                made.make()
                (target / "complete").touch()
                took = "trainjob: the environment of %s is in %s on %s after %.1f s\n"
                sys.stderr.write(took % (source, target, node_name(), clock.monotonic() - began))
            clock.sleep(_POLL_S)
        if made.is_needed_elsewhere:
            made.pack()
    except OSError as error:
        raise NoEnvironmentError(
            "the environment can't be copied to %s on %s: %s" % (disk, node_name(), error),
            "name a folder on a disk of every node that you may write and that has room: environment.folder",
        ) from None
    return Copy(target / "env", lock)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def _state(kind: str, source: Path) -> str:
    """Return a word that changes with the environment; to walk through it would take as long as to import from it."""
    if kind == "uv":
        lock = source / "uv.lock"
        if not lock.is_file():
            raise NoEnvironmentError("%s does not exist" % lock, "run `uv lock`, and add uv.lock to git")
        # With the folder: uv may install the project itself by a link to it.
        return _digest(str(source), lock.read_text(errors="replace"))
    looked_at = [source]
    if kind == "venv":
        looked_at = [
            source / "pyvenv.cfg",
            source / "bin",
            *map(Path, glob.glob("%s/lib/python*/site-packages" % source)),
        ]
    try:
        found = [os.stat(str(path)) for path in looked_at]
    except OSError as error:
        what = "a virtual environment" if kind == "venv" else "a tar file or squashfs image"
        cure = "environment.%s is the path of %s that every node sees" % (kind, what)
        raise NoEnvironmentError("%s: %s on %s" % (error.filename, error.strerror, node_name()), cure) from None
    if kind == "archive" and not stat.S_ISREG(found[0].st_mode):
        raise NoEnvironmentError("%s is not a file on %s" % (source, node_name()), "name the archive itself")
    return _digest(*("%d %d" % (one.st_mtime_ns, one.st_size) for one in found))


def _is_complete(target: Path) -> bool:
    return (target / "complete").exists()


def _is_shared(lock: int, target: Path) -> bool:
    """Return whether the copy is there, with the lock shared; else leave the lock to others."""
    fcntl.flock(lock, fcntl.LOCK_SH)
    if _is_complete(target):
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def _is_alone(lock: int) -> bool:
    # No launcher waits for the exclusive lock: its holder keeps a shared one for as long as it lives.
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_older(disk: Path, family: str, target: Path) -> None:
    """Remove copies of earlier states that no run uses."""
    for name in glob.glob(str(disk / family) + "-*.lock"):
        folder = Path(name[: -len(".lock")])
        if folder == target or not is_own_folder(folder):
            continue
        try:
            lock = open_own(Path(name))
        except OSError:  # another user's, under a name of ours
            continue
        if _is_alone(lock):
            (folder / "complete").unlink() if _is_complete(folder) else None
            shutil.rmtree(str(folder), ignore_errors=True)
        os.close(lock)


class _Making:
    """The way in which one node gets the environment: from an archive, or on the first node from its source."""

    def __init__(self, kind: str, source: Path, folder: Path, packed: Path, first: Ranking) -> None:
        self._kind, self._source, self._folder, self._packed = kind, source, folder, packed
        self._is_first_node, self._is_first_here = first.rank == 0, first.local_rank == 0
        self.is_needed_elsewhere = (
            self._is_first_node and kind != "archive" and first.local_world_size < first.world_size
        )

    @property
    def is_possible(self) -> bool:
        """Whether this launcher must create the copy and can: it needs an archive, or the pack from the first node."""
        return self._is_first_here and (self._is_first_node or self._kind == "archive" or self._packed.exists())

    def make(self) -> None:
        """Fill the folder of the environment."""
        for left in (self._folder, self._folder.with_name("unpacked")):
            shutil.rmtree(str(left), ignore_errors=True)
        if self._kind == "archive":
            self._unpack(self._source)
        elif not self._is_first_node:
            self._unpack(self._packed)
        elif self._kind == "venv":
            _copy(self._source, self._folder)
        else:
            self._sync()
        _refuse_links(self._folder, self._source)
        _keep_plain(self._folder)
        use_own_interpreter(self._folder / "bin")
        if not (self._folder / "bin" / "python").exists():
            cure = (
                "pack or name the folder that has bin/python, whose interpreter every node must have at the same path"
            )
            raise NoEnvironmentError("%s has no bin/python that runs on %s" % (self._source, node_name()), cure)

    def pack(self) -> None:
        """Leave one file from which the other nodes take the environment."""
        if not self._packed.exists():
            part = "%s.%d.part" % (self._packed, os.getpid())
            _run(["tar", "-cf", part, "-C", str(self._folder), "."], "pack %s" % self._folder)
            os.replace(part, str(self._packed))

    def _unpack(self, archive: Path) -> None:
        unpacked = self._folder.with_name("unpacked")
        with open(str(archive), "rb") as stream:
            is_squashfs = stream.read(4) == b"hsqs"
        if is_squashfs:
            _unpack_image(archive, unpacked)
        else:
            unpacked.mkdir()
            _run(["tar", "-xf", str(archive), "-C", str(unpacked)], "unpack %s" % archive)
        # Packed from within the folder, or from above it, where notes and what macOS adds may lie beside it.
        inside = [unpacked, *unpacked.iterdir()]
        found = [one for one in inside if os.path.lexists(str(one / "bin"))]
        if len(found) > 1 and found[0] != unpacked:
            raise NoEnvironmentError(
                "%s has several environments: %s" % (archive, ", ".join(sorted(one.name for one in found))),
                "pack the one that the job needs",
            )
        os.rename(str((found or inside)[0]), str(self._folder))

    def _sync(self) -> None:
        uv = shutil.which("uv")
        if uv is None:
            raise NoEnvironmentError(
                "uv is not found on %s" % node_name(),
                "install it there (pip install uv), or make the environment once and name it: environment.venv",
            )
        words = [uv, "sync", "--frozen", "--no-progress", "--project", str(self._source)]
        environ = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "UV_NO_SYNC")}
        _run(words, "install uv.lock", {**environ, "UV_PROJECT_ENVIRONMENT": str(self._folder)})


def _unpack_image(image: Path, folder: Path) -> None:
    what = "unpack %s" % image
    if shutil.which("unsquashfs"):
        _run(["unsquashfs", "-no-progress", "-no-xattrs", "-d", str(folder), str(image)], what)
        return
    unmount = next(filter(shutil.which, ("fusermount3", "fusermount")), None)
    if not shutil.which("squashfuse") or unmount is None:
        raise NoEnvironmentError(
            "%s is a squashfs image, and neither unsquashfs nor squashfuse with fusermount is found on %s"
            % (image, node_name()),
            "install squashfs-tools on every node, or pack a tar file: environment.archive",
        )
    mounted = folder.with_name("mounted")
    mounted.mkdir(exist_ok=True)
    _run(["squashfuse", str(image), str(mounted)], what)
    try:
        _copy(mounted, folder)
    finally:
        _run([unmount, "-u", str(mounted)], "unmount %s" % mounted)


def _run(words: List[str], what: str, environ: "Mapping[str, str]" = os.environ) -> None:
    ended = subprocess.run(words, check=False, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if ended.returncode:
        raise NoEnvironmentError("%s can't %s on %s" % (words[0], what, node_name()), "see its output above")


def _copy(source: Path, folder: Path) -> None:
    """Copy a folder, many files at once, because each waits for the file system."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_READERS) as pool:
        copies = []
        for name, folders, files in os.walk(str(source)):
            here = folder / os.path.relpath(name, str(source))
            here.mkdir()
            links = [one for one in folders if os.path.islink(os.path.join(name, one))]
            copies += [pool.submit(_copy_file, os.path.join(name, one), str(here / one)) for one in (*files, *links)]
        for one in copies:
            one.result()


def _copy_file(source: str, target: str) -> None:
    facts = os.lstat(source)
    if stat.S_ISLNK(facts.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISREG(facts.st_mode):
        shutil.copyfile(source, target)
        os.chmod(target, stat.S_IMODE(facts.st_mode))
        os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # by which Python knows its compiled modules


def _refuse_links(folder: Path, source: Path) -> None:
    """Raise NoEnvironmentError where a folder of the copy is a link to one outside, which would be written to."""
    ours = Path(os.path.realpath(str(folder.parent))) / folder.name
    for path in (
        folder,
        *(one for pattern in ("bin", "lib*", "lib*/python*", "lib*/python*/*") for one in folder.glob(pattern)),
    ):
        place = Path(os.path.realpath(str(path)))
        if path.is_symlink() and place.is_dir() and place != ours and ours not in place.parents:
            raise NoEnvironmentError(
                "%s is no environment that can be copied: in it, %s is a link to %s"
                % (source, os.path.relpath(str(path), str(folder.parent)), place),
                "name or pack the folder itself that the link leads to (tar -h)",
            )


def _keep_plain(folder: Path) -> None:
    """Keep files, folders and links alone, all of this user's, and no right that a program would pass on."""
    for name, folders, files in os.walk(str(folder)):
        for path in (name, *(os.path.join(name, one) for one in (*folders, *files))):
            facts = os.lstat(path)
            if not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode) or stat.S_ISLNK(facts.st_mode)):
                os.unlink(path)
                continue
            if facts.st_uid != os.getuid():  # root unpacks what an archive says
                os.chown(path, os.getuid(), os.getgid(), follow_symlinks=False)
            if stat.S_IMODE(facts.st_mode) & 0o7000 and not stat.S_ISLNK(facts.st_mode):
                os.chmod(path, stat.S_IMODE(facts.st_mode) & 0o777)


def use_own_interpreter(programs: Path) -> None:
    """Have the environment's programs, such as torchrun, run in this copy."""
    ours = os.fsencode(str(programs / "python"))
    for path in programs.glob("*"):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > 1 << 20:
            continue
        content = path.read_bytes()
        changed = _INTERPRETER.sub(lambda match: match.group(1) + ours, content, count=1)
        if changed != content:
            # In the place of the file, whose content may have other names: a hard link into a cache.
            # Under a name that is new: the environment may have a link under any other.
            descriptor, written = tempfile.mkstemp(dir=str(programs))
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(changed)
            shutil.copymode(str(path), written)
            os.replace(written, str(path))
