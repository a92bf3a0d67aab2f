"""Forwards a request to stop to the ranks: to each once, by a signal that it handles, and to no other process."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence, Set

from trainjob.contract import clock
from trainjob.contract.environment import ATTEMPT
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.rank_environment import Rank
from trainjob.records import attempts
from trainjob.records.attempts import StopRequest

# How often ranks are looked at: at first, and later.
_LOOK_S, _SOON_S, _LOOK_LATER_S = 0.2, 10.0, 2.0
# A program may take TERM some lines before it takes USR1.
_TERM_AFTER_S = 5.0
_WRAPPED = ("sh", "bash", "dash", "ksh", "zsh", "python")
# Files on other hosts' clocks, and a file system that keeps whole seconds.
_CLOCKS_S = 1.0


class Handler(NamedTuple):
    """A process that handles a signal: a rank, or one of those that the started process has started itself."""

    pid: int
    started: int
    rank: Rank


class StopRequests:
    """The requests to stop that ranks of this launcher get."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._began_at = 0.0
        self._waiting: Set[int] = set()  # processes of ranks, and of launchers whose ranks come later
        self._asked: Dict[int, signal.Signals] = {}
        self._blocks: Set[int] = set()
        self._takes_term: Dict[int, float] = {}  # and not USR1, since when
        self._folders: List[Path] = []
        self.is_unrecorded = False  # a request that no file tells of

    @property
    def look_within_s(self) -> float:
        """How soon to look again whether a rank can be asked; an hour where none is left to be."""
        if not self._waiting:
            return 3600.0
        now = clock.monotonic()
        # Launchers that begin together ask together: a program may save with all of its ranks in their handlers.
        due_s = [max(0.0, since + _TERM_AFTER_S - now) for since in self._takes_term.values()]
        return min([_LOOK_S if now - self._began_at < _SOON_S else _LOOK_LATER_S, *due_s])

    def begin(self, running: Dict[int, Rank]) -> None:
        """Ask these ranks to stop as soon as they can take it: USR1 has come."""
        self._began_at = clock.monotonic()
        self._waiting |= set(running)

    def forget(self, pid: int) -> None:
        """Ask this one no more: it has ended."""
        self._waiting.discard(pid)

    def look(self, running: Dict[int, Rank]) -> None:
        """Ask those that can take it by now. A rank that handles neither USR1 nor TERM is left alone."""
        seen: Set[int] = set()
        for pid in list(self._waiting):
            rank = running[pid]
            ranks = _ranks_of(pid, rank)
            seen.update(ranks)
            for one in ranks:
                self._ask(one, rank)
            for one in ranks:
                if one in self._asked:
                    self._asked.setdefault(pid, self._asked[one])
            if not rank.ranks_per_node and pid in self._asked:
                self._waiting.discard(pid)
        # A launcher like torchrun may have ended a rank, or have started it anew.
        self._takes_term = {pid: since for pid, since in self._takes_term.items() if pid in seen}

    def _ask(self, pid: int, rank: Rank) -> None:
        if pid in self._asked:
            return
        for below in _with_wrapped(pid):
            if self._takes_usr1(below):
                self._send(below, signal.SIGUSR1, rank, pid)
                return
        taking = next((below for below in _behind_wrappers(pid) if processes.catches(below, signal.SIGTERM)), None)
        if taking is None:
            self._takes_term.pop(pid, None)
        elif clock.monotonic() - self._takes_term.setdefault(pid, clock.monotonic()) >= _TERM_AFTER_S:
            self._send(taking, signal.SIGTERM, rank, pid)

    def _takes_usr1(self, pid: int) -> bool:
        if processes.catches(pid, signal.SIGUSR1):
            return True
        # One that waits for it blocks it. So does, for a moment, a process that starts another one.
        blocked_before = pid in self._blocks
        self._blocks.discard(pid)
        if processes.hears(pid, signal.SIGUSR1):
            self._blocks.add(pid)
            return blocked_before
        return False

    def _send(self, pid: int, number: signal.Signals, rank: Rank, of: int) -> None:
        self._takes_term.pop(of, None)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            self.note(of, number, rank)

    @staticmethod
    def handling(running: Dict[int, Rank], number: signal.Signals) -> List[Handler]:
        """Return which of these ranks handle a signal, before they get it. This reads nothing but /proc."""
        return [
            Handler(one, pid, rank)
            for pid, rank in running.items()
            for one in _ranks_of(pid, rank)
            if processes.catches(one, number)
        ]

    def record_signal(self, handlers: Sequence[Handler], number: signal.Signals) -> None:
        """Record that these got a signal that all ranks get."""
        for one in handlers:
            self.note(one.pid, number, one.rank)
            self._asked.setdefault(one.started, number)

    def note(self, pid: int, number: signal.Signals, rank: Rank) -> None:
        """Record that a handler of this rank gets the request, from any sender."""
        self._asked.setdefault(pid, number)
        self._folders += [one for one in working_folders(pid, rank) if one not in self._folders]
        # srun ends the others once a rank has failed. The launcher in a container does so of what runs there.
        is_of_failure = number == signal.SIGTERM and self._paths.failure.exists()
        if not (rank.holds_input or is_of_failure):
            try:
                request = StopRequest(number.name[3:], clock.time())
                attempts.note_request(self._paths, int(rank.environment[ATTEMPT]), request)
                self.is_unrecorded = False
            except OSError:
                self.is_unrecorded = True

    def has_asked(self, pid: int) -> bool:
        """Return whether this rank, or one that it has started, was asked."""
        return pid in self._asked

    def finish(self, rank: Rank) -> None:
        """Look, once all ranks have ended, whether something was written after the request."""
        attempt = int(rank.environment[ATTEMPT])
        asked, saved = self._paths.asked(attempt), self._paths.saved(attempt)
        if not self._asked or rank.holds_input or not asked.exists() or saved.exists():
            return
        from trainjob.records import tracked

        with contextlib.suppress(OSError):
            # By the clock of the file system, where the ranks write as a rule.
            places = places_of_saves(self._paths, rank, self._folders)
            if tracked.newest_checkpoint(places) >= asked.stat().st_mtime - _CLOCKS_S:
                saved.touch()


