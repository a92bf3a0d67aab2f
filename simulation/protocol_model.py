"""The protocol of attempts as explicit states, explored whole: README.md explains it.

Two attempts on two nodes, one client, one administrator. A step is what the code does between two looks of anybody
else, and is called as the code calls it. `python -m simulation.protocol_model` explores all states and prints their
number.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

GOAL = 2  # checkpoints until the training is complete
ATTEMPTS = (0, 1)  # their indexes: the attempts are 1 and 2
NOBODY = -1

# What of the protocol may be left out, to see that the exploration finds what it is for.
SAFEGUARDS = {
    "fence of ranks": "a rank compares its attempt with the file `attempt` before it writes",
    "fence of scripts": "end_attempt writes nothing once a newer attempt has begun",
    "look before sbatch": "Order.submitted looks for a job of this run before it calls sbatch",
    "refuse_needless_start": "a job that Slurm starts once more finds the run complete",
    "confirmed cancel": "cancel waits until the controller has nothing of the run",
    "still_runs": "start_again asks whether its job was cancelled",
    "start before record": "a script writes REQUEUED once Slurm has taken the start",
    "request": "ranks that were asked to stop, and ended with 0, were interrupted",
    "claim of stale locks": "a lock whose holder is gone is removed",
}


class Job(NamedTuple):
    """One job of Slurm's. `at`: "" before sbatch, PENDING, RUNNING, ENDED."""

    at: str = ""
    is_cancelled: bool = False


class Attempt(NamedTuple):
    """A job script and its ranks on two nodes."""

    script: str = ""  # "" before it begins, then the step that it has taken last; "gone"
    number: int = 0  # what it has written into `attempt`
    job: int = NOBODY
    ended_for: str = ""  # why Slurm ends it: "cancel", "requeue"
    is_cut: bool = False  # Slurm has given up its node, where script and ranks are still at work
    ranks: tuple[str, str] = ("", "")  # of each node: "", "training", "left" with 0 when they were asked to, "ended"
    asked: bool = False  # `.asked`: a handler of theirs got a request to stop
    wrote: bool = False  # `.saved`: they have saved since
    saved: int = 0  # the checkpoint that its ranks have written last, or have begun with


class Client(NamedTuple):
    """A command on the login node."""

    command: str = ""  # "" at rest, else submit, cancel, resume
    step: str = ""
    left: int = 3  # commands that may still be given


class State(NamedTuple):
    """Everything that somebody's next step may depend on."""

    jobs: tuple[Job, Job] = (Job(), Job())
    attempts: tuple[Attempt, Attempt] = (Attempt(), Attempt())
    client: Client = Client()
    # The run directory.
    attempt: int = 0
    state: str = ""
    marker: bool = False  # `requeue`
    saved: int = 0  # the newest checkpoint
    recorded: int = 0  # submission.json: the attempt that it starts; 0: none
    native: int = NOBODY  # submission.json: the job
    is_cancelled: bool = False  # submission.json
    lock: str = ""  # "", held, left
    # What may still go wrong, and what the administrator may still do.
    faults: int = 2
    administered: int = 1
    # What only the checker knows.
    cancelled: bool = False  # a cancel has returned, and no resume has begun since
    was_cancelled: bool = False  # somebody has, ever
    complete: bool = False  # its job script has written COMPLETED
    broken: str = ""


Step = tuple[str, bool, State]  # its name, whether it is a fault, and what it leads to


