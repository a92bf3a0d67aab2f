"""Runs the elements of an array as steps of one job: python -m trainjob.launch.pack OPTIONS ELEMENTS RUN_DIR.

It starts the job's own script once for each element, as Slurm does for an array, and gives it a node that has a share
to spare. What the end of an element means stands in the element's run directory. One that is to start again waits for
the next free share, and a node that has failed gets no element any more.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Deque, Dict, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from trainjob.contract import exits, states
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.ranks.guard import PASSED_ON, WATCHED, guarded, in_child
from trainjob.records import attempts, events
from trainjob.records.files import keep_others_from_writing, remove_if_there

# Between two looks for what others ask by files. A share is given away as soon as its element has ended.
_LOOK_S = 2.0
_ELEMENT = "TRAINJOB_ELEMENT"


class Begun(NamedTuple):
    """An element that runs: its number, its share of its node, its attempt before, and the process of its script."""

    number: int
    node: str
    share: int
    attempt: int
    script: "subprocess.Popen[bytes]"


class Packing:
    """Runs `numbers`, the elements of one run, `of_node` at once on each of `nodes` and `at_once` at once on all.

    `environ` is the environment of their scripts.
    """

    def __init__(
        self,
        paths: RunPaths,
        numbers: Sequence[int],
        nodes: Sequence[str],
        of_node: int,
        at_once: int,
        environ: Mapping[str, str],
    ) -> None:
        self._paths, self._at_once, self._numbers = paths, at_once, numbers
        self._free = {node: list(range(of_node)) for node in nodes}  # the numbers of free shares
        self._waiting: Deque[int] = deque(number for number in numbers if not self._has_ended(number))
        self._running: Dict[int, Begun] = {}
        self._cancelled: Set[int] = set()
        self._told: Set[Tuple[int, int]] = set()  # the processes of scripts, and the signals that they were sent
        self._is_asked = self._is_told = False
        self._attempt = attempts.current(paths)
        self._environ = dict(environ)

    def run(self) -> int:
        """Return 0 once all elements are complete, or some are to continue in another start of the job; else 1."""
        try:
            self._look()
            while self._starts():
                received = signal.sigtimedwait(WATCHED, _LOOK_S)
                self._reap()
                self._look(received and PASSED_ON.get(signal.Signals(received.si_signo)))
            return self._end()
        finally:
            processes.kill_children()

    # -- starting ------------------------------------------------------------------------------

    def _starts(self) -> bool:
        """Start elements as long as a share is free, and return whether any runs then."""
        for number in [number for number in self._waiting if number in self._cancelled]:
            self._waiting.remove(number)
            self._start(number)
        while self._waiting and not (self._is_asked or self._is_told) and len(self._running) < self._at_once:
            node = max(self._free, key=lambda name: len(self._free[name]), default="")
            if not self._free.get(node):
                break
            self._start(self._waiting.popleft(), node, self._free[node].pop(0))
        return bool(self._running)

    def _start(self, number: int, node: str = "", share: int = 0) -> None:
        """Start an element's script; without a node, to record that it was cancelled."""
        paths = self._paths.of_element(number)
        own = {_ELEMENT: str(number), _ELEMENT + "_NODE": node, _ELEMENT + "_SHARE": str(share)}
        before = attempts.current(paths)  # read first: the script may begin, and even end, before Popen returns
        script = subprocess.Popen(
            ["bash", self._paths.batch_script.name],
            cwd=str(self._paths.folder),
            env={**self._environ, **own},
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: in_child(usr1=signal.SIG_DFL),  # noqa: PLW1509 - this process has one thread
        )
        self._running[script.pid] = Begun(number, node, share, before, script)

    # -- watching ------------------------------------------------------------------------------

    def _reap(self) -> None:
        for pid, ended in processes.reap().items():
            begun = self._running.pop(pid, None)
            if begun is None:
                continue
            begun.script.returncode = ended.returncode
            paths = self._paths.of_element(begun.number)
            if begun.node in self._free:
                self._free[begun.node].append(begun.share)
                attempt = str(attempts.current(paths))
                bad = {one["node"]: one for one in events.excluded_nodes(paths) if one["attempt"] == attempt}
                if begun.node in bad:
                    del self._free[begun.node]
                    self._say("node %s %s: no element starts there any more" % (begun.node, bad[begun.node]["why"]))
            if self._has_ended(begun.number):
                self._cancelled.discard(begun.number)
            elif attempts.current(paths) > begun.attempt or begun.number in self._cancelled or self._is_told:
                self._waiting.append(begun.number)
            else:
                self._say("the script of element %d ended with %d before it began" % (begun.number, ended.returncode))

    def _look(self, received: Optional[int] = None) -> None:
        """Hand on what this process was told, and what others ask by files, of the job or of single elements."""
        self._is_told = self._is_told or received == signal.SIGTERM
        self._is_asked = self._is_asked or received == signal.SIGUSR1
        self._is_asked = self._is_asked or attempts.is_asked_by_file(self._paths, self._attempt)
        with contextlib.suppress(OSError):
            asked = {name for name in os.listdir(str(self._paths.cancels)) if name.isdigit()}  # others are half written
            at_work = [*self._waiting, *(begun.number for begun in self._running.values())]
            self._cancelled.update(number for number in at_work if str(number) in asked)
            for name in asked:
                remove_if_there(self._paths.cancels / name)
        for pid, begun in self._running.items():
            if not begun.node:  # it only records that its element was cancelled
                continue
            if self._is_told or begun.number in self._cancelled:
                self._tell(pid, begun, signal.SIGTERM)
            elif self._is_asked:
                self._tell(pid, begun, signal.SIGUSR1)

    def _tell(self, pid: int, begun: Begun, number: int) -> None:
        """Send a script a signal once it can handle that, and once only."""
        has_begun = attempts.current(self._paths.of_element(begun.number)) > begun.attempt
        if has_begun and (pid, number) not in self._told:
            self._told.add((pid, number))
            os.kill(pid, number)

    # -- ending --------------------------------------------------------------------------------

    def _has_ended(self, number: int) -> bool:
        return attempts.state(self._paths.of_element(number)) in states.ENDED

    def _end(self) -> int:
        """Leave the marker for which the job starts again, if elements are to continue; return the code of the job."""
        elements = [self._paths.of_element(number) for number in self._numbers]
        left = [paths for paths in elements if attempts.state(paths) not in states.ENDED]
        complete = sum(attempts.state(paths) == states.COMPLETED for paths in elements)
        code = 0 if complete == len(elements) else exits.USER_OR_CLUSTER_CAN_FIX
        if self._waiting:
            # Two starts that got no further are the last. One whose time was over has got further.
            further = sum(map(attempts.current, elements)) if self._is_asked else len(elements) - len(left)
            attempts.ask_to_requeue(self._paths, further)
            code = 0
        self._say(
            "%d of %d elements are complete, and %d are to continue" % (complete, len(elements), len(self._waiting))
        )
        attempts.leave_end_mark(self._paths, self._attempt, 0, code)
        return code

    def _say(self, text: str) -> None:
        sys.stderr.write("trainjob: %s\n" % text)
        sys.stderr.flush()


