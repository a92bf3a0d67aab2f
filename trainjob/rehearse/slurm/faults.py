"""Injects the faults of real clusters into a private Slurm."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from trainjob.cluster import slurm_text
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines import processes
from trainjob.rehearse.slurm import configuration
from trainjob.rehearse.slurm.description import PREEMPTING_PARTITION
from trainjob.rehearse.slurm.private import PrivateSlurm

_NODE = Path(__file__).with_name("node.sh")


def kill_daemon(slurm: PrivateSlurm, node: str) -> None:
    """Kill a node's slurmd and nothing else: its slurmstepd and ranks live on, as they do on a real node."""
    pid_file = slurm.folder / configuration.PRIVATE / f"slurmd-{node}.pid"
    slurm.run_as_root(["pkill", "-KILL", "--pidfile", str(pid_file)])


def give_up(slurm: PrivateSlurm, node: str) -> None:
    """Make the controller notice a dead node now, not after SlurmdTimeout."""
    slurm.run_as_root(["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=rehearsal"])


def start_daemon(slurm: PrivateSlurm, node: str) -> None:
    """Bring a node back whose slurmd was killed."""
    slurm.run_as_root(["unshare", "--uts", "sh", str(_NODE), str(slurm.folder), node])


def let_time_run_out(slurm: PrivateSlurm, job: str) -> None:
    """Make a running job's time limit end in one to two minutes; the limit in the script stays."""
    reply = slurm.run(["squeue", "--noheader", f"--jobs={job}", "--format=%M"])
    # A job on groups of nodes has a line for each.
    ran_s = slurm_text.seconds(reply.text.split()[0]) or 0
    # Limits are whole minutes, and one that is over already would end the job without a signal.
    _set_limit(slurm, job, str(ran_s // 60 + 2))


def set_limit_back(slurm: PrivateSlurm, job: str, limit: str) -> None:
    """Restore the time limit of a waiting job; ignore a job that has ended."""
    _set_limit(slurm, job, limit)


def _set_limit(slurm: PrivateSlurm, job: str, limit: str) -> None:
    slurm.run_as_root(["scontrol", "update", f"JobId={job}", f"TimeLimit={limit}"], check=False)


def preempt(slurm: PrivateSlurm, seconds: int = 5) -> str:
    """Return the id of a more urgent job that takes all nodes away for a while."""
    size = [f"--nodes={len(slurm.description.nodes_at_work)}", "--exclusive", "--output=/dev/null", "--time=1"]
    job = [f"--partition={PREEMPTING_PARTITION}", "--job-name=urgent", f"--wrap=sleep {seconds}"]
    return slurm.run_as_root(["sbatch", "--parsable", *size, *job]).text.strip()


def requeue(slurm: PrivateSlurm, job: str) -> None:
    """Requeue a job as a user does by hand."""
    slurm.run(["scontrol", "requeue", job])


def start_soon(slurm: PrivateSlurm, job: str) -> None:
    """Start a requeued job without the two minutes of delay; do nothing if it does not wait. Once per requeue."""
    # A job released within a second of its requeue is killed: its nodes take its new credential for the revoked one.
    slurm.run_as_root(["scontrol", "update", f"JobId={job}", "StartTime=now+4"], check=False)


def wake_backfill(slurm: PrivateSlurm, job: str) -> None:
    """Have Slurm look at a job on groups of nodes that waits: only its backfill starts one, and it looks at changes."""
    slurm.run_as_root(["scontrol", "update", f"JobId={job}", "Comment=waits"], check=False)


def kill_rank(paths: RunPaths, rank: int) -> None:
    """Kill one rank. Raises UserError if it is not running."""
    leaders = [pid for pid, its_rank in _rank_leaders(paths).items() if its_rank == rank]
    if not leaders:
        raise UserError(f"run {paths.id}: rank {rank} does not run here", "rehearse again: it ended before the fault")
    for pid in leaders:
        os.kill(pid, signal.SIGKILL)


def ranks_of(paths: RunPaths) -> list[int]:
    """Return the processes of all ranks of a run, on whichever node."""
    return sorted(_rank_leaders(paths))


def _rank_leaders(paths: RunPaths) -> dict[int, int]:
    # The launcher starts each rank as the first process of a session; what the rank starts has its environment, too.
    return {pid: rank for pid, rank in processes.ranks_of(str(paths.folder)).items() if _leads(pid)}


def _leads(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False