def explore(without: frozenset[str] = frozenset(), most: int = 10**7) -> tuple[int, list[str] | None, str]:
    """Return the number of states, and the steps to the first one that breaks an invariant (None), and which."""
    first = State()
    before: dict[State, tuple[State, str] | None] = {first: None}
    ends: dict[State, list[State]] = {}
    queue = deque([first])
    final = []
    while queue and len(before) < most:
        now = queue.popleft()
        if now.broken:
            return len(before), _path(before, now), now.broken
        alive = False
        for name, is_fault, then in steps(now, without):
            if not is_fault:
                alive = True
                ends.setdefault(then, []).append(now)
            if then not in before:
                before[then] = (now, name)
                queue.append(then)
        if not alive:
            why = _why_not_over(now)
            if why:
                return len(before), _path(before, now), why
            final.append(now)
    # Every state leads to an end by steps that are no faults.
    reached, backwards = set(final), deque(final)
    while backwards:
        for one in ends.get(backwards.popleft(), ()):
            if one not in reached:
                reached.add(one)
                backwards.append(one)
    stuck = next((one for one in before if one not in reached), None)
    if stuck is not None:
        return len(before), _path(before, stuck), "from here the run never ends"
    return len(before), None, ""


def _path(before: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    names = []
    while (origin := before[state]) is not None:
        state, name = origin
        names.append(name)
    return names[::-1]


def steps(now: State, without: frozenset[str] = frozenset()) -> Iterator[Step]:
    """Yield every step that somebody can take now."""
    yield from _slurm(now)
    for index in ATTEMPTS:
        yield from _script(now, index, without)
        yield from _ranks(now, index, without)
    yield from _client(now, without)
    yield from _administrator(now)


def _with_job(now: State, index: int, **changes: object) -> State:
    jobs = list(now.jobs)
    jobs[index] = jobs[index]._replace(**changes)  # type: ignore[arg-type]  # the fields' names are checked when it runs
    broken = now.broken
    if all(job.at in ("PENDING", "RUNNING") for job in jobs):
        broken = "two jobs of one run at a time"
    return now._replace(jobs=(jobs[0], jobs[1]), broken=broken)


def _with_attempt(now: State, index: int, **changes: object) -> State:
    attempts = list(now.attempts)
    attempts[index] = attempts[index]._replace(**changes)  # type: ignore[arg-type]  # as in _with_job
    return now._replace(attempts=(attempts[0], attempts[1]))


def _writes(now: State, index: int) -> State:
    """Return the state after attempt `index` has written: never after a newer one began."""
    is_late = now.attempt > now.attempts[index].number
    return now._replace(broken="an attempt writes after a newer one began") if is_late else now


def _at_work(attempt: Attempt) -> bool:
    return attempt.script not in ("", "gone") or "training" in attempt.ranks


def _dead(attempt: Attempt) -> tuple[str, str]:
    """Return the ranks of an attempt of which nothing is left; those that never began are none."""
    return ("ended", "ended") if attempt.ranks[0] else ("", "")


# Slurm: starts a job, ends it, loses a node, starts it again.


def _slurm(now: State) -> Iterator[Step]:
    fresh = next((index for index in ATTEMPTS if not now.attempts[index].script), None)
    for number, job in enumerate(now.jobs):
        its = [index for index in ATTEMPTS if now.attempts[index].job == number]
        mine = next((index for index in its if _at_work(now.attempts[index]) and not now.attempts[index].is_cut), None)
        # A script does not wait between two steps for as long as Slurm takes to give its node up: one that is cut off
        # has claimed its attempt, or is gone, before the next one begins.
        is_claiming = any(one.is_cut and one.script in ("started", "bare", "claimed") for one in now.attempts)
        if job.at == "PENDING" and is_claiming:
            continue
        if job.at == "PENDING" and mine is None and fresh is not None:
            begun = _with_attempt(_with_job(now, number, at="RUNNING"), fresh, script="started", job=number)
            yield f"slurm starts job {number + 1}", False, begun
        elif job.at == "PENDING" and mine is None and fresh is None:
            # A third attempt is beyond this model: as if max_attempts were 2.
            spent = now if now.state == "COMPLETED" else now._replace(state="FAILED")
            yield f"slurm ends job {number + 1}", False, _with_job(spent, number, at="ENDED")
        if job.at == "RUNNING" and mine is None:
            yield f"slurm ends job {number + 1}", False, _with_job(now, number, at="ENDED")
        if mine is None:
            continue
        attempt = now.attempts[mine]
        if attempt.ended_for:  # KillWait has passed
            killed = _with_attempt(now, mine, script="gone", ranks=_dead(attempt))
            yield f"slurm kills attempt {mine + 1}", False, killed
        if now.faults and job.at == "RUNNING" and not attempt.ended_for:
            fault = now._replace(faults=now.faults - 1)
            again = _with_job(fault, number, at="PENDING")
            dead = _with_attempt(again, mine, script="gone", ranks=_dead(attempt))
            yield f"the first node of attempt {mine + 1} dies", True, dead
            yield f"the nodes of attempt {mine + 1} are cut off", True, _with_attempt(again, mine, is_cut=True)
            half = (attempt.ranks[0], "ended" if attempt.ranks[1] else "")
            yield f"the second node of attempt {mine + 1} dies", True, _with_attempt(fault, mine, ranks=half)
            yield f"slurm preempts attempt {mine + 1}", True, _with_attempt(again, mine, ended_for="requeue")
    for index in ATTEMPTS:
        if now.attempts[index].is_cut and _at_work(now.attempts[index]):
            gone = _with_attempt(now, index, script="gone", ranks=_dead(now.attempts[index]))
            yield f"the nodes of attempt {index + 1} learn that their job is over", False, gone


# The job script: record.sh and requeue.sh.


def _script(now: State, index: int, without: frozenset[str]) -> Iterator[Step]:  # noqa: C901 - a branch for each step
    attempt, number, name = now.attempts[index], index + 1, now.attempts[index].script
    is_stale = now.attempt != attempt.number
    fenced = "fence of scripts" not in without and is_stale

    def moved(script: str, state: State = now, **changes: object) -> State:
        return _with_attempt(state, index, script=script, **changes)

    if name in ("", "gone"):
        return
    if now.faults:
        killed = moved("gone", now._replace(faults=now.faults - 1), ranks=_dead(attempt))
        yield f"script {number} is killed", True, killed
    if name == "started":
        if now.state == "COMPLETED" and "refuse_needless_start" not in without:
            yield "refuse_needless_start", False, moved("gone")
        else:
            bare = moved("bare", now._replace(state="", marker=False))
            yield f"begin_attempt {number}: remove state", False, bare
    elif name == "bare":
        claimed = moved("claimed", now._replace(attempt=now.attempt + 1), number=now.attempt + 1)
        yield f"begin_attempt {number}: write attempt", False, claimed
    elif name in ("claimed", "waited") and fenced:
        yield f"end_attempt {number}: stale", False, moved("gone")
    elif name == "claimed":
        running = _writes(now._replace(state="RUNNING"), index)
        if now.complete:
            running = running._replace(broken="a complete run trains again")
        ran = moved("ran", running, ranks=("training", "training"), saved=now.saved)
        yield f"begin_attempt {number}: write state", False, ran
    elif name == "ran":
        if attempt.ended_for or attempt.ranks.count("training") < 2:
            # srun ends the other ranks when one fails; TERM ends all of them.
            left = attempt.ranks == ("left", "left")
            yield f"wait_for_ranks {number}", False, moved("waited", ranks=("left" if left else "ended",) * 2)
    elif name == "waited":
        word = _state_under_slurm(now, index, without)
        written = _writes(now._replace(state=word, complete=now.complete or word == "COMPLETED"), index)
        if word == "COMPLETED" and attempt.saved < GOAL:
            written = written._replace(broken="the run is reported as COMPLETED, and is not")
        if word == "REQUEUED" and not (attempt.ended_for or attempt.is_cut):
            asking = moved("asking", written if "start before record" in without else now)
            yield f"end_attempt {number}: again", False, asking
        else:
            yield f"end_attempt {number}: write state {word}", False, moved("gone", written)
    elif name == "asking":
        job = now.jobs[attempt.job]
        if is_stale:
            yield f"end_job {number}: stale", False, moved("gone")
        elif "still_runs" not in without and (job.at != "RUNNING" or job.is_cancelled):
            word = _state_by_controller(now, index)
            yield f"start_again {number}: write state {word}", False, moved("gone", now._replace(state=word))
        else:
            again = _with_job(now, attempt.job, at="PENDING", is_cancelled=False)
            if job.is_cancelled:
                again = again._replace(broken="a job that was cancelled waits again")
            yield f"start_again {number}: scontrol requeue", False, moved("requeued", again)
    elif name == "requeued" and fenced:
        yield f"record_end {number}: stale", False, moved("gone")
    elif name == "requeued":
        yield (
            f"record_end {number}: write state REQUEUED",
            False,
            moved("gone", _writes(now._replace(state="REQUEUED"), index)),
        )


def _state_under_slurm(now: State, index: int, without: frozenset[str]) -> str:
    attempt = now.attempts[index]
    if attempt.ended_for or attempt.is_cut:
        return _state_by_controller(now, index)
    if attempt.saved == GOAL:
        return "COMPLETED"
    if attempt.ranks == ("left", "left"):
        if "request" in without:
            return "COMPLETED"
        return "REQUEUED" if attempt.wrote else "STOPPED"
    return "REQUEUED" if now.marker else "FAILED"


def _state_by_controller(now: State, index: int) -> str:
    job = now.jobs[now.attempts[index].job]
    return "REQUEUED" if job.at == "PENDING" or (job.at == "RUNNING" and not job.is_cancelled) else "CANCELLED"


# The ranks: the first writes checkpoints.


def _ranks(now: State, index: int, without: frozenset[str]) -> Iterator[Step]:
    attempt, number = now.attempts[index], index + 1
    if attempt.ranks[0] != "training":
        return
    if now.attempt > attempt.number and "fence of ranks" not in without:
        yield f"ranks {number}: stale", False, _with_attempt(now, index, ranks=("ended", "ended"))
        return
    if attempt.saved < GOAL:
        written = _writes(now, index)
        if now.cancelled:
            written = written._replace(broken="a cancelled run trains")
        saved = attempt.saved + 1
        if saved < now.saved:
            written = written._replace(broken="durable progress decreases")
        made = _with_attempt(written._replace(saved=saved), index, saved=saved, wrote=attempt.asked)
        yield f"ranks {number}: checkpoint", False, made
        if attempt.asked:
            both = ("left", "left")
            yield f"ranks {number}: end with 0", False, _with_attempt(now, index, ranks=both)
            yield f"ranks {number}: save, and end with 0", False, _with_attempt(made, index, ranks=both)
            job = now.jobs[attempt.job]
            if job.at == "RUNNING" and not (job.is_cancelled or attempt.ended_for or attempt.is_cut):
                again = _with_job(_with_attempt(made, index, ended_for="requeue"), attempt.job, at="PENDING")
                yield f"ranks {number}: save, and scontrol requeue", False, again
    else:
        yield f"ranks {number}: done", False, _with_attempt(now, index, ranks=("ended", "ended"))
    if now.faults:
        fault = now._replace(faults=now.faults - 1, marker=True)
        yield f"ranks {number}: fail and leave the marker", True, _with_attempt(fault, index, ranks=("ended", "ended"))


# The client: lifecycle/start.py, cancel.py and resume.py.


def _client(now: State, without: frozenset[str]) -> Iterator[Step]:
    client = now.client
    if client.command:
        if now.faults:
            crashed = now._replace(faults=now.faults - 1, client=client._replace(command="", step=""))
            yield "the client is killed", True, crashed._replace(lock="left" if now.lock == "held" else now.lock)
        yield from _COMMANDS[client.command](now, without)
        return
    if not now.recorded:
        if client.left:
            yield "submit", False, _at(now._replace(client=client._replace(left=client.left - 1)), "submit", "create")
        return
    if now.lock == "left" and "claim of stale locks" not in without:
        yield "a lock whose holder is gone is removed", False, now._replace(lock="")
    if client.left:
        fewer = now._replace(client=client._replace(left=client.left - 1))
        yield "cancel", False, _at(fewer, "cancel", "look")
        if reported_state(now) in ("FAILED", "CANCELLED", "LOST", "STOPPED") and not now.lock:
            yield "resume", False, _at(fewer._replace(lock="held"), "resume", "look")


def _at(now: State, command: str, step: str) -> State:
    return now._replace(client=now.client._replace(command=command, step=step))


def _job_of_this_run(now: State) -> int:
    """Return the job that squeue lists for the run; NOBODY if none waits or runs."""
    return next((number for number, job in enumerate(now.jobs) if job.at in ("PENDING", "RUNNING")), NOBODY)


def _submit(now: State, without: frozenset[str]) -> Iterator[Step]:
    done = _at(now, "", "")._replace(lock="")
    if now.client.step == "create":
        yield "hand_over: record", False, _at(now._replace(recorded=1), "submit", "sbatch")
    elif now.client.step == "sbatch":
        yield from _sbatch(now, "submit", without)
    elif now.client.step == "lost":
        found = _job_of_this_run(now)
        if found == NOBODY or "look before sbatch" in without:
            yield "Order.submitted: sbatch again", False, _at(now, "submit", "sbatch")
        else:
            yield "Order.submitted: found", False, done._replace(native=found)


def _sbatch(now: State, command: str, without: frozenset[str]) -> Iterator[Step]:
    found = _job_of_this_run(now)
    done = _at(now, "", "")._replace(lock="")
    free = next((number for number, job in enumerate(now.jobs) if not job.at), None)
    if found != NOBODY and "look before sbatch" not in without:
        yield "Order.submitted: found", False, done._replace(native=found)
    elif free is None:
        yield "sbatch refuses", False, done
    else:
        queued = _with_job(now, free, at="PENDING")._replace(cancelled=False)
        yield "sbatch", False, _with_job(done._replace(native=free, cancelled=False), free, at="PENDING")
        if now.faults:
            lost = _at(queued._replace(faults=now.faults - 1), command, "lost")
            yield "sbatch, and its answer is lost", True, lost


def _cancel(now: State, without: frozenset[str]) -> Iterator[Step]:
    if now.client.step == "look":
        if reported_state(now) not in ("PENDING", "RUNNING", "REQUEUED", "LOST"):
            yield "cancel: it has ended", False, _at(now, "", "")
        else:
            yield "cancel: scancel", False, _at(_scancelled(now), "cancel", "wait")
    elif now.client.step == "wait":
        if _job_of_this_run(now) != NOBODY and "confirmed cancel" not in without:
            yield "cancel: scancel again", False, _at(_scancelled(now), "cancel", "wait")
        elif not any(_at_work(one) and not one.is_cut for one in now.attempts) or "confirmed cancel" in without:
            confirmed = _at(now, "", "")._replace(is_cancelled=True)
            # Ranks whose nodes are cut off may train on until these learn it: docs/protocol.md says for how long.
            is_certain = not any(_at_work(one) and one.is_cut for one in now.attempts)
            yield "cancel: record is_cancelled", False, confirmed._replace(cancelled=is_certain)


def _scancelled(now: State) -> State:
    now = now._replace(was_cancelled=True)
    for number, job in enumerate(now.jobs):
        if job.at in ("PENDING", "RUNNING"):
            at_work = any(one.job == number and _at_work(one) and not one.is_cut for one in now.attempts)
            now = _with_job(now, number, at="RUNNING" if at_work else "ENDED", is_cancelled=True)
            for index in ATTEMPTS:
                if now.attempts[index].job == number and at_work:
                    now = _with_attempt(now, index, ended_for="cancel")
    return now


def _resume(now: State, without: frozenset[str]) -> Iterator[Step]:
    if now.client.step == "look":
        if reported_state(now) in ("FAILED", "CANCELLED", "LOST", "STOPPED"):
            again = now._replace(recorded=now.attempt + 1, native=NOBODY, is_cancelled=False)
            yield "hand_over: record", False, _at(again, "resume", "sbatch")
        else:
            yield "resume: refused", False, _at(now, "", "")._replace(lock="")
    elif now.client.step in ("sbatch", "lost"):
        yield from _sbatch(now, "resume", without)


_COMMANDS: dict[str, Callable[[State, frozenset[str]], Iterator[Step]]] = {
    "submit": _submit,
    "cancel": _cancel,
    "resume": _resume,
}


def _administrator(now: State) -> Iterator[Step]:
    if not now.administered:
        return
    done = now._replace(administered=0)
    if _job_of_this_run(now) != NOBODY:
        yield "the administrator cancels the job", True, _scancelled(done)
    for index in ATTEMPTS:
        attempt = now.attempts[index]
        if _at_work(attempt) and not attempt.is_cut and not attempt.ended_for and now.jobs[attempt.job].at == "RUNNING":
            again = _with_attempt(_with_job(done, attempt.job, at="PENDING"), index, ended_for="requeue")
            yield "the administrator requeues the job", True, again
            if attempt.ranks == ("training", "training"):  # as before a time limit
                yield f"slurm asks attempt {index + 1} to stop", True, _with_attempt(done, index, asked=True)


def reported_state(now: State) -> str:
    """Return the state that `status` reports: by the files, and by the controller where these leave it open."""
    job = _job_of_this_run(now)
    waits = now.attempt < now.recorded
    if not waits and now.state and now.state not in ("RUNNING", "REQUEUED"):
        return "PENDING" if job != NOBODY and now.jobs[job].at == "PENDING" and now.state != "COMPLETED" else now.state
    if job == NOBODY:
        if now.recorded and now.native == NOBODY:
            return "LOST"  # its submission was interrupted: `resume` starts it
        if now.state == "REQUEUED" and not waits:
            return "CANCELLED"  # a job that waits can end in no other way
        return "CANCELLED" if now.is_cancelled or waits else "LOST"
    return "PENDING" if now.jobs[job].at == "PENDING" else now.state or "RUNNING"


def _why_not_over(now: State) -> str:
    """Return what is wrong with a state in which only faults are left to happen; empty for a proper end."""
    if any(_at_work(one) for one in now.attempts):
        return "something of the run is left running"
    if now.lock:
        return "a lock is left"
    if any(job.at in ("PENDING", "RUNNING") for job in now.jobs):
        return "a job is left"
    if now.recorded and reported_state(now) in ("PENDING", "RUNNING", "REQUEUED"):
        return f"the run is reported as {reported_state(now)}, and nothing of it is left"
    # Of a job whose script was killed before its ranks began, Slurm reports how it ended.
    began = all(one.ranks[0] for one in now.attempts if one.script)
    if reported_state(now) == "CANCELLED" and now.state == "REQUEUED" and began and not now.was_cancelled:
        return "a run that is REQUEUED has no job, and counts as cancelled without a cancel"
    if reported_state(now) == "COMPLETED" and now.saved < GOAL:
        return "the run is reported as COMPLETED, and is not"
    return ""


def main() -> int:
    """Explore all states, then once without each safeguard; return 1 if an invariant does not hold, or is blind."""
    count, path, why = explore()
    print(f"{count:,} states: " + ("every invariant holds" if path is None else f"{why}:\n  " + "\n  ".join(path)))
    blind = 0
    for name, what in SAFEGUARDS.items():
        _, found, why = explore(frozenset([name]))
        blind += found is None
        result = "NOTHING is found" if found is None else f"{why}, after {len(found)} steps"
        print(f"without the {name} ({what}): {result}")
    return int(path is not None or blind > 0)


if __name__ == "__main__":
    sys.exit(main())
