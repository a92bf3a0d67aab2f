"""What goes wrong on real clusters, done to a private one."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from trainjob.contract.environment import RANK
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.rehearse.slurm import configuration
from trainjob.rehearse.slurm.description import PREEMPTING_PARTITION
from trainjob.rehearse.slurm.private import PrivateSlurm
from trainjob.submit import local


def kill_daemon(slurm: PrivateSlurm, node: str) -> None:
    """Kill a node's slurmd and nothing else: its slurmstepd and ranks live on, as they do on a real node."""
    pid_file = slurm.folder / configuration.PRIVATE / f"slurmd-{node}.pid"
    slurm.run_as_root(["sh", "-c", f"kill -KILL $(cat {pid_file})"])


def give_up(slurm: PrivateSlurm, node: str) -> None:
    """Let the controller find a node dead now, and not after SlurmdTimeout."""
    slurm.run_as_root(["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=rehearsal"])


def start_daemon(slurm: PrivateSlurm, node: str) -> None:
    """Bring a node back whose slurmd was killed."""
    slurm.run_as_root(["unshare", "--uts", "sh", "-c", f"hostname {node} && exec slurmd -N {node}"])


def shorten(slurm: PrivateSlurm, job: str, minutes: int) -> None:
    """Set the time limit of a job that runs: the script's own bytes keep the one that was asked for."""
    slurm.run_as_root(["scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}"])


def preempt(slurm: PrivateSlurm, seconds: int = 5) -> str:
    """Return the id of a more urgent job that takes all nodes away for a while."""
    asked = [f"--nodes={len(slurm.description.nodes_at_work)}", "--exclusive", "--output=/dev/null", "--time=1"]
    where = [f"--partition={PREEMPTING_PARTITION}", "--job-name=urgent", f"--wrap=sleep {seconds}"]
    return slurm.run_as_root(["sbatch", "--parsable", *asked, *where]).text.strip()


def requeue(slurm: PrivateSlurm, job: str) -> None:
    """Requeue a job as a user does by hand."""
    slurm.run(["scontrol", "requeue", job])


def start_now(slurm: PrivateSlurm, job: str) -> None:
    """Spare a requeued job the two minutes that Slurm has it wait; quietly where it does not wait."""
    slurm.run_as_root(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=False)


def kill_rank(paths: RunPaths, rank: int) -> int:
    """Return the process id of a rank that now is killed. Raises UserError where it does not run."""
    mark = f"{RANK}={rank}".encode()
    for pid in local.processes_of(paths):
        with contextlib.suppress(OSError):
            # The launcher starts a rank as the first of its session; what a rank has started is in it, too.
            if os.getsid(pid) == pid and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
                return pid
    raise UserError(f"run {paths.id}: rank {rank} does not run here")
