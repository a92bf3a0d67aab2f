"""The node check's all-reduce on GPUs: a process for each rank does it, with the job's own torch and NCCL."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any, Callable, Dict, List, Sequence

from trainjob.contract import environment
from trainjob.launch import processes, rank_environment
from trainjob.launch.host import node_name
from trainjob.launch.nodecheck.meeting import Meeting, Work
from trainjob.launch.nodecheck.verdict import LIMIT_S, Report, Verdict, members, rounds

CHILD = (sys.executable, "-m", "trainjob.train.measure.all_reduce")
_POLL_S = 0.05


def reduce(met: Meeting, work: Work) -> "Report | Verdict":
    """Return the report of this node's ranks; a verdict if there is nothing to report."""
    without = sorted({party["node"] for party in met.parties if not party["has_torch"]})
    shared = met.share(
        {
            "without": without,
            "port": rank_environment.free_port(int.from_bytes(os.urandom(4), "big")) if met.is_first else 0,
            "rounds": rounds(members(met.parties)) if met.is_first else [],
        }
    )
    if shared["without"]:
        text = "no all-reduce before the ranks start: %s on %s has no torch"
        return Verdict(text % (sys.executable, ", ".join(shared["without"])))
    words = [*CHILD, json.dumps(shared["rounds"])]
    with contextlib.ExitStack() as stack:
        started = [_Child(words, environ, shared["port"], stack) for environ in work.children]
        _wait(started, lambda child: not child.is_ready)
        # A rank whose GPU does not work would keep the others waiting.
        if met.share(all(met.gather(all(child.is_ready and child.runs() for child in started)))):
            for child in started:
                child.go()
            _wait(started)
        return _joined([ranking.rank for ranking in work.rankings], [child.end() for child in started])


def _wait(started: "List[_Child]", is_awaited: "Callable[[_Child], bool]" = bool) -> None:
    """Return when no running process is awaited any more, or after the limit."""
    deadline = time.monotonic() + LIMIT_S
    # Each is asked every time, because it then notes that it has ended.
    while any([child.runs() and is_awaited(child) for child in started]) and time.monotonic() < deadline:  # noqa: C419
        time.sleep(_POLL_S)


def _joined(numbers: List[int], seen: List[Dict[str, Any]]) -> Report:
    # A failure counts for the first rank of the report, so the rank that failed comes first.
    first = next((at for at, one in enumerate(seen) if one.get("failed")), 0)
    return Report(
        node=node_name(),
        ranks=[numbers[first], *(number for number in numbers if number != numbers[first])],
        failed=seen[first].get("failed", ""),
        failed_after_s=seen[first]["seconds"],
        lost=next((one["lost"] for one in seen if "lost" in one), ""),
        is_ready=all("ready" in one for one in seen),
        is_done=all("wrong" in one for one in seen),
        wrong=[rank for one in seen for rank in one.get("wrong", ())],
        has_wrong_sum=any(one.get("has_wrong_sum") for one in seen),
        mb_per_s=[pair for one in seen for pair in one.get("mb_per_s", ())],
    )


class _Child:
    """The process of one rank. It prints an object when ready, begins when it reads a line, and prints its report."""

    def __init__(self, words: Sequence[str], environ: Dict[str, str], port: int, stack: contextlib.ExitStack) -> None:
        self._printed: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        self._errors: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        self._began = time.monotonic()
        self._seconds = 0.0
        token = environ.get(environment.TOKEN, "") + ".node-check"
        reading, self._input = os.pipe()
        stack.callback(os.close, self._input)
        stack.callback(os.close, reading)
        self._process = subprocess.Popen(
            list(words),
            stdin=reading,
            stdout=self._printed,
            stderr=self._errors,
            env={"OMP_NUM_THREADS": "1", **environ, environment.MASTER_PORT: str(port), environment.TOKEN: token},
            preexec_fn=lambda: processes.end_with_parent(signal.SIGKILL),  # noqa: PLW1509 - this process has one thread
        )
        stack.callback(self._process.kill)

    @property
    def is_ready(self) -> bool:
        """Whether its GPU has answered."""
        return os.fstat(self._printed.fileno()).st_size > 0

    def runs(self) -> bool:
        """Return whether the process still works."""
        if self._process.poll() is None:
            return True
        self._seconds = self._seconds or time.monotonic() - self._began
        return False

    def go(self) -> None:
        """Make it begin."""
        with contextlib.suppress(OSError):
            os.write(self._input, b"\n")

    def end(self) -> Dict[str, Any]:
        """Return the report that the process printed, and its error if it failed by itself."""
        has_failed = self._process.poll() not in (None, 0)
        self._process.kill()
        self._process.wait()
        seen: Dict[str, Any] = {"seconds": self._seconds}
        for line in _lines(self._printed):
            with contextlib.suppress(ValueError):
                printed = json.loads(line)
                seen.update(printed if isinstance(printed, dict) else {})
        if has_failed:
            last = ([line for line in _lines(self._errors) if line.strip()] or ["nothing printed"])[-1]
            seen["failed"] = "exit code %d: %s" % (self._process.returncode, last.strip())
        return seen


def _lines(file: IO[bytes]) -> List[str]:
    file.seek(0)
    return file.read().decode("utf-8", "replace").splitlines()
