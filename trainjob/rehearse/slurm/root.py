"""What a private Slurm needs of the machine: root's rights, and programs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from trainjob.contract.errors import UserError
from trainjob.submit import process

# program -> the Debian package that has it
_PROGRAMS = {
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sbatch": "slurm-wlm",
    "srun": "slurm-wlm",
    "munged": "munge",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mknod": "coreutils",
}
# Daemons lie in folders that not every PATH has.
_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def refuse_where_it_cannot_run() -> None:
    """Raise UserError naming the packages to install, or that root's rights are needed."""
    if not sys.platform.startswith("linux"):
        raise UserError(
            f"a rehearsal starts a private Slurm, which takes Linux and this is {sys.platform}: "
            "rehearse in a virtual machine or on a Linux host, or look at the bytes with `trainjob render`"
        )
    missing = [name for name in _PROGRAMS if not where(name)]
    if missing:
        packages = " ".join(dict.fromkeys(_PROGRAMS[name] for name in missing))
        raise UserError(
            f"a rehearsal starts a private Slurm, and {', '.join(missing)} can't be found here. "
            f"On Debian or Ubuntu: sudo apt-get install {packages} (the packages' own services need not run)"
        )
    _refuse_without_rights()


def where(program: str) -> str | None:
    """Return the path of a program, a daemon's too; None where it is not here."""
    return shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_FOLDERS)))


def _refuse_without_rights() -> None:
    cure = "Run it as root, or as a user who may use sudo; in a container, with --privileged"
    if is_root():
        tried = process.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], check=False)
        if tried.code != 0:
            raise UserError(f"a rehearsal makes namespaces, and that failed: {tried.stderr.strip()}. {cure}")
    elif not shutil.which("sudo"):
        raise UserError(f"a rehearsal makes namespaces, which takes root's rights, and there is no sudo. {cure}")
    else:
        process.ask_for_password()


def is_root() -> bool:
    """Whether we have root's rights already."""
    return os.geteuid() == 0


def as_root(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs `arguments` with root's rights."""
    return list(arguments) if is_root() else ["sudo", "--non-interactive", "--", *arguments]


def as_ourselves(arguments: Sequence[str]) -> list[str]:
    """Return the command by which root runs `arguments` as the user that we are."""
    if is_root():
        return list(arguments)
    ids = ["--reuid", str(os.getuid()), "--regid", str(os.getgid()), "--init-groups"]
    return ["setpriv", *ids, "--", *arguments]


def our_environment() -> dict[str, str]:
    """Return what sudo has changed of the environment that says who we are; nothing where we are root."""
    names = () if is_root() else ("HOME", "USER", "LOGNAME")
    return {name: os.environ[name] for name in names if name in os.environ}
