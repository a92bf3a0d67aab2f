"""The faults of real clusters: injected into a private Slurm, and for --inject what must follow from each."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainjob.cluster import slurm_text
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.machines import processes
from trainjob.records import attempts, events
from trainjob.rehearse.slurm import configuration
from trainjob.rehearse.slurm.description import PREEMPTING_PARTITION
from trainjob.rehearse.slurm.following import FollowedJob, Reason
from trainjob.rehearse.slurm.job import RehearsedJob
from trainjob.rehearse.slurm.private import PrivateSlurm

# Slurm checks time limits every 30 s, less often on a busy machine.
_SIGNAL_WITHIN_S = 300.0
_URGENT_S = 5  # that a more urgent job takes
_RANKS_WITHIN_S = 300.0


def kill_daemon(slurm: PrivateSlurm, node: str) -> None:
    """Kill a node's slurmd and nothing else: its slurmstepd and ranks live on, as they do on a real node."""
    pid_file = slurm.folder / configuration.PRIVATE / f"slurmd-{node}.pid"
    slurm.run_as_root(["pkill", "-KILL", "--pidfile", str(pid_file)])


def give_up(slurm: PrivateSlurm, node: str) -> None:
    """Make the controller notice a dead node now, not after SlurmdTimeout."""
    slurm.run_as_root(["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=rehearsal"])


