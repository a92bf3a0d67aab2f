"""Names that the environment of a rank can't have, and why."""

from __future__ import annotations

from trainjob.contract.environment import RANK_NAMES

OURS = "TRAINJOB_"

# Tried with bash 5.2: an assignment to each of these ends the script, is lost, computes, or changes how the
# rest of the script reads (IFS, POSIXLY_CORRECT). The others in bash's manual arrive unchanged.
_BASH_PREFIXES = ("BASH", "COMP_", "READLINE_")
_BASH_NAMES = frozenset(
    [
        "_",
        "DIRSTACK",
        "EPOCHREALTIME",
        "EPOCHSECONDS",
        "EUID",
        "FUNCNAME",
        "GROUPS",
        "HISTCMD",
        "IFS",
        "LINENO",
        "OLDPWD",
        "OPTIND",
        "PIPESTATUS",
        "POSIXLY_CORRECT",
        "PPID",
        "PWD",
        "RANDOM",
        "SECONDS",
        "SHELLOPTS",
        "SHLVL",
        "SRANDOM",
        "UID",
    ]
)


def why_refused(name: str) -> str | None:
    """Return why `name` can't be set for a rank; None where it can."""
    if name in RANK_NAMES:
        return f"{name} is set by the launcher, for each rank its own: take it out"
    if name.startswith(OURS):
        return f"{name} begins with {OURS}, and those names are trainjob's own: choose another name"
    if name in _BASH_NAMES or name.startswith(_BASH_PREFIXES):
        return f"{name} is a name of bash's own, which a job script can't hand on: choose another name"
    return None


def checked(name: str) -> str:
    """Return `name`. Raises ValueError with the reason where a rank can't have it."""
    reason = why_refused(name)
    if reason:
        raise ValueError(reason)
    return name
