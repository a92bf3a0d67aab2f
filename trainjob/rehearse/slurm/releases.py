"""Other releases of Slurm: root file systems made from Debian's suites, kept in the user's cache."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs

from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.rehearse.base import INSTALLED
from trainjob.rehearse.slurm import root

SUITES = {"20.11": "bullseye", "22.05": "bookworm", "24.11": "trixie", "26.05": "sid"}
_PACKAGES = ("slurm-wlm", "munge", "patchelf")
_HOOK = Path(__file__).with_name("release_programs.sh")
_ACCOUNTING = ("slurmdbd", "mariadb-server", "mount")
# Debian's slurmdbd ends there as it starts: its MariaDB client 11.8.9 refuses the first answer (error 5027).
_WITHOUT_ACCOUNTING = ("24.11", "26.05")
_MIRROR_NAMED = "TRAINJOB_DEBIAN_MIRROR"
_OWN_MIRROR = re.compile(r"https?://\S+/debian/?")
# A root takes 230 MB, with a database 620 MB, and the packages beside it while it is made.
_SPACE_MB = {False: 600, True: 1500}
_MADE_WITHIN_S = 900.0


def refuse_unknown(release: str) -> None:
    """Raise UserError, which names the available releases, for one that Debian has not packaged."""
    if release not in (INSTALLED, *SUITES):
        raise UserError(
            f"Slurm {release} is not one of the releases that can be rehearsed",
            f"Choose {', '.join(SUITES)}, or {INSTALLED}",
        )


def release_of(version: str) -> str | None:
    """Return the release that a site's `version` belongs to; None if it can't be rehearsed."""
    release = ".".join(version.split(".")[:2])
    return release if release in SUITES else None


def cache() -> Path:
    """Return the folder of the roots."""
    return platformdirs.user_cache_path("trainjob") / "slurm"


def root_of(release: str, *, accounting: bool, say: Callable[[str], None] = lambda _line: None) -> Path:
    """Return the root file system of a release, made now if it is not in the cache: complete, or not at all.

    Raises UserError, with the cure: no mmdebstrap, no rights, no space, no network.
    """
    refuse_unknown(release)
    if accounting and release in _WITHOUT_ACCOUNTING:
        raise UserError(
            f"accounts can't be checked on Slurm {release}: Debian's slurmdbd and MariaDB do not work together there",
            "Rehearse on 22.05 or 20.11, or with slurm: {accounting: false} in the cluster file",
        )
    folder = cache() / (release + ("-accounting" if accounting else ""))
    if folder.is_dir():
        return folder
    if not shutil.which("mmdebstrap", path=process.search_path()):
        raise UserError(
            "another release of Slurm is made with mmdebstrap, which can't be found here",
            "On Debian or Ubuntu: sudo apt-get install mmdebstrap debian-archive-keyring",
        )
    root.refuse_without_rights()
    cache().mkdir(parents=True, exist_ok=True)
    free_mb, needed_mb = shutil.disk_usage(cache()).free // 2**20, _SPACE_MB[accounting]
    if free_mb < needed_mb:
        raise UserError(
            f"a root file system takes {needed_mb} MB while it is made, and {cache()} has {free_mb} MB left",
            "Make room there, or name another folder with XDG_CACHE_HOME",
        )
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            say(
                f"making a root file system with Slurm {release}, from Debian's {SUITES[release]}: about a minute, once"
            )
            _make(release, folder, (*_PACKAGES, *(_ACCOUNTING if accounting else ())))
    return folder


def _make(release: str, folder: Path, packages: tuple[str, ...]) -> None:
    partial, source = folder.with_name(f"{folder.name}.partial"), mirror()
    _remove(partial)
    # The release files of the oldest and the newest suite may have expired.
    options = ["--variant=apt", f"--include={','.join(packages)}", '--aptopt=Acquire::Check-Valid-Until "false"']
    hook = f'sh {shlex.quote(str(_HOOK))} "$1" {shlex.quote(str(folder))}'
    suite = [f"--customize-hook={hook}", SUITES[release]]
    try:
        if root.rights() is root.Rights.USER_NAMESPACE:
            # Through an archive: mmdebstrap's namespace has other ids than a rehearsal's.
            partial.mkdir()
            unpack = root.as_root(["tar", "--extract", "--exclude=./dev/*", "--directory", str(partial)])
            with tempfile.TemporaryFile(dir=partial.parent) as archive:
                words = ["mmdebstrap", "--mode=unshare", *options, *suite, "-", *([source] if source else [])]
                process.run(words, timeout_s=_MADE_WITHIN_S, stdout=archive)
                archive.seek(0)
                process.run(unpack, timeout_s=_MADE_WITHIN_S, stdin=archive)
        else:
            words = ["mmdebstrap", *options, *suite, str(partial), *([source] if source else [])]
            process.run(root.as_root(words), timeout_s=_MADE_WITHIN_S)
    except process.CommandError as failure:
        _remove(partial)
        printed = failure.completed.stderr if failure.completed else str(failure)
        wrong = [line for line in printed.splitlines() if line.startswith(("E:", "W: Failed", "Err:"))]
        raise UserError(
            f"no root file system with Slurm {release}: mmdebstrap failed with {source or 'its own mirror'}: "
            + (wrong[0] if wrong else printed.strip()[-200:]),
            f"Look whether this machine reaches that mirror, or name another with {_MIRROR_NAMED}=URL",
        ) from None
    process.run(root.as_root(["mv", "--no-target-directory", str(partial), str(folder)]))


def _remove(folder: Path) -> None:
    if folder.exists():
        process.run(root.as_root(["rm", "--recursive", "--force", "--one-file-system", str(folder)]), check=False)


def mirror() -> str | None:
    """Return the mirror that the user names, or that of this host's own packages; None: mmdebstrap's default."""
    named = os.environ.get(_MIRROR_NAMED)
    if named:
        return named
    listed = "" if not shutil.which("apt-get") else process.run(["apt-get", "indextargets"], check=False).text
    own = re.search(rf"^Repo-URI: ({_OWN_MIRROR.pattern})$", listed, re.MULTILINE)
    return own.group(1).rstrip("/") if own else None
