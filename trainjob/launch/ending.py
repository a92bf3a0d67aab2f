"""Decides what the end of an attempt means: its state, why, and who starts the run again.

    cd RUN_DIR/code && python3 -m trainjob.launch.ending RUN_DIR FACT…

Job scripts of every kind call it, and do what it prints: the state, what comes next, and one sentence. A FACT is the
name of a field of `AttemptFacts`, or NAME=VALUE; the files of the run directory give the others. `decide` is pure, and
its table stands in docs/protocol.md.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Sequence

from trainjob.contract import clock, exits, states
from trainjob.contract.paths import RunPaths

# What comes next.
NOTHING = "-"
AGAIN = "again"  # the script has the job started again
ELSEWHERE = "elsewhere"  # Slurm does, or a job that waits already
MORE_MEM, MORE_TIME = "more mem", "more time"  # the script submits a job that asks for more
FORGET = "forget"  # the script cancels a start of which the run has no need
# A rank that saves when it is asked, and then lets the signal end it: 128 + TERM or USR1, or the launcher's word.
_BY_REQUEST = (143, 138, exits.CHECKPOINTED, exits.UNRECORDED_REQUEST)
_KILLED = 137
_ENDED_BY_SIGNAL = (_KILLED, 143)
_LAUNCHER_KILLED = (
    "no rank's failure is recorded: KILL may have ended the launcher (python -m trainjob.launch) or a command "
    "before it, as kill -9 and a lack of memory do"
)
_PREEMPTED = "preempted by Slurm"
_NOT_SAVED = "nothing was written after the request"
_BY_LIMIT = "the time limit has ended this attempt"
_FROM_EARLIER = ", after a checkpoint"
_UNRECORDED = "srun returned 0, but not every rank has recorded its end"


class AttemptFacts(NamedTuple):
    """The facts of an attempt that has ended. Without a scheduler, those about one are as their defaults say."""

    code: int = 0  # of the rank that failed first; 0: all ranks have ended with 0
    signalled: bool = False  # the job script received TERM or INT
    limit: bool = False  # by itself, because it has seen the time limit pass
    asked: str = ""  # the signal that a handler of a rank got first
    asked_at: Optional[float] = None
    announced: bool = False  # the job script got USR1: its time is nearly over
    ended_at: Optional[float] = None
    saved: bool = False  # something was written after that
    marker: bool = False  # the file `requeue`
    done: bool = False  # the file `done`
    stop: bool = False  # the file `stop`
    update: Optional[int] = None  # by this attempt, as read
    total: Optional[int] = None
    may_be_of_epoch: bool = False  # the total, of a bar which may be drawn anew in each epoch
    checkpoint: bool = False  # one is there, whenever it was written
    durable: int = 0  # the last update before it, as read
    advanced: bool = False  # this attempt wrote one, of an update that the attempt before did not reach, as read
    kept: bool = False  # this attempt wrote one, and no update of it could be read
    kept_before: bool = False  # the attempt before was already continued from a checkpoint of before its end
    failed: bool = False  # a rank has failed, by no request: failure.json
    terminated: bool = False  # launchers have told ranks to end
    trains: bool = False  # ranks of our runtime, which leave the marker unless they are done
    blamed: bool = False  # for what this attempt ended of, every node is to blame
    attempt: int = 1
    scheduler: bool = False
    preemption: str = "requeue"  # what the site does: requeue, cancel, user-signal
    job: str = ""  # the state of the job, as the controller shows it; "": it does not answer
    restarted: bool = False  # Slurm starts the job again
    time_limit: bool = False  # the controller says that it has passed
    preempted: bool = False
    follows: bool = False  # a job that was submitted before continues the run
    starts: int = 1
    max_attempts: int = 0
    more_mem: bool = False  # it ran out of memory, and the next attempt may ask for more
    more_time: bool = False  # the same of its time limit
    awaited: bool = False  # not every rank has recorded its end
    succeeded: bool = False  # every rank has recorded that it ended with 0
    node_lost: bool = False  # that of an element which shares a job with others, which goes on


class Ending(NamedTuple):
    """The outcome of an attempt. `why` is empty where the state explains itself."""

    state: str
    next: str = NOTHING
    why: str = ""


def decide(facts: AttemptFacts) -> Ending:
    """Return what the end of an attempt means."""
    ended_well = facts.code == 0 or (_was_asked(facts) and facts.code in _BY_REQUEST and not facts.trains)
    starts_again = facts.restarted or facts.job in ("PENDING", "NODE_FAIL")  # by Slurm, though the run is done
    if ended_well and _is_done(facts) and not (facts.failed or facts.marker or starts_again):
        return _explained(facts, states.COMPLETED, "complete")
    if facts.scheduler and _only_the_controller_knows(facts):
        return _by_controller(facts)
    if facts.signalled:
        if facts.limit:
            return Ending(states.TIMEOUT, why=_with_request(facts, "%s: %s" % (_BY_LIMIT, _how_to_go_on(facts))))
        return _cancelled(facts)
    if facts.scheduler:
        return _by_script(facts)
    if facts.marker:
        return Ending(states.STOPPED, why="its ranks have stopped, and left a checkpoint: trainjob resume continues")
    if was_interrupted(facts):
        what = "interrupted: trainjob resume continues"
        if facts.asked:  # else the disk did not take that it has saved either
            what = "interrupted%s: %s" % ("" if facts.saved else "; " + _NOT_SAVED, _how_to_go_on(facts))
        return Ending(states.STOPPED, why=_with_request(facts, what))
    if facts.code == 0 and facts.awaited:
        return Ending(states.FAILED, why=_UNRECORDED + ": a node may have failed")
    return _by_code(facts)


def was_interrupted(facts: AttemptFacts) -> bool:
    """Return whether ranks that were asked to stop ended for that, as far as anything known says."""
    # While the job goes on, TERM is srun's, to the other ranks after one has failed.
    were_signalled = facts.terminated and facts.job != "RUNNING"
    ended_for_it = facts.code == 0 or were_signalled or facts.code in _BY_REQUEST
    # A task leaves the marker if it is not done, where the disk takes it.
    by_itself = facts.trains and facts.code != exits.UNRECORDED_REQUEST
    return _was_asked(facts) and ended_for_it and not facts.failed and not by_itself and not _is_done(facts)


def _was_asked(facts: AttemptFacts) -> bool:
    """Return whether a handler of a rank got a request, which a full disk may have kept out of the files."""
    # A command may have an exit code 77 of its own.
    return bool(facts.asked) or (facts.code == exits.UNRECORDED_REQUEST and not facts.failed)


def _is_done(facts: AttemptFacts) -> bool:
    # Ranks that a signal ended may have reported their last update, and not have saved it.
    has_all = facts.code == 0 and 0 < (facts.total or 0) <= (facts.update or 0)
    return facts.done or (has_all and not facts.may_be_of_epoch)


def _only_the_controller_knows(facts: AttemptFacts) -> bool:
    """Return whether the job ends by something that only its controller can name."""
    is_ending = facts.job not in ("", "RUNNING")
    # srun hears of the job's end before the script does, and no rank is to blame; it returns 0 when a node fails.
    by_no_rank = facts.terminated if facts.marker else facts.code == 0 or not facts.failed
    # A controller that was restarted did not know that the job had begun, and starts it again.
    is_forgotten = not facts.marker and facts.code in _ENDED_BY_SIGNAL and facts.job == "PENDING"
    return facts.signalled or (is_ending and by_no_rank) or is_forgotten


def _by_controller(facts: AttemptFacts) -> Ending:
    if facts.restarted:
        what = _PREEMPTED if facts.preempted else "the job was requeued"
        return Ending(states.REQUEUED, ELSEWHERE, _with_request(facts, "%s, and Slurm starts it again" % what))
    if facts.job == "PENDING":
        if facts.succeeded and not was_interrupted(facts):
            why = "the run is complete, and Slurm, which does not know that this job has begun, is told not to start it"
            return Ending(states.COMPLETED, FORGET, why)
        return Ending(states.REQUEUED, ELSEWHERE, _with_request(facts, "Slurm starts the job again"))
    if facts.job == "NODE_FAIL":
        why = "a node failed, and Slurm does not start the job again"
        if facts.follows:
            return Ending(states.REQUEUED, ELSEWHERE, why + ": the follow-up job continues")
        return Ending(states.FAILED, why=why)
    has_saved = facts.marker or ((was_interrupted(facts) or _failed_of_request(facts)) and facts.saved)
    if facts.time_limit:
        if facts.more_time and not _starts_are_used_up(facts):
            return Ending(states.REQUEUED, MORE_TIME, _BY_LIMIT)
        return _continued_from_checkpoint(facts, has_saved, _BY_LIMIT, states.TIMEOUT)
    if facts.job == "CANCELLED":  # by somebody, also of a job that was being preempted
        return _cancelled(facts)
    if facts.preempted:
        has_saved = has_saved or facts.checkpoint
        why = _PREEMPTED + ", which does not start the job again here"
        return _continued(facts, has_saved, why, states.STOPPED if facts.marker else states.CANCELLED)
    return _cancelled(facts)


def _cancelled(facts: AttemptFacts) -> Ending:
    return Ending(states.CANCELLED, why=_with_request(facts, "cancelled: %s" % _how_to_go_on(facts)))


def _by_script(facts: AttemptFacts) -> Ending:
    """Return what follows where the job could go on, or the controller does not answer."""
    if facts.node_lost and not facts.stop:
        return _continued(facts._replace(terminated=False), True, "its node failed", states.FAILED)
    if facts.marker:
        if facts.blamed:
            return Ending(states.FAILED, why="a fault of every node: the job is not started again")
        stopped = _PREEMPTED if facts.preempted else "its ranks have stopped, and left a checkpoint"
        what = "the failure may not come again" if facts.failed else stopped
        return _continued(facts, True, what, states.STOPPED)
    is_interrupted = was_interrupted(facts)
    # Ranks of Lightning fail of TERM: each raises at an update of its own.
    is_by_request = _was_asked(facts) and not facts.trains
    # A rank that TERM ends is a failure to a launcher that has not heard of it.
    is_by_signal = facts.code == 143 or (not facts.failed and facts.code in _ENDED_BY_SIGNAL)
    if facts.preempted and (is_by_request or is_by_signal):
        # Slurm would have started the job again, had its ranks not ended before the time that it gave them.
        is_continued = facts.preemption == "requeue" or facts.saved or facts.checkpoint
        return _continued(facts, is_continued, _PREEMPTED, states.STOPPED)
    if _failed_of_request(facts) and (facts.saved or _gets_further(facts)):
        return _continued_from_checkpoint(facts, facts.saved, "failed after the request", states.FAILED)
    if is_interrupted:
        return _continued_from_checkpoint(facts, facts.saved, "interrupted", states.STOPPED)
    if facts.more_mem and not _starts_are_used_up(facts):
        return Ending(states.REQUEUED, MORE_MEM, "this attempt ran out of memory")
    if facts.code == 0 and facts.job == "" and facts.awaited:
        why = _UNRECORDED + ", and the controller does not answer: a node may have failed"
        if facts.follows:
            return Ending(states.REQUEUED, ELSEWHERE, why)
        return Ending(states.FAILED, why=why)
    return _by_code(facts)


def _failed_of_request(facts: AttemptFacts) -> bool:
    """Return whether ranks whose time was nearly over failed of TERM, as Lightning's do, or after they had saved."""
    # One that requeues its job itself fails where the site refuses that.
    is_by_request = facts.saved or facts.asked == "TERM"
    return facts.announced and _was_asked(facts) and facts.failed and is_by_request and not facts.trains


