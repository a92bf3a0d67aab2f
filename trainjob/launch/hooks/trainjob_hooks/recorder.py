"""Collects what a process does between weight updates, writes it down, and waits for an interruption."""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import is_of_handler

_WAIT_S = 120.0
_MOST_FILES = 2000  # of an event


class UpdateRecorder:
    """The actions of this process since its last update, and the file to which they are written."""

    def __init__(self, run_dir: str) -> None:
        self.folder = os.path.join(run_dir, "updates")
        self.attempt = int(os.environ.get("TRAINJOB_ATTEMPT") or 1)
        self.pid = os.getpid()
        self.update = 0
        self.batches: List[Tuple[int, int, List[str]]] = []  # since the last update: pass, place in it, samples
        self.losses: List[Any] = []
        self.divided = False  # a loss since the last update, or the gradients after the last backward
        self.watched: Any = None  # a weight, and the norm of its gradient after the last backward
        self.watched_norm: Optional[float] = None
        self.rank_at_start = os.environ.get("RANK")
        self.scale: Optional[float] = None
        self.passes = 0  # over loaders, while gradients are recorded
        self.depth = 0  # of optimizers that call others, and of saves that call others
        self.evaluated = False
        self.calls = 0  # of a model's forward, without a loader
        self.is_in_model = False
        self.is_evaluating = False  # a model has trained in evaluation mode since the last update
        self.kept = False  # gradients of the last update were there when the first loss after it went back
        self.steppers: Set[int] = set()  # the optimizers that have made a step
        self.weights = ""  # the digest that the last update left
        self.is_scaled = False  # the gradients since the last update
        self.models: List[Any] = []  # references to those in DistributedDataParallel
        self.reduced = 0  # calls of all_reduce
        self.noted: Set[str] = set()
        self.project = os.path.realpath(os.path.join(run_dir, "code", "project"))
        self.modules = 0  # that were loaded at the last update
        self.imported: Set[str] = set()  # files of the project
        self.failed = False
        self.wait_at = self._wait_at()

    def _wait_at(self) -> Optional[Dict[str, Any]]:
        try:
            folder = os.environ["TRAINJOB_RECORD_UPDATES"]
            with open(os.path.join(folder, "wait-%d.json" % self.attempt)) as stream:
                asked: Dict[str, Any] = json.load(stream)
                return asked
        except (OSError, ValueError):
            return None

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return int(os.environ.get("RANK") or 0)

    def is_here(self) -> bool:
        """Return whether this is the process that began to record, and no fork of it."""
        return os.getpid() == self.pid

    def write(self, event: str, **fields: Any) -> None:
        """Append an event to the rank's file."""
        line = {"attempt": self.attempt, "event": event, "update": self.update}
        line.update(fields)
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, "rank-%04d.jsonl" % self.rank)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, (json.dumps(line, separators=(",", ":")) + "\n").encode())
        finally:
            os.close(descriptor)

    def note(self, event: str, **fields: Any) -> None:
        """Write an event that is recorded only once."""
        if event not in self.noted:
            self.noted.add(event)
            self.write(event, **fields)

    def record_imports(self) -> None:
        """Write which files of the project have been imported since the last time."""
        if len(sys.modules) == self.modules:
            return
        self.modules = len(sys.modules)
        within = self.project + os.sep
        places = [getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values())]
        found = {os.path.realpath(place) for place in places if isinstance(place, str)}
        new = sorted(place[len(within) :] for place in found - self.imported if place.startswith(within))
        self.imported |= found
        for at in range(0, len(new), _MOST_FILES):
            self.write("imports", files=new[at : at + _MOST_FILES])

    def keep(self, path: str) -> None:
        """Keep the file that a save is about to write over: `verify` puts it back when the save has been killed."""
        import shutil

        kept = os.path.join(os.environ["TRAINJOB_RECORD_UPDATES"], "kept-%d" % self.attempt)
        had = os.path.isfile(path)
        if had:
            shutil.copy2(path, kept)
        with open(kept + ".json", "w") as stream:
            json.dump({"path": path, "kept": kept if had else None}, stream)

    def waits(self, moment: str) -> bool:
        """Return whether this is the moment at which `verify` interrupts this attempt."""
        asked = self.wait_at
        if asked is None or self.rank != 0 or not self.is_here():
            return False
        return bool(asked["moment"] == moment and self.update >= asked["after"])

    def wait(self) -> None:
        """Stay here until a signal that the script handles has arrived, or one that ends this process."""
        import select
        import signal

        self.wait_at = None
        names = ("SIGUSR1", "SIGTERM")
        handled = [name[3:] for name in names if callable(signal.getsignal(getattr(signal, name)))]
        ours = {int(getattr(signal, name)) for name in names}
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        try:
            before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        except ValueError as error:
            if is_of_handler(error):
                raise
            before = None  # in another thread, which sees no signal: the time limit ends the wait
        self.write("paused", pid=os.getpid(), handles=handled)
        try:
            deadline = time.monotonic() + _WAIT_S
            while time.monotonic() < deadline:
                if select.select([reader], [], [], 0.05)[0] and ours.intersection(os.read(reader, 512)):
                    break
        finally:
            if before is not None:
                signal.set_wakeup_fd(before)
            os.close(reader)
            os.close(writer)
        self.write("resumed")


_recorder: Optional[UpdateRecorder] = None


def begin(run_dir: str) -> None:
    """Record into a run directory from now on."""
    global _recorder  # noqa: PLW0603 - a process has one
    _recorder = UpdateRecorder(run_dir)
    atexit.register(quietly(UpdateRecorder.record_imports))


def at_work() -> Optional[UpdateRecorder]:
    """Return the recorder of this process; None before it records."""
    return _recorder


def quietly(method: Callable[..., None]) -> Callable[..., None]:
    """Return `method` so that no fault in it reaches the script; the first one is written down."""

    @functools.wraps(method)
    def recorded(*args: Any) -> None:
        recorder = _recorder
        if recorder is None or recorder.failed or not recorder.is_here():
            return
        try:
            method(recorder, *args)
        except Exception as error:  # whatever it is, the script has to train on
            if is_of_handler(error):
                raise
            recorder.failed = True
            try:
                recorder.write("blind", why="%s: %s" % (type(error).__name__, error))
            except Exception as second:  # a full disk, which the script will meet as well
                if is_of_handler(second):
                    raise

    return recorded
