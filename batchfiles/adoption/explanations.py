"""What a fault of a batch file explains: in which way its ranks differ from those of a job that does not have it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_ADDRESSES = (
    "addr-undefined",
    "addr-localhost",
    "addr-hostname-ip",
    "addr-from-compressed-list",
    "addr-guessed-from-name",
)
_PLACES = ("ranks", "rank", "world size", "local rank", "node", "gpus")
# Faults that a job does not have, whatever the file says, and in which aspects that shows.
CURED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("nnodes-missing", "more-processes-than-gpus", "gpus-unused", "no-srun"),
            "nnodes-range-on-one-node",
        ),
        (*_PLACES, "cpus", "threads"),
    ),
    "world-size-fixed": ("rank", "world size"),
    "tasks-times-torchrun": (*_PLACES, "cpus", "threads", "meeting of launchers"),
    "rank-expanded-early": (
        *("rank", "world size", "local rank", "node", "command", "environment"),
        "meeting of launchers",
    ),
    "gpus-per-task-hides-peers": ("gpus",),
    "sets-visible-devices": ("gpus", "environment"),
    "srun-loses-cpus": ("cpus", "threads"),
    "script-dir-is-spool": ("folder", "command", "environment", "files"),
    "bash-under-sh": ("grammar of sh", "setup"),
    # What becomes of it after its time limit.
    **dict.fromkeys(
        (
            *("time-limit-unhandled", "requeue-without-signal", "trap-deferred", "signal-kills-batch"),
            *("signal-never-arrives", "wait-interrupted"),
        ),
        ("end", "files at the end"),
    ),
    "exit-code-lost": ("end",),
    **dict.fromkeys(("crlf", "shebang-not-first", "directive-refused"), ("refusal",)),
    **dict.fromkeys((*_ADDRESSES, "port-fixed"), ("command", "environment")),
    **dict.fromkeys(("addr-undefined", "addr-localhost"), ("command", "environment", "meeting of launchers")),
    **dict.fromkeys(
        (
            *(
                "array-quoted",
                "no-kill-on-bad-exit",
                "kill-on-bad-exit-0",
                "log-folder-must-exist",
                "output-overwritten",
            ),
            *(
                "requeue-truncates-log",
                "cancels-itself",
                "cleanup-skipped-by-set-e",
                "tilde-in-output",
                "job-never-ends",
            ),
            *("ray-sleep-ready", "server-sleep-ready"),
        ),
        (),
    ),
}
_AT_TIMES = {"unset-variable": (*_PLACES, "cpus", "threads", "failure of launchers")}  # where options are made of it
_MEETS_AT = (
    r"(?i)((?:addr|address|host|hostname|ip|master)[ =]|://)[^\s:/=]*(?=[:/]|\Z)|"
    r"\A(?:localhost|the-first-node|node[\d\[][\w.,\[\]-]*|\d+(?:\.\d+){3})(?=:|\Z)"
)
# What a fault changes in a word of a command, or in NAME=VALUE of an environment; the word before is part of it.
_CHANGES: dict[str, str] = {
    "port-fixed": r"(?i)(port[ =]|:)\d{4,5}\b",
    **dict.fromkeys(_ADDRESSES, _MEETS_AT),
    "rank-expanded-early": r"(?i)((?:rank|world[-_]?size|(?:proc|local|node)[-_]?id|nodes?|procs|machines?)[ =])\d*",
    "script-dir-is-spool": r"(\A|[=:])(?:\S*/spool-[^/\s]+/[^/\s]+/|\./)",
    "sets-visible-devices": r"(\A\w*VISIBLE_DEVICES=).*",
    "bash-under-sh": r"()\A(?:source .*|)\Z",  # the call that sh does not know
}
WAITS_FOR_OTHERS = "Its launcher waits for"
_REFUSED = ("sbatch expands no", "is no number to sbatch")


def explained(cured: Collection[str], changes: Collection[str]) -> dict[str, list[str]]:
    """Return what may differ between the ranks of a file and of its job, and the faults that explain it.

    `cured` are codes of doctor's, and `changes` what the job does otherwise because the file is wrong.
    """
    found: dict[str, list[str]] = {}
    for code in cured:
        for aspect in (CURED | _AT_TIMES).get(code, ()):
            found.setdefault(aspect, []).append(code)
    for change in changes:
        is_refused = any(one in change for one in _REFUSED)
        waits = ("meeting of launchers",) if WAITS_FOR_OTHERS in change else ()
        for aspect in (*_PLACES, *(("refusal",) if is_refused else ("cpus", "threads")), *waits):
            found.setdefault(aspect, [change])
    return found


def explains(explanations: Mapping[str, Collection[str]], aspect: str, one: str, other: str) -> bool:
    """Return whether a fault explains that `one` is `other`: of words, variables and calls, what it changes alone."""
    codes = explanations.get(aspect, ())
    if aspect not in ("command", "environment", "setup"):
        return bool(codes)
    for code in codes:
        one, other = (re.sub(_CHANGES[code], r"\1…", text) for text in (one, other))
    return one == other