def _gets_further(facts: AttemptFacts) -> bool:
    """Return whether this attempt wrote a checkpoint from which the next one may get further than it did."""
    # A script that never loads what it writes would begin anew until its starts are used up.
    return facts.advanced or (facts.kept and not facts.kept_before)


def _continued_from_checkpoint(facts: AttemptFacts, has_saved: bool, why: str, otherwise: str) -> Ending:
    """Return what `_continued` does; a checkpoint from before the request counts where the run gets further with it."""
    gets_further = _gets_further(facts)
    if gets_further and not has_saved:
        where = "" if facts.kept else " at about update {:,}".format(facts.durable)
        why += _FROM_EARLIER + where
    return _continued(facts, has_saved or gets_further, why, otherwise)


def _continued(facts: AttemptFacts, has_saved: bool, why: str, otherwise: str) -> Ending:
    """Return that the script starts the run again, or the state `otherwise` and what keeps it from that."""
    # After a failure, TERM is srun's, to the other ranks: the job is not about to end.
    is_by_srun = facts.failed and facts.job == "RUNNING"
    # Else nobody knows why TERM has come to the ranks of a job that goes on, or may be cancelled.
    is_explained = facts.preemption == "requeue" or facts.preempted or facts.time_limit or is_by_srun
    if not has_saved:
        no_request = "no rank that handles USR1 or TERM was asked"
        refusal = _NOT_SAVED if _was_asked(facts) else no_request
        if facts.checkpoint:
            refusal += ", and no checkpoint shows that this attempt got further than the one before"
    elif facts.stop:
        refusal = "it was asked to stop for good (trainjob cancel --stop)"
    elif facts.terminated and not is_explained:
        refusal = "the ranks were told to end (TERM), and preempted jobs don't start again here"
    elif _starts_are_used_up(facts):
        refusal = "the last of %d starts (max_attempts) has ended" % facts.max_attempts
    else:
        return Ending(
            states.REQUEUED, AGAIN, _with_request(facts, "%s: continued as attempt %d" % (why, facts.attempt + 1))
        )
    return Ending(otherwise, why=_with_request(facts, "%s; %s: %s" % (why, refusal, _how_to_go_on(facts))))


