"""The stacks of a rank's Python processes, on request.

The folder launch/hooks/ is first on a rank's PYTHONPATH. It has Python's own faulthandler answer a real-time signal,
into a file of this launcher that has no name: so also a process that hangs in C is seen, and nothing is written into
what the ranks print.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from trainjob.contract import clock
from trainjob.contract.environment import STACKS
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.host import node_name, text
from trainjob.launch.processes import Process
from trainjob.launch.rank_environment import Watched
from trainjob.launch.reading.counts import Counts, Look
from trainjob.launch.witness import node_ranks

if TYPE_CHECKING:
    from trainjob.records.stacks import ProcessStack, RankStacks

SIGNAL = signal.SIGRTMAX - 3
_HOOKS = Path(__file__).resolve().parents[1] / "hooks"
_LIMIT_S = 2.0
_POLL_S = 0.01
_QUIET_S = 0.03
_QUIET_IF_IT_RUNS_S = 0.3
_MOST_COMMAND = 200
_MOST_NOTED = 1 << 20
# What processes note about themselves goes into the same file.
_NOTES = r"(?m)^(?:ended|imported|met|read|compiled|torch|other|counts) \d[\d. ]*\n"


def _nameless() -> IO[bytes]:
    """Return a new file that has no name, open for as long as the ranks run. Raises OSError."""
    try:
        folder = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - it has no name there
        return os.fdopen(os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600), "w+b")
    except (OSError, AttributeError):  # Python has the flag only where it was built with a C library that has it
        import tempfile  # takes a while to load

        return tempfile.TemporaryFile()


class Stacks:
    """The file to which the Python processes of this launcher's ranks write."""

    def __init__(self) -> None:
        self._file: Optional[IO[bytes]] = None
        self._counts = Counts(None)
        try:
            self._file = _nameless()
            self._counts = Counts(_nameless())
        except OSError:
            return  # no folder for temporary files: ranks run, but their stacks can't be shown

    def environment(self, environ: Dict[str, str]) -> Dict[str, str]:
        """Return the variables that a rank needs beside `environ`."""
        if self._file is None:
            return {}
        theirs = environ.get("PYTHONPATH")
        return {
            STACKS: "/proc/%d/fd/%d" % (os.getpid(), self._file.fileno()),
            **self._counts.environment(),
            "PYTHONPATH": os.pathsep.join([str(_HOOKS), *([theirs] if theirs else [])]),
        }

    def of(self, tree: Sequence[Process]) -> List[ProcessStack]:
        """Return the stacks of each process of a rank."""
        from trainjob.records.stacks import ProcessStack

        found = []
        for process in tree:
            command = text(Path("/proc/%d/cmdline" % process.pid)).rstrip("\0").replace("\0", " ")[:_MOST_COMMAND]
            stack, io = self._of(process.pid), text(Path("/proc/%d/io" % process.pid))
            counts = dict(line.split(": ", 1) for line in io.splitlines() if ": " in line)
            moved = int(counts["rchar"]) + int(counts["wchar"]) if {"rchar", "wchar"} <= counts.keys() else None
            found.append(ProcessStack(process.pid, command, process.state, stack, process.cpu_s, moved))
        return found

    def noted(self) -> str:
        """Return what the processes of this launcher's ranks have noted so far; stacks of theirs may stand between."""
        return "" if self._file is None else os.pread(self._file.fileno(), _MOST_NOTED, 0).decode("utf-8", "replace")

    def counted(self) -> Look:
        """Return the updates that rank 0 has made, if it is a rank of this launcher."""
        return self._counts.look(self.noted())

    def _of(self, pid: int) -> Optional[str]:
        # Any other program, started without our hook, may use the signal itself.
        is_ours = ("%s=" % STACKS) in text(Path("/proc/%d/environ" % pid))
        if self._file is None or not is_ours or not processes.catches(pid, SIGNAL):
            return None
        start = os.fstat(self._file.fileno()).st_size
        try:
            os.kill(pid, SIGNAL)
        except OSError:
            return None
        size = _size_at_rest(pid, self._file.fileno(), start)
        answer = os.pread(self._file.fileno(), size - start, start).decode("utf-8", "replace")
        return re.sub(_NOTES, "", answer)


def start_up(noted: str, started: float, updated: float) -> Dict[str, float]:
    """Return the seconds of each part between two times, as one process noted them.

    Of the time that is left, `first update` is what comes after the first samples, if any were seen.
    """
    notes = [line.split() for line in re.findall(r"(?m)^((?:met|read|compiled) \d+ [\d.]+ [\d.]+)$", noted)]
    imported = [line.split() for line in re.findall(r"(?m)^(imported \d+ [\d.]+)$", noted)]
    # Another launcher imports torch as well, before its ranks do, and a loader's workers after them.
    seen = [words for words in notes if words[0] == "met"] + imported
    pid = seen[0][1] if seen else ""
    timed: Dict[str, List[Tuple[float, float]]] = {"met": [], "read": [], "compiled": []}
    for what, of, began, ended in notes:
        if of == pid and started <= float(began) <= float(ended) <= updated:
            timed[what].append((float(began), float(ended)))
    met = timed["met"][:1]
    before = met[0][0] if met else updated
    imports = [float(at) for _, of, at in imported if of == pid and started <= float(at) <= before]
    found = {"imports": max(imports) - started} if imports else {}
    for name, times in (("rendezvous", met), ("data", timed["read"]), ("compile", timed["compiled"])):
        if times:
            found[name] = sum(ended - began for began, ended in times)
    if timed["read"]:
        at_hand = max(ended for _, ended in timed["read"])
        compiled = sum(ended - began for began, ended in timed["compiled"] if began >= at_hand)
        found["first update"] = updated - at_hand - compiled
    return found


def script_has_ended(pid: int, environ: Mapping[str, str]) -> bool:
    """Return whether the script of a rank's own Python process had ended, without an exception, before the process."""
    return bool(re.search(r"(?m)^ended %d$" % pid, text(environ.get(STACKS, ""))))


def _size_at_rest(pid: int, descriptor: int, start: int) -> int:
    """Return the file's size once a process has finished its answer to the signal, which has no end mark."""
    deadline, size, since = clock.monotonic() + _LIMIT_S, start, clock.monotonic()
    while clock.monotonic() < deadline:
        clock.sleep(_POLL_S)
        before, size = size, os.fstat(descriptor).st_size
        if size != before:
            since = clock.monotonic()
        seen = processes.look(pid)
        # On a busy host, a process may have been stopped in the middle of a line.
        quiet_s = _QUIET_IF_IT_RUNS_S if seen is not None and seen.state == "R" else _QUIET_S
        if size > start and clock.monotonic() - since >= quiet_s:
            break
    return size


def write(paths: RunPaths, stacks: Stacks, ranks: Sequence[Watched], word: str) -> Dict[int, RankStacks]:
    """Record the stacks of all ranks for the request `word`, and return them by rank."""
    from trainjob.records import stacks as stack_records
    from trainjob.records.stacks import RankStacks

    started = {rank.rank: rank.pid for rank in node_ranks.ranks_of(ranks)}
    trees = processes.trees(list(started.values()))
    host, written = node_name(), {}
    for rank in ranks:
        # A launcher that has not started a rank of its node answers for it.
        for number in rank.numbers:
            tree = trees.get(started.get(number, 0), [])
            record = RankStacks(word, rank.attempt, number, host, round(clock.time(), 3), stacks.of(tree))
            written[number] = record
    for record in written.values():
        stack_records.write(paths, record)
    return written
