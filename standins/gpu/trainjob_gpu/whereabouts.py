"""The position of each rank: asked by one that waits in a collective, answered by a thread, as no signal is free.

All ranks of a rehearsal are processes of one machine, so that a question and its answers are small files.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import List, Optional

from trainjob_gpu import notes

FOLDER = "TRAINJOB_STANDIN_GPUS_SUMMARY"  # names the folder that ranks write to
_POLL_S = 0.5
_ANSWER_WITHIN_S = 5.0


class _Own:
    rank: Optional[int] = None
    process = 0


def begin(rank: int) -> None:
    """Answer from now on; called with this process's rank in the group of all, which is made first."""
    if is_of_group():
        return
    _Own.rank, _Own.process = rank, os.getpid()
    if os.environ.get(FOLDER):
        _folder().mkdir(parents=True, exist_ok=True)
        threading.Thread(target=_answer, args=(_Own.process,), name="trainjob-whereabouts", daemon=True).start()


def rank() -> Optional[int]:
    """Return this process's rank in the group of all, or else that of its environment; None if neither is known."""
    if is_of_group():
        return _Own.rank
    named = os.environ.get("RANK", "")
    return int(named) if named.isdigit() else None


def is_of_group() -> bool:
    """Return whether this process is a rank of a group."""
    return _Own.process == os.getpid()


def ask() -> List[str]:
    """Return a line for each rank of this machine that answers, with the lines of the user's script that it is at."""
    if not os.environ.get(FOLDER):
        return []
    began = time.time()
    (_folder() / ("asked-%d" % os.getpid())).touch()
    ranks = {path.name for path in _folder().glob("began-*")}
    deadline = time.monotonic() + _ANSWER_WITHIN_S
    answers: List[str] = []
    while time.monotonic() < deadline and len(answers) < len(ranks):
        time.sleep(_POLL_S / 5)
        answers = [path.read_text() for path in sorted(_folder().glob("at-*")) if path.stat().st_mtime >= began]
    return answers


def _folder() -> Path:
    return Path(os.environ[FOLDER]) / "whereabouts"


def _answer(process: int) -> None:
    (_folder() / ("began-%d" % process)).touch()
    last = time.time()
    while os.getpid() == process:
        time.sleep(_POLL_S)
        try:
            asked = max((path.stat().st_mtime for path in _folder().glob("asked-*")), default=0.0)
            if asked > last:
                last = asked
                target = _folder() / ("at-%04d" % (_Own.rank or 0))
                staging = target.with_name(".%s.%d" % (target.name, process))
                staging.write_text("rank %d is at %s" % (_Own.rank or 0, notes.lines_of_script(of_main_thread=True)))
                os.replace(str(staging), str(target))
        except OSError:
            return  # the folder goes with the rehearsal