def _how_to_go_on(facts: AttemptFacts) -> str:
    """Return what `resume` continues from."""
    if facts.durable:
        return "trainjob resume continues from its newest checkpoint, at about update {:,}".format(facts.durable)
    has_saved = facts.marker or facts.saved or facts.checkpoint
    return "trainjob resume continues from its checkpoint" if has_saved else "trainjob resume starts it again"


def _starts_are_used_up(facts: AttemptFacts) -> bool:
    return facts.starts >= facts.max_attempts


def _by_code(facts: AttemptFacts) -> Ending:
    # Launchers record what else ends a rank or a server.
    if facts.code == _KILLED and not facts.failed and not _was_asked(facts):
        return Ending(states.FAILED, why="%s: %s" % (_LAUNCHER_KILLED, _how_to_go_on(facts)))
    if facts.code != 0:
        return _explained(facts, states.FAILED, "failed: %s" % _how_to_go_on(facts))
    return _explained(facts, states.COMPLETED, "complete")


def _explained(facts: AttemptFacts, state: str, what: str) -> Ending:
    """Return a state that explains itself where no rank was asked to stop."""
    return Ending(state, why=_with_request(facts, what) if _was_asked(facts) else "")


def _with_request(facts: AttemptFacts, what: str) -> str:
    """Return `what` behind how the ranks were asked, and how they ended."""
    if not _was_asked(facts):
        return what
    if not facts.asked:
        return "%s, which the run directory's disk did not take: %s" % (states.ASKED_TO_STOP, what)
    at = later = where = ""
    if facts.asked_at is not None and facts.ended_at is not None:
        at = time.strftime(" at %H:%M:%S", time.localtime(facts.asked_at))
        later = " %.0f s later" % max(0.0, facts.ended_at - facts.asked_at)
    if facts.update is not None:
        where = ", at {:,}".format(facts.update) + (" of {:,}".format(facts.total) if facts.total else "")
    end = "ended by it" if facts.code in _BY_REQUEST else "ended with %d" % facts.code
    return "%s%s (%s), %s%s%s: %s" % (states.ASKED_TO_STOP, at, facts.asked, end, later, where, what)