def places_of_saves(paths: RunPaths, rank: Rank, folders: Sequence[Path]) -> List[Path]:
    """Return where the processes of a rank, whose working folders these are, may write their checkpoints."""
    from trainjob.launch.reading.recording import folders_of, stated_in_files

    first, command = folders[0], rank.command
    return [*folders, *folders_of(first, command), *stated_in_files(first, command), paths.folder]


def working_folders(pid: int, rank: Rank) -> List[Path]:
    """Return the folder in which a process of the rank works, and the one in which it was started."""
    with contextlib.suppress(OSError):  # it has just ended
        return [Path(os.readlink("/proc/%d/cwd" % pid)), rank.folder]
    return [rank.folder]


def _ranks_of(pid: int, rank: Rank) -> List[int]:
    """Return the ranks in a process that was started: itself, or those that it has started.

    torchrun and its like handle TERM themselves, by ending all ranks: they are never asked in the place of their ranks.
    """
    if not rank.ranks_per_node:
        return [pid]
    from trainjob.contract.programs import launchers
    from trainjob.launch.witness import node_ranks

    found = node_ranks.pids_below(pid)
    return [one for one in found if one != pid] if launchers.find(rank.command) is not None else found


def _with_wrapped(pid: int) -> List[int]:
    """Return a process, and below it the shells and Pythons that were started as programs of their own.

    What a rank has forked, or spawned to load data, is no such program.
    """
    mine = _words(pid)
    found = [pid]
    for child in processes.children_of(pid):
        words = _words(child)
        name = os.path.basename(words[0]) if words else ""
        is_worker = words == mine or any("multiprocessing" in word for word in words)
        if not is_worker and (name.rstrip("0123456789.") in _WRAPPED or not _is_interpreter(mine)):
            found += _with_wrapped(child)
    return found


def _behind_wrappers(pid: int) -> List[int]:
    """Return a process, and what runs behind it where it is a shell, `timeout` or the like, and no Python."""
    found = [pid]
    while not _is_interpreter(_words(found[-1])) and len(processes.children_of(found[-1])) == 1:
        found += processes.children_of(found[-1])
    return found[:1] if _is_interpreter(_words(pid)) else found[-1:]


def _is_interpreter(words: List[str]) -> bool:
    return bool(words) and os.path.basename(words[0]).startswith("python")


def _words(pid: int) -> List[str]:
    try:
        return Path("/proc/%d/cmdline" % pid).read_bytes().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return []
