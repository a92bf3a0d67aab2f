"""The user's project: its top folder, the files that a run copies, and its state in git."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from trainjob.contract.errors import UserError
from trainjob.contract.paths import home, with_home
from trainjob.contract.programs.secret_names import is_code, is_secret_file
from trainjob.machines import process
from trainjob.machines.process import Completed

# Folders that don't belong to a project, outside git.
_NEVER = {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".pytest_cache", ".tox"}
DATA_FILE_MB = 10
_TOTAL_MB = 500
_MOST_FILTERS = 1000
_MB = 1024 * 1024


class Project(NamedTuple):
    """A project, as a run records it. `start` is the working folder, relative to `top`."""

    top: Path
    start: str
    in_git: bool
    secrets_file: str | None = None  # the cluster's, relative to `top`; None if it is elsewhere

    def record(self) -> dict[str, str | None]:
        """Return the commit and the difference of the working tree from it; None outside of git."""
        if not self.in_git:
            return {"top": str(self.top), "commit": None, "diff": None}
        commit = _git(["rev-parse", "HEAD"], self.top, check=False)
        return {
            "top": str(self.top),
            "commit": commit.text.strip() if commit.code == 0 else None,
            "diff": self._diff(),
        }

    def _diff(self) -> str | None:
        off = self._own_programs()
        if off and _git(["config", "--get", off[0]], self.top, off, check=False).code != 0:
            return "git is older than 2.31 and would run filters that the project names, so it is not kept"
        # As `git apply` reads it, whatever the user configures for diffs. Of submodules only the commit: more could be
        # told only by a git that reads the submodule's own configuration.
        plain = ["--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "--submodule=short"]
        words = ["diff", "HEAD", "--no-renames", *plain]
        changed = _git([*words, "--relative", "--name-only", "-z"], self.top, off, check=False).stdout.split(b"\0")
        # What is left out of the copy is left out of the record as well.
        secret = [
            f":(exclude,literal){name}"
            for name in map(os.fsdecode, changed)
            if self._is_secret(name) or self._is_script_with_secret(name)
        ]
        answer = _git([*words, "--", ".", *secret], self.top, off, check=False)
        if len(answer.stdout) > DATA_FILE_MB * _MB:
            return f"larger than {DATA_FILE_MB} MB, so it is not kept"
        if answer.code != 0:
            return None
        from trainjob.contract.programs.secrets_in_shell import secrets_in  # compiles twenty patterns

        # A line that was removed may show one that the file no longer has. All but source code is read, as written in
        # shell: a hunk need not hold the first line, by which a script without a suffix is known.
        return "".join(
            part
            for part in re.split(r"(?m)^(?=diff )", answer.text)
            if is_code(part.partition("\n")[0].rstrip('"')) or not secrets_in(re.sub(r"(?m)^[ +-]", "", part))
        )

    def _own_programs(self) -> list[str]:
        """Return the keys by which the project's own configuration defines programs with names of their choice.

        `git diff` would run filters on each changed file. Those of the user's own configuration, such as Git LFS, stay.
        The first key is none of git's: only a git that knows these pairs answers it. Raises UserError for too many.
        """
        listed: dict[str, None] = {}
        for where in ("--local", "--worktree"):
            words = ["config", where, "--includes", "--name-only", "-z", "--get-regexp", r"^(filter|lfs|hook)\."]
            listed |= dict.fromkeys(os.fsdecode(_git(words, self.top, check=False).stdout).split("\0"))
        names = [name for name in listed if name]
        if len(names) > _MOST_FILTERS:
            raise UserError(
                f"the git configuration of {self.top} has {len(names):,} settings of filters, and at most "
                f"{_MOST_FILTERS:,} can be switched off while its state is recorded",
                "remove those that are not needed: `git config --local --list` shows them",
            )
        return ["trainjob.pairs", *names] if names else []

    def files(self, *, untracked: bool) -> Iterator[str]:
        """Yield the files of the project: those in git, or outside of it those in its folder."""
        if self.in_git:
            yield from self._listed("--cached", "--recurse-submodules")
            is_run = functools.cache(_is_run)
            for name in self._listed("--others", "--exclude-standard") if untracked else ():
                if not any(is_run(self.top / folder) for folder in PurePath(name).parents[:-1]):
                    yield name
            return
        for folder, folders, names in os.walk(self.top):
            parent = Path(folder)
            links = [name for name in folders if (parent / name).is_symlink()]
            folders[:] = sorted(name for name in folders if name not in _NEVER and not _is_run(parent / name))
            yield from (os.path.relpath(parent / name, self.top) for name in sorted([*names, *links]))

    def _listed(self, *which: str) -> Iterator[str]:
        listed = _git(["ls-files", "-z", *which], self.top)
        # A file in conflict is listed once for each side.
        yield from dict.fromkeys(os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)

    def _is_secret(self, name: str) -> bool:
        # Whatever git says: a run directory lies on shared storage, where others may read it.
        return name == self.secrets_file or is_secret_file(name)

    def _is_script_with_secret(self, name: str) -> bool:
        path = self.top / name
        if is_code(name) or path.is_symlink() or not path.is_file() or path.stat().st_size > DATA_FILE_MB * _MB:
            return False
        from trainjob.contract.programs.secrets_in_shell import holds_written_secret

        return holds_written_secret(path)

    def reason_to_leave_out(self, name: str) -> str | None:
        """Return why a file is not copied: "" for one that does not exist, None for one that is copied."""
        path = self.top / name
        if not os.path.lexists(path):
            return ""
        if self._is_secret(name):
            return "may hold a secret"
        if self._is_script_with_secret(name):
            return "a secret is written in it: put that into a secrets_file"
        if path.is_symlink():
            return None
        if path.is_dir():
            return "a git repository of its own that is no submodule, or is not checked out"
        if not path.is_file():
            return ""
        if path.stat().st_size > DATA_FILE_MB * _MB:
            return f"larger than {DATA_FILE_MB} MB, so it counts as data"
        return None


def _git(arguments: Sequence[str], folder: Path, empty: Sequence[str] = (), *, check: bool = True) -> Completed:
    """Return git's result, with the keys `empty` set to nothing.

    No program runs that the project's own configuration names, and nothing is fetched.
    """
    off = ("core.fsmonitor=false", f"core.hooksPath={os.devnull}", "diff.external=", "safe.bareRepository=explicit")
    words = ["git", "--no-pager", *(word for one in off for word in ("-c", one)), *arguments]
    # A partial clone fetches what it lacks, by programs that its configuration names. Older releases of git don't know
    # GIT_NO_LAZY_FETCH; an empty list of protocols, unlike protocol.allow, leaves the project's own no exception.
    # Without optional locks, no index is written, which would call a hook.
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "", "GIT_OPTIONAL_LOCKS": "0"}
    if empty:
        # `-c` takes a key up to its first =, which may stand in a name. The user's own pairs come first.
        before = environment.get("GIT_CONFIG_COUNT", "")
        first = int(before) if before.isdecimal() else 0
        for at, name in enumerate(empty, first):
            environment |= {f"GIT_CONFIG_KEY_{at}": name, f"GIT_CONFIG_VALUE_{at}": ""}
        environment["GIT_CONFIG_COUNT"] = str(first + len(empty))
    return process.run(words, folder=folder, environment=environment, check=check)


def _is_run(folder: Path) -> bool:
    """Return whether `folder` is a run directory: if runs copied earlier runs, each would double in size.

    So is one that is being made or removed, and the folder of all that trainjob keeps.
    """
    is_unfinished = folder.name.startswith(".") and folder.suffix in (".part", ".removed")
    return (
        is_unfinished or folder == home() or ((folder / "job.json").is_file() and (folder / "code/trainjob").is_dir())
    )


def find(working_folder: Path, folder: Path | None = None, secrets_file: str | None = None) -> Project:
    """Return the project: `folder`, else the git top level, else the working folder.

    `secrets_file` is the cluster's, which is not copied even if it is in the project. Raises UserError when `folder`
    is not a folder, and where git does not trust it.
    """
    if folder is not None and not folder.is_dir():
        raise UserError(f"--project {folder} is not a folder", "give the top folder of your project")
    current = working_folder.resolve()
    git_top = top_of_repository(folder.resolve() if folder else current)
    top = folder.resolve() if folder else git_top or current
    start = os.path.relpath(current, top) if current.is_relative_to(top) else "."
    secrets = None if secrets_file is None else Path(os.path.realpath(with_home(secrets_file)))
    own = os.path.relpath(secrets, top) if secrets is not None and secrets.is_relative_to(top) else None
    return Project(top, start, in_git=git_top is not None, secrets_file=own)


def top_of_repository(folder: Path) -> Path | None:
    """Return the top level of the git repository that `folder` is in; None if it is in none, or git is not there."""
    if "GIT_DIR" not in os.environ and not any(os.path.exists(above / ".git") for above in (folder, *folder.parents)):
        return None  # no process is needed to know it
    try:
        answer = _git(["rev-parse", "--show-toplevel"], folder, check=False)
    except process.CommandError:
        return None
    if "safe.directory" in answer.stderr:
        # Treated as a plain folder, it would be copied as a whole.
        raise UserError(f"git does not trust {folder}, so the project's files can't be listed", answer.stderr.strip())
    return Path(os.fsdecode(answer.stdout).removesuffix("\n")) if answer.code == 0 else None


def other_author(path: Path) -> str | None:
    """Return the author of the last commit of a file, if that is not this user; None outside of git.

    What the repository's own configuration says of its user is not asked: it comes with the repository.
    """
    folder = path.resolve().parent
    if top_of_repository(folder) is None:
        return None
    words = ["--literal-pathspecs", "log", "-1", "--no-show-signature", "--no-patch", "--format=%ae", "--", path.name]
    theirs = _git(words, folder, check=False).text.strip()
    ours = {os.environ.get(name, "") for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL", "EMAIL")}
    ours |= {
        _git(["config", where, "user.email"], folder, check=False).text.strip() for where in ("--global", "--system")
    }
    return theirs if theirs and theirs not in ours else None


class Selection(NamedTuple):
    """Relative paths of the files to copy, and of those left out, each with the reason."""

    files: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]


def select(project: Project, *, untracked: bool = False) -> Selection:
    """Return which files of the project a run copies.

    In git: those that `git ls-files` names, untracked files by choice. Never secrets, nor files larger than 10 MB,
    which count as data. Raises UserError when the rest is larger than 500 MB, or would be the whole home or disk.
    """
    if not project.in_git and project.top in (with_home("~").resolve(), Path(project.top.anchor)):
        raise UserError(
            f"the project would be all of {project.top}", "change into its folder, or give --project FOLDER"
        )
    files: list[str] = []
    left_out: list[tuple[str, str]] = []
    total = 0
    is_within = functools.cache(lambda folder: folder.resolve().is_relative_to(project.top))
    for name in project.files(untracked=untracked):
        try:
            reason, size = project.reason_to_leave_out(name), (project.top / name).lstat().st_size
        except FileNotFoundError:  # since it was listed
            continue
        if reason is None and not is_within((project.top / name).parent):
            reason = "behind a link that leads out of the project"
        if reason is None:
            files.append(name)
            total += size
        elif reason:
            left_out.append((name, reason))
    if total > _TOTAL_MB * _MB:
        raise UserError(
            f"project {project.top} has {total // _MB} MB of files, and a run copies at most {_TOTAL_MB} MB",
            "give --project for the part that is code",
        )
    return Selection(tuple(files), tuple(left_out))


def copy(project: Project, selection: Selection, target: Path) -> None:
    """Copy the selected files below `target`, links as links."""
    (target / project.start).mkdir(parents=True, exist_ok=True)
    for name in selection.files:
        destination = target / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        copy_file(project.top / name, destination)


def copy_file(source: str | Path, destination: str | Path) -> None:
    """Copy a file, or a link as a link, so that only its owner may write the copy. Raises UserError."""
    try:
        status = os.lstat(source)
        if not stat.S_ISREG(status.st_mode):
            shutil.copy2(source, destination, follow_symlinks=False)
            return
        # shutil.copy2 takes several times as long, and file objects twice; a run's start copies some two hundred.
        # A link that has taken the place of what was a plain file a moment ago may point to anything.
        with (
            _opened(source, os.O_RDONLY | os.O_NOFOLLOW) as original,
            _opened(destination, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as copied,
        ):
            while content := os.read(original, 1 << 16):
                while content:
                    content = content[os.write(copied, content) :]
            os.fchmod(copied, stat.S_IMODE(status.st_mode) & ~0o022)
            os.utime(copied, ns=(status.st_atime_ns, status.st_mtime_ns))
    except OSError as error:
        if error.filename != os.fspath(source):
            raise
        reason = f"can't be read ({error.strerror})"
        raise UserError(f"project file {source} {reason}", "correct that, and submit again") from None


@contextlib.contextmanager
def _opened(path: str | Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