def read(paths: RunPaths, words: Sequence[str]) -> AttemptFacts:
    """Return the facts of the newest attempt: those in its files, and those that its job script states."""
    from trainjob.records import attempts, events, progress

    number = attempts.current(paths)
    request = attempts.request(paths, number)
    facts: Dict[str, Any] = {
        "attempt": number,
        "marker": paths.requeue.exists(),
        "done": paths.done.exists(),
        "stop": paths.stop.exists(),
        "saved": paths.saved(number).exists(),
        "terminated": paths.terminated(number).exists(),
        "checkpoint": any(paths.checkpoints.glob("update-*")),
        "trains": _trains(paths),
        "starts": attempts.starts(paths),
    }
    with contextlib.suppress(OSError):
        facts["failed"] = paths.failure.stat().st_size > 0
    # Its sentence tells which requeue it was: a state alone does not.
    noted = events.read(paths)
    facts["announced"] = any((one.attempt, one.what, one.detail) == (number, events.SIGNAL, "USR1") for one in noted)
    before = next((one for one in events.attempts(noted) if one.number == number - 1), None)
    was_continued = before is not None and before.state == states.REQUEUED and _FROM_EARLIER in before.why
    facts["kept_before"] = was_continued and facts["starts"] > 1  # not by hand
    if request is not None:
        facts.update(asked=request.signal, asked_at=request.at, ended_at=clock.time())
    read_progress = progress.read(paths)
    if read_progress.attempt == number:
        facts.update(update=read_progress.update, total=read_progress.total_updates)
        facts["may_be_of_epoch"] = read_progress.may_be_of_epoch
        facts["durable"] = read_progress.durable_update or read_progress.began_at or 0
        facts["kept"] = read_progress.checkpoint_at is not None
        facts["checkpoint"] = facts["checkpoint"] or facts["kept"] or facts["durable"] > 0
        facts["advanced"] = (read_progress.durable_update or 0) > attempts.progress_before(paths)
    for word in words:
        name, _, value = word.partition("=")
        if name == "shown":  # a line of `scontrol show job -o`
            state, again = re.search(r" JobState=(\w+)", value), re.search(r"Restarts=(\d{1,9})", value)
            facts["job"] = state.group(1) if state else ""
            restarts = int(facts.get("restarts", 0))  # so far
            facts["restarted"] = again is not None and int(again.group(1)) > restarts
            facts["time_limit"] = " Reason=TimeLimit " in value
            facts["preempted"] = re.search(r" PreemptTime=\d", value) is not None
        else:
            default = AttemptFacts._field_defaults.get(name, 0)
            facts[name] = True if isinstance(default, bool) else type(default)(value)
    return AttemptFacts(**{name: value for name, value in facts.items() if name in AttemptFacts._fields})


def _trains(paths: RunPaths) -> bool:
    from trainjob.records import job_facts

    try:
        return job_facts.read(paths.job).trains
    except Exception:  # noqa: BLE001 - whatever is wrong with the record, the attempt has an end
        return False


def main(words: Sequence[str]) -> int:
    """Print what the end of the newest attempt means, three lines for the job script."""
    sys.stdout.write(printed(Path(words[0]), words[1:]))
    return exits.DONE


def printed(folder: Path, words: Sequence[str]) -> str:
    """Return what `main` prints."""
    return "%s\n%s\n%s\n" % decide(read(RunPaths(folder), words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