def _environment_of(pid: int) -> Dict[str, str]:
    """Return the environment in which a process began: what Slurm gave the job's script, without what that has set."""
    words = Path("/proc/%d/environ" % pid).read_bytes().split(b"\0")
    return {name: value for name, _, value in (os.fsdecode(word).partition("=") for word in words) if name}


def main(arguments: Sequence[str]) -> int:
    """Return the code of the job."""
    parser = argparse.ArgumentParser(prog="pack", usage="pack [options] ELEMENTS RUN_DIR")
    parser.add_argument("--script", type=int, required=True, help="process of the job's own script")
    parser.add_argument("--of-node", type=int, required=True, help="elements at once on a node")
    parser.add_argument("--at-once", type=int, required=True, help="elements at once on all nodes")
    parser.add_argument("--nodes", default="", help="names of the nodes, with commas")
    parser.add_argument("--anew", action="store_true", help="begin elements that have ended as well")
    parser.add_argument("elements", metavar="ELEMENTS", help="such as 0-3,7")
    parser.add_argument("run_dir", metavar="RUN_DIR")
    options = parser.parse_args(arguments)
    paths, ends = RunPaths(Path(options.run_dir).resolve()), [part.split("-") for part in options.elements.split(",")]
    numbers = [number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)]
    keep_others_from_writing(paths.folder)
    for number in numbers if options.anew else ():
        remove_if_there(paths.of_element(number).state)
        remove_if_there(paths.cancels / str(number))
    nodes, environ = list(filter(None, options.nodes.split(","))), _environment_of(options.script)
    return guarded(Packing(paths, numbers, nodes, options.of_node, options.at_once, environ).run)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)