def let_time_run_out(slurm: PrivateSlurm, job: str) -> None:
    """Make a running job's time limit end in one to two minutes; the limit in the script stays."""
    reply = slurm.run(["squeue", "--noheader", f"--jobs={job}", "--format=%M"])
    # A job on groups of nodes has a line for each.
    ran_s = slurm_text.seconds(reply.text.split()[0]) or 0
    # Limits are whole minutes, and one that is over already would end the job without a signal.
    set_limit(slurm, job, str(ran_s // 60 + 2))


def set_limit(slurm: PrivateSlurm, job: str, limit: str) -> None:
    """Set the time limit of a job; ignore a job that has ended."""
    slurm.run_as_root(["scontrol", "update", f"JobId={job}", f"TimeLimit={limit}"], check=False)


def preempt(slurm: PrivateSlurm) -> str:
    """Return the id of a more urgent job that takes all nodes away for a while."""
    size = [f"--nodes={len(slurm.description.nodes_at_work)}", "--exclusive", "--output=/dev/null", "--time=1"]
    job = [f"--partition={PREEMPTING_PARTITION}", "--job-name=urgent", f"--wrap=sleep {_URGENT_S}"]
    return slurm.run_as_root(["sbatch", "--parsable", *size, *job]).text.strip()


def start_soon(slurm: PrivateSlurm, job: str) -> None:
    """Start a requeued job without the two minutes of delay; do nothing if it does not wait. Once per requeue."""
    # A job released within a second of its requeue is killed: its nodes take its new credential for the revoked one.
    slurm.run_as_root(["scontrol", "update", f"JobId={job}", "StartTime=now+4"], check=False)


def trigger_backfill(slurm: PrivateSlurm, job: str) -> None:
    """Have Slurm look at a job on groups of nodes that waits: only its backfill starts one, and it looks at changes."""
    slurm.run_as_root(["scontrol", "update", f"JobId={job}", "Comment=waits"], check=False)


def follow_back(job: FollowedJob, limit: str, until: Callable[[], Reason | None]) -> Reason | None:
    """Follow a job after its fault as `FollowedJob.follow` does, without a real site's waits before it starts again.

    Slurm holds it back for two minutes, keeps a time limit that the fault has shortened, which is `limit` again, and
    starts a job on groups of nodes only when it looks at changes.
    """
    was_asked = False

    def look() -> Reason | None:
        nonlocal was_asked
        if job.is_pending() and not was_asked:
            set_limit(job.slurm, job.id, limit)
            start_soon(job.slurm, job.id)
            was_asked = True
        elif job.is_pending() and "HetJobId" in job.rows[0]:
            trigger_backfill(job.slurm, job.id)
        return until()

    return job.follow(look)


def kill_rank(paths: RunPaths, rank: int) -> None:
    """Kill one rank. Raises UserError if it is not running."""
    leaders = [pid for pid, its_rank in ranks_of(paths).items() if its_rank == rank]
    if not leaders:
        raise UserError(f"run {paths.id}: rank {rank} does not run here", "rehearse again: it ended before the fault")
    for pid in leaders:
        os.kill(pid, signal.SIGKILL)


def ranks_of(paths: RunPaths) -> dict[int, int]:
    """Return the processes of all ranks of a run, on whichever node, with the rank of each."""
    every, found = processes.ranks_of(str(paths.folder)), {}
    for pid, rank in every.items():
        # What a rank starts has its environment, too.
        with contextlib.suppress(OSError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if every.get(parent) != rank:
                found[pid] = rank
    return found


# -- for --inject: how a fault is injected into a job, and what must follow ---------------------


@dataclass(frozen=True)
class InjectedFault:
    """One fault: how it is injected, what is expected, and what differs from that afterwards (None: nothing)."""

    inject: Callable[[RehearsedJob], object]
    expected: Callable[[SlurmCluster], str]
    problem: Callable[[RehearsedJob], str | None]
    asks_ranks: bool = False  # to checkpoint and stop, which they hear of once they train, or catch signals


def _let_time_run_out(job: RehearsedJob) -> None:
    ranks, hear = sorted(ranks_of(job.paths)), hear_of_faults(job.paths)
    # A short job would end before Slurm checks its limit: pause the ranks until they have been signalled, and those
    # that are still starting, whom nobody signals before they catch it, until the job script has been.
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)

    def is_signalled() -> bool:
        script = not hear and any(one.what == "signal" for one in events.read(job.paths) if one.attempt == job.attempt)
        return script or any(map(_has_been_signalled, ranks))

    try:
        let_time_run_out(job.slurm, job.id)
        job.wait_for(is_signalled, "the time-limit signal came", _SIGNAL_WITHIN_S)
    finally:
        for pid in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _has_been_signalled(pid: int) -> bool:
    """Return whether a paused rank has a pending USR1, or runs again: some sites' Slurm continues what it signals."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    words = dict(line.split(None, 2)[:2] for line in lines if line.startswith(("State:", "SigPnd:", "ShdPnd:")))
    pending = int(words["SigPnd:"], 16) | int(words["ShdPnd:"], 16)
    return words["State:"] != "T" or bool(pending & 1 << (signal.SIGUSR1 - 1))


def hear_of_faults(paths: RunPaths) -> bool:
    """Return whether each rank of a command catches TERM or USR1 by now."""
    caught = []
    for pid in ranks_of(paths):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            caught += [int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")]
    either = 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGUSR1 - 1)
    return bool(caught) and all(mask & either for mask in caught)


def _fail_a_node(job: RehearsedJob) -> None:
    # The last node: rank 0 and the job script survive, and see the loss of a node.
    node = job.nodes_named(job.rows[0]["NodeList"])[-1]
    kill_daemon(job.slurm, node)
    give_up(job.slurm, node)


def _was_restarted(job: RehearsedJob) -> str | None:
    failed = job.failure
    # A launcher that was told to end before its rank had ended names no rank.
    code = attempts.exit_code(job.paths) if failed is None else failed.exit_code
    if job.attempt < 2 and code == 128 + signal.SIGTERM:
        ranks = "the ranks, which do" if failed is None else f"rank {failed.rank}, which does"
        return f"TERM ended {ranks} not catch it, so nothing asked for another start"
    if job.attempt < 2:
        why = events.why_ended(events.read(job.paths), job.attempt)
        return f"the job was not restarted: it is {job.state} after attempt {job.attempt}{why and ': ' + why}"
    if job.state not in (states.COMPLETED, states.STOPPED):
        return f"the job was restarted, and attempt {job.attempt} is {job.state}"
    return None


def _kill_last_rank(job: RehearsedJob) -> None:
    # A launcher on each node starts its ranks some seconds after itself.
    last = job.ranks - 1
    job.wait_for(lambda: last in ranks_of(job.paths).values(), f"rank {last} ran", _RANKS_WITHIN_S)
    kill_rank(job.paths, last)


def _named_the_rank(job: RehearsedJob) -> str | None:
    failed, rank = job.failure, job.ranks - 1
    if job.state != states.FAILED or failed is None:
        return f"the job is {job.state}, and {'no rank' if failed is None else f'rank {failed.rank}'} is named"
    return None if failed.rank == rank else f"rank {failed.rank} is named, and rank {rank} was killed"


def _ended_with_checkpoint(job: RehearsedJob, *ends: str) -> str | None:
    if job.state not in ends:
        return f"the job is {job.state}"
    return None if job.checkpoint() or not job.trains else "the job left no checkpoint"


def _was_preempted(job: RehearsedJob) -> str | None:
    if job.cluster.preemption == "cancel":
        return _ended_with_checkpoint(job, states.STOPPED, states.CANCELLED)
    return _was_restarted(job) or _was_asked(job)


def _was_asked(job: RehearsedJob) -> str | None:
    # A job that is started again without having saved may have lost hours.
    why = events.why_ended(events.read(job.paths), 1)
    if job.trains or not why or why.startswith(states.ASKED_TO_STOP):
        return None
    return "TERM ended the ranks, which do not catch it: attempt 2 has only what they had saved before"


_BACK = "the job checkpoints, is restarted, and continues as attempt 2"
FAULTS: dict[str, InjectedFault] = {
    "timeout": InjectedFault(_let_time_run_out, lambda _: _BACK, _was_restarted, asks_ranks=True),
    "preempt": InjectedFault(
        lambda job: preempt(job.slurm),
        lambda cluster: "the job ends and leaves a checkpoint" if cluster.preemption == "cancel" else _BACK,
        _was_preempted,
        asks_ranks=True,
    ),
    "node-failure": InjectedFault(
        _fail_a_node, lambda _: "the job is restarted on the remaining nodes, as attempt 2", _was_restarted
    ),
    "rank-death": InjectedFault(
        _kill_last_rank,
        lambda _: "the job is FAILED, and the rank that died is named",
        _named_the_rank,
    ),
    "cancel": InjectedFault(
        lambda job: job.slurm.run(["scancel", job.id]),
        lambda _: "the job is CANCELLED, leaves a checkpoint, and is not restarted",
        lambda job: _ended_with_checkpoint(job, states.CANCELLED),
    ),
}
