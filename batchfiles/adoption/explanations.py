"""What a fault of a batch file explains: in which way its ranks differ from those of a job that does not have it."""

from __future__ import annotations

from collections.abc import Collection

_PLACES = ("ranks", "rank", "world size", "local rank", "node", "gpus")
_BY_CODE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("nnodes-missing", "tasks-times-torchrun", "more-processes-than-gpus", "gpus-unused", "no-srun"),
            *("world-size-fixed", "nnodes-range-on-one-node"),
        ),
        (*_PLACES, "cpus", "threads"),
    ),
    "rank-expanded-early": ("rank", "world size", "local rank", "node", "command", "environment"),
    "gpus-per-task-hides-peers": ("gpus",),
    "sets-visible-devices": ("gpus", "environment"),
    "srun-loses-cpus": ("cpus", "threads"),
    "script-dir-is-spool": ("folder", "command", "environment", "files"),
    "bash-under-sh": ("grammar of sh",),
    **dict.fromkeys(("crlf", "shebang-not-first"), ("refusal",)),
    **dict.fromkeys(
        (
            *("addr-undefined", "addr-localhost", "addr-hostname-ip", "addr-from-compressed-list"),
            *("addr-guessed-from-name", "port-fixed"),
        ),
        ("command", "environment"),
    ),
}
_REFUSED = ("sbatch expands no", "is no number to sbatch")


def explained(cured: Collection[str], changes: Collection[str]) -> dict[str, str]:
    """Return what may differ between the ranks of a file and of its job, and the fault that explains it.

    `cured` are codes of doctor's, and `changes` what the job does otherwise because the file is wrong.
    """
    found = {aspect: code for code in cured for aspect in _BY_CODE.get(code, ())}
    for change in changes:
        is_refused = any(one in change for one in _REFUSED)
        for aspect in (*_PLACES, *(("refusal",) if is_refused else ("cpus", "threads"))):
            found.setdefault(aspect, change)
    return found
