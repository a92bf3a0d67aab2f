"""The needs of a private Slurm on this machine: programs, and root's rights or a user namespace."""

from __future__ import annotations

import enum
import functools
import os
import pwd
import re
import shutil
import sys
from collections.abc import Sequence

from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.rehearse.slurm.description import Description

_VERSION = re.compile(r"\d+\.\d+\.\d+")
# program -> the Debian package that has it
_SLURM = {
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sbatch": "slurm-wlm",
    "srun": "slurm-wlm",
    "munged": "munge",
}
_ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server"}
_PROGRAMS = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mknod": "coreutils",
}
# Daemons are in folders that not every PATH has.
FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def refuse_where_it_cannot_run(description: Description) -> None:
    """Raise UserError naming the packages to install, or that root's rights are needed."""
    if not sys.platform.startswith("linux"):
        raise UserError(
            f"a rehearsal starts a private Slurm, which takes Linux, and this is {sys.platform}",
            "Rehearse in a virtual machine or on a Linux host, or look at the bytes with `trainjob render`",
        )
    needed = _PROGRAMS if description.release else {**_SLURM, **_PROGRAMS}
    if description.accounting and not description.release:
        needed = {**needed, **_ACCOUNTING}
    missing = [name for name in needed if not where(name)]
    if missing:
        packages = " ".join(dict.fromkeys(needed[name] for name in missing))
        raise UserError(
            f"a rehearsal starts a private Slurm, and {', '.join(missing)} can't be found here",
            f"On Debian or Ubuntu: sudo apt-get install {packages} (the packages' own services need not run)",
        )
    refuse_without_rights()


def installed_version() -> str | None:
    """Return the version of this machine's Slurm, as 22.05.8; None if there is none."""
    slurmd = where("slurmd")
    version = _VERSION.search(process.run([slurmd, "-V"], check=False).text) if slurmd else None
    return version.group() if version else None


def installed_release() -> str | None:
    """Return the release of this machine's Slurm, as 22.05; None if there is none."""
    version = installed_version()
    return version and version.rpartition(".")[0]


def has_accounting() -> bool:
    """Return whether this machine has what accounting needs."""
    return all(where(program) for program in _ACCOUNTING)


def where(program: str) -> str | None:
    """Return the path of a program or daemon; None if it is not installed."""
    return shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *FOLDERS)))


class Rights(enum.Enum):
    """The rights with which a rehearsal makes namespaces and starts daemons."""

    ROOT = "root"
    SUDO = "sudo"
    # For an ordinary user: root inside is this user outside, and other users inside are the user's subordinate ids.
    USER_NAMESPACE = "user namespace"


_OF_A_LOGIN = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LANGUAGE", "TERM", "TZ")
_USER_NAMESPACE = ["unshare", "--user", "--map-root-user", "--map-auto"]
_OTHER_NAMESPACES = ["--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]


@functools.cache
def rights() -> Rights:
    """Return the first available: root's rights, sudo without a password, a user namespace, sudo with a password."""
    if os.geteuid() == 0:
        return Rights.ROOT
    has_sudo = shutil.which("sudo") is not None
    if has_sudo and process.run(["sudo", "--non-interactive", "true"], check=False).code == 0:
        return Rights.SUDO
    if not has_sudo or _why_no_user_namespace() == "":
        return Rights.USER_NAMESPACE
    return Rights.SUDO


def _why_no_user_namespace() -> str:
    tried = process.run([*_USER_NAMESPACE, *_OTHER_NAMESPACES, "true"], check=False)
    return "" if tried.code == 0 else tried.stderr.strip() or f"unshare exited with {tried.code}"


def refuse_without_rights() -> None:
    """Raise UserError if namespaces can't be made. Asks for sudo's password if nothing else works."""
    if rights() is Rights.ROOT:
        tried = process.run(["unshare", *_OTHER_NAMESPACES, "true"], check=False)
        if tried.code != 0:
            failed = f"a rehearsal makes namespaces, and that failed: {tried.stderr.strip()}"
            raise UserError(failed, "In a container, give it --privileged")
        return
    refused = _why_no_user_namespace() if rights() is Rights.USER_NAMESPACE else ""
    if rights() is Rights.SUDO:
        try:
            process.ask_for_password()
        except process.CommandError:
            refused = f"sudo refused, and so did unshare ({_why_no_user_namespace()})"
    if refused:
        raise UserError(
            f"a rehearsal makes namespaces, and that failed: {refused}",
            "As an ordinary user you need user namespaces, newuidmap (on Debian or Ubuntu: apt-get install uidmap) and "
            "a line of your own in /etc/subuid and /etc/subgid. Otherwise run it as root, or where you may use sudo",
        )


def as_root(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs `arguments` with root's rights, or the closest that there are."""
    first = {Rights.ROOT: [], Rights.SUDO: ["sudo", "--non-interactive", "--"], Rights.USER_NAMESPACE: _USER_NAMESPACE}
    return [*first[rights()], *arguments]


def in_new_namespaces(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs `arguments` as root of new namespaces, which end with it."""
    # Without --kill-child the namespaces would outlive an unshare that was killed.
    if rights() is Rights.USER_NAMESPACE:
        return [*_USER_NAMESPACE, *_OTHER_NAMESPACES, *arguments]
    return as_root(["unshare", *_OTHER_NAMESPACES, *arguments])


def in_namespaces_of(process_id: int, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs `arguments` as root in the namespaces of a process."""
    enter = ["nsenter", "--target", str(process_id), "--net", "--mount", "--pid", "--uts"]
    if rights() is Rights.USER_NAMESPACE:
        return [*enter, "--user", "--", *arguments]
    return as_root([*enter, "--", *arguments])


def as_ourselves(arguments: Sequence[str]) -> list[str]:
    """Return the command with which root runs `arguments` as the current user."""
    if rights() is not Rights.SUDO:
        return list(arguments)
    ids = ["--reuid", str(os.getuid()), "--regid", str(os.getgid()), "--init-groups"]
    return ["setpriv", *ids, "--", *arguments]


def our_environment() -> dict[str, str]:
    """Return what of our environment comes along: the names that a login sets, and none that may be a secret's."""
    names = (name for name in os.environ if name in _OF_A_LOGIN or name.startswith("LC_"))
    return {name: os.environ[name] for name in names}


def our_user() -> pwd.struct_passwd:
    """Return the user that jobs run as, as Slurm sees it."""
    return pwd.getpwuid(os.getuid() if rights() is Rights.SUDO else 0)
