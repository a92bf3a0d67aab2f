"""The one-word files of a run directory: attempt, state, exit_code, job_id, step_gone, requeue, .token and .stacks.

An attempt is one start of a run. A newer attempt fences an older one. Every launcher loads this module: it is small.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import NamedTuple, Optional

from trainjob.contract import clock
from trainjob.contract.paths import RunPaths
from trainjob.records.files import DamagedError, load_number, load_word, read_number, read_word, write_atomically

# More than a signal's name and a time.
_REQUEST_BYTES = 40


def current(paths: RunPaths) -> int:
    """Return the number of the newest attempt; 0 before the first."""
    return read_number(paths.attempt) or 0


def load_current(paths: RunPaths) -> Optional[int]:
    """Return the number of the newest attempt; None before the first. Raises DamagedError."""
    return load_number(paths.attempt)


def is_stale(paths: RunPaths, attempt: int) -> bool:
    """Return whether a newer attempt has begun, so that `attempt` must stop and write nothing."""
    return current(paths) > attempt


def state(paths: RunPaths) -> Optional[str]:
    """Return the state that the job script wrote; None before it has written one."""
    return read_word(paths.state)


def ended_at(paths: RunPaths) -> float:
    """Return when the newest state was written; infinity where there is none."""
    try:
        return paths.state.stat().st_mtime
    except OSError:
        return float("inf")


def load_state(paths: RunPaths) -> Optional[str]:
    """Return what `state` does. Raises DamagedError for a word that is no state."""
    from trainjob.contract import states

    word = load_word(paths.state)
    if word is not None and word not in states.ALL:
        expected = ", ".join(states.ALL)
        raise DamagedError("%s: holds %r, expected one of %s" % (paths.state.name, word[:40], expected))
    return word


def is_asked_by_file(paths: RunPaths, attempt: int) -> bool:
    """Return whether the job script asks this attempt to stop by the file that it writes for launchers."""
    return read_number(paths.request) == attempt


def exit_code(paths: RunPaths) -> Optional[int]:
    """Return the exit code that the job script wrote; None before its end."""
    return read_number(paths.exit_code)


def load_exit_code(paths: RunPaths) -> Optional[int]:
    """Return what `exit_code` does. Raises DamagedError."""
    return load_number(paths.exit_code)


def job_id(paths: RunPaths) -> Optional[str]:
    """Return the scheduler's id of the job that runs or comes next; None if the job script noted none."""
    return read_word(paths.job_id)


def has_lost_step(paths: RunPaths, attempt: int) -> bool:
    """Return whether all ranks of the attempt have ended and its srun has not, as its job script noted."""
    return read_number(paths.step_gone) == attempt


def token(paths: RunPaths) -> Optional[str]:
    """Return the word by which hosts see that they share the run directory."""
    return read_word(paths.token)


def ask_to_requeue(paths: RunPaths, update: int) -> None:
    """Write the marker for which the job script asks for another attempt, after the checkpoint of `update`."""
    write_atomically(paths.requeue, "%d\n" % update)


def leave_end_mark(paths: RunPaths, attempt: int, rank: Optional[int], code: int) -> None:
    """Tell the job script that a rank has ended, or None: all of them, and the exit code.

    srun can't if the daemon of its step was killed, and bash loses the code of a child that ends as a signal comes.
    """
    try:
        paths.end_marks.mkdir(exist_ok=True)
        # Not fsynced: nothing reads it after a power cut.
        write_atomically(paths.end_mark(attempt, rank), "%d\n" % code, durable=False)
    except OSError as error:
        ended = "all ranks" if rank is None else "rank %d" % rank
        sys.stderr.write("trainjob: the end of %s can't be recorded: %s\n" % (ended, error.strerror))


class StopRequest(NamedTuple):
    """A request to stop, as a handler of a rank got it first: the signal, and when, in seconds since 1970."""

    signal: str
    at: float


def note_request(paths: RunPaths, attempt: int, request: StopRequest) -> None:
    """Note that a handler of a rank has got a request to stop; the first one of an attempt stands. Raises OSError."""
    asked, words = paths.asked(attempt), "%s %.3f\n" % request
    if asked.exists():
        return
    try:
        write_atomically(asked, words, durable=False)
    except OSError:
        try:
            with open(str(paths.room_for_request), "r+b") as room:
                room.write(words.encode())
            os.replace(str(paths.room_for_request), str(asked))
        except OSError:
            if not asked.exists():  # else the launcher of another node has done so
                raise


def note_signal(paths: RunPaths, attempt: int, signal: str, who: str) -> None:
    """Note which launcher got a signal, and from whom: its job script may not have got it. The first one stands."""
    noted = paths.bypassed(attempt, signal)
    with contextlib.suppress(OSError):
        if not noted.exists():
            write_atomically(noted, "%.3f %s\n" % (clock.time(), who), durable=False)


def keep_room_for_request(paths: RunPaths) -> None:
    """Write a file whose space the note of a request takes if the disk is full by then."""
    with contextlib.suppress(OSError):
        write_atomically(paths.room_for_request, "\n" * _REQUEST_BYTES, durable=False)


def request(paths: RunPaths, attempt: int) -> Optional[StopRequest]:
    """Return the first request to stop that a rank of the attempt got; None if none is noted."""
    found = re.match(r"([A-Z0-9]{1,12}) (\d{1,12}\.\d{1,6})\Z", read_word(paths.asked(attempt)) or "")
    return None if found is None else StopRequest(found.group(1), float(found.group(2)))


def asked_for_stacks(paths: RunPaths) -> Optional[str]:
    """Return the word of the newest request for the ranks' stacks; None without one."""
    return read_word(paths.stacks_request)


def ended_well(paths: RunPaths, attempt: int) -> int:
    """Return how many launchers of this attempt have noted that their ranks ended with 0."""
    try:
        names = [name for name in os.listdir(str(paths.end_marks)) if name.startswith("%d." % attempt)]
    except OSError:
        return 0
    return sum(read_number(paths.end_marks / name) == 0 for name in names)


def ask_for_stacks(paths: RunPaths, word: str) -> None:
    """Ask the launchers to write down the stacks of all ranks. Raises OSError."""
    write_atomically(paths.stacks_request, word + "\n")


def starts(paths: RunPaths) -> int:
    """Return how many starts the job script has counted since the run was submitted or resumed; 1 if it counts none."""
    found = re.match(r"(\d{1,9})\b", read_word(paths.starts) or "")
    return int(found.group(1)) if found else 1


def progress_before(paths: RunPaths) -> int:
    """Return the update that the run had reached when this attempt began, as its job script has noted; 0 if unknown."""
    found = re.match(r"\d{1,9} \d{1,9} (?:update-)?(\d{1,15})\Z", read_word(paths.starts) or "")
    return int(found.group(1)) if found else 0
