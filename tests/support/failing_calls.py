"""One system call of a command fails, as SQLite is tested: `strace` makes the K-th call of a kind return an error."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.local_runs import Here
from tests.support.programs import ran

# What each kind of call may well fail with. Processes are started by vfork or clone.
ERRORS = {
    "rename": "ENOSPC",
    "renameat2": "ENOSPC",
    "mkdir": "ENOSPC",
    "symlink": "ENOSPC",
    "fsync": "EIO",
    "unlink": "EACCES",
    "rmdir": "EIO",
    "chmod": "EPERM",
    "vfork": "EAGAIN",
    "write": "ENOSPC",
    "openat": "EACCES",
    "connect": "ECONNREFUSED",
}
_CALL = re.compile(r"(?:(?P<process>\d+) +)?(?P<kind>\w+)\((?P<text>.*)")
LIMIT_S = 120


class Call(NamedTuple):
    """The `number`-th call of a kind; `text` is how strace shows it. `path` is the file that it concerns.

    Where processes are followed, `number` counts the calls of one process that concern `path`.
    """

    kind: str
    number: int
    text: str
    path: str | None = None


class Ended(NamedTuple):
    """How a command ended of which one call has failed."""

    code: int
    out: str
    err: str

    @property
    def is_allowed(self) -> bool:
        """Whether it succeeded, or gave one line and an exit code that says that the user can do something.

        Warnings may come before that line.
        """
        lines = [line for line in self.err.splitlines(keepends=True) if not line.startswith("warning: ")]
        has_one_line = "".join(lines).startswith("trainjob: ") and "BUG" not in self.err and "Traceback" not in self.err
        return self.code == 0 or (self.code == 1 and has_one_line)


def traced(here: Here, argv: list[str], *options: str) -> Ended:
    """Return how a program ended; what it starts is not traced."""
    ended = ran(["strace", "-q", *options, *argv], folder=here.project, environ=here.environ, timeout_s=LIMIT_S)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def calls(here: Here, argv: list[str], log: Path) -> Iterator[Call]:
    """Run a program, and yield those of its calls that concern its data, in order: not how Python reads its modules."""
    ended = traced(here, argv, *_logged(log))
    assert ended.code == 0, ended
    seen: Counter[str] = Counter()
    for _, kind, text in _lines(log):
        seen[kind] += 1
        if _is_of_data(kind, text, here):
            yield Call(kind, seen[kind], f"{kind}({text}")


def calls_on(here: Here, argv: list[str], log: Path, folder: Path) -> Iterator[Call]:
    """Run a program, and yield the calls that it and all that it starts make on the files in `folder`."""
    traced(here, argv, "-f", "-y", *_logged(log))
    seen: Counter[tuple[str, str, str]] = Counter()
    for process, kind, text in _lines(log):
        found = re.findall(rf"<({re.escape(str(folder))}/[^>]+)>|\"(\.?\w+(?:\.part)?)\"", text)
        for name in dict.fromkeys(str(folder / (absolute or relative)) for absolute, relative in found):
            seen[process, kind, name] += 1
            yield Call(kind, seen[process, kind, name], f"{kind}({text}", name)


def _logged(log: Path) -> list[str]:
    return ["-s", "300", "-o", str(log), "-e", f"trace={','.join(ERRORS)}"]


def _lines(log: Path) -> Iterator[tuple[str, str, str]]:
    for line in log.read_text(errors="replace").splitlines():
        match = _CALL.match(line)
        if match is not None and match["kind"] in ERRORS:
            yield match["process"] or "", match["kind"], match["text"]


def _is_of_data(kind: str, text: str, here: Here) -> bool:
    if kind != "openat":
        return "__pycache__" not in text and ".jinja" not in text
    return str(here.folder / "data") in text or str(here.folder / "runs") in text


def failing(here: Here, argv: list[str], call: Call, trace: Path) -> Ended:
    """Return how a program ended of which this call, and no other, has failed."""
    inject = f"inject={call.kind}:error={ERRORS[call.kind]}:when={call.number}"
    where = [] if call.path is None else ["-f", "-P", call.path, "-P", os.path.basename(call.path)]
    return traced(here, argv, *where, "-o", str(trace), "-e", f"trace={call.kind}", "-e", inject)


def unseen(here: Here) -> list[str]:
    """Return the run directories of processes that no run of `list` is known to have."""
    running: set[str] = set()
    for name in os.listdir("/proc"):
        try:
            pairs = Path(f"/proc/{name}/environ").read_bytes().split(b"\0") if name.isdigit() else []
        except OSError:
            continue
        mark = f"TRAINJOB_RUN_DIR={here.folder}".encode()
        running.update(pair.decode().partition("=")[2] for pair in pairs if pair.startswith(mark))
    return sorted(running - {one["folder"] for one in here.json("list")}) if running else []
