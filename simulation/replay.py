"""Replays one in a hundred histories on a real Slurm: `python -m simulation.replay --first 700000 --seeds 2000`.

The faults of a seed's run (`happenings.py`) are replayed twice, to a run of the simulated world and to one of a
private Slurm, whose ranks train for real, and what becomes of both is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from simulation import history
from simulation.happenings import (
    COMMANDS,
    DOWN_S,
    ENDS_ATTEMPT,
    HALF,
    HAS_CHECKPOINT,
    LAST_WORDS,
    LIMIT_S,
    NODE_FAULTS,
    TIME_LIMIT,
    TRAINS,
    Happening,
    Outcome,
    Recorded,
    SimulatedStage,
    played,
)
from simulation.jobs import NEVER_SATISFIED
from simulation.ranks import TASK
from trainjob.backends.slurm import queue
from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.machines.process import CommandError
from trainjob.records import attempts, checkpoints, progress
from trainjob.records.files import write_atomically
from trainjob.rehearse.slurm import configuration, faults
from trainjob.rehearse.slurm.description import PREEMPTING_PARTITION, Description, SlurmPartition
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

_EVERY = 100
_POLL_S = 0.5
_NODES = 8  # no dead one comes back
# An update takes as long as the run directory's file `pace` says: a fault finds the ranks at work. One fails
# as the file `fails` says. A rank that trains says in which attempt.
_TASK = """\
import os, signal, time
import torch
from torch import nn

def place(name):
    return os.path.join(os.environ["TRAINJOB_RUN_DIR"], name)

def read(name):
    try:
        with open(place(name)) as file:
            return file.read().strip()
    except OSError:
        return ""

class Paced:
    def build_model(self):
        return nn.Linear(8, 2)

    def open_data(self, place):
        inputs = torch.rand(256, 8, generator=torch.Generator().manual_seed(1))
        return torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 4).long())

    def loss(self, outputs, targets):
        began = time.monotonic()
        with open(place("trains." + os.environ["RANK"]), "w") as file:
            file.write(os.environ["TRAINJOB_ATTEMPT"])
        while time.monotonic() - began < float(read("pace") or 0):
            time.sleep(0.1)
        words = read("fails") if os.environ["RANK"] == "1" else ""
        if words:
            os.unlink(place("fails"))
            if words == "Killed":
                os.kill(os.getpid(), signal.SIGKILL)
            kind, _, text = words.partition(": ")
            raise {"RuntimeError": RuntimeError, "ValueError": ValueError}[kind](text)
        return nn.functional.cross_entropy(outputs, targets)
"""
_JOB: tuple[str, ...] = ("--task", "paced:Paced", "--hosts", "2", "--instances", "2", "--micro-batch", "4")
_JOB += ("--updates", "300", "--checkpoint-every", "2", "--env", "OMP_NUM_THREADS=1", "--max-attempts", "9")
_STANDS, _WALKS, _RUNS = "3600", "1", "0"
_PACES = {TRAINS: _STANDS, HAS_CHECKPOINT: _WALKS}
# Of a site where jobs may not be requeued.
_REFUSES = """\
scontrol() {
  if [[ "$1" != requeue ]]; then command scontrol "$@"; return; fi
  echo 'slurm_requeue error: Requested operation is presently disabled' >&2
  return 1
}
"""
KILL_NODE = """\
for folder in /proc/[0-9]*; do
  if tr '\\0' '\\n' 2>/dev/null <"$folder/environ" | grep -qx "SLURMD_NODENAME=$1"; then
    parent=$(sed -n 's/^PPid:[^0-9]*//p' "$folder/status")
    if grep -q slurmstepd "/proc/$parent/comm"; then echo "$parent"; fi
    echo "${folder#/proc/}"
  fi
done 2>/dev/null | sort -u | xargs -r kill -KILL 2>/dev/null || true
"""


class RealStage:
    """A user beside a private Slurm, who submits one run. Its partition is down while no job is to start."""

    def __init__(self, slurm: PrivateSlurm, folder: Path, one: history.History, *, forgets: bool) -> None:
        self._slurm, self._folder, site = slurm, folder, one.slurm.site
        self._private, self._forgets = slurm.folder / configuration.PRIVATE, forgets
        self._environment = {
            "PATH": os.environ["PATH"],
            "XDG_DATA_HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder / "home"),
        }
        cluster = {
            "kind": "slurm",
            "nodes": {"count": _NODES, "accelerator": "cpu", "accelerators": 0, "cpus": 4, "memory_gb": 8},
            "directives": {"partition": "main"},
            "time_limit": TIME_LIMIT,
            "preemption": site.preemption,
            "queue_follow_up": one.queues_follow_up,
            "python": sys.executable,
            "network": {"interface": "lo"},
            "runs_dir": str(folder / "runs"),
            "node_check": False,
        }
        (folder / "clusters").mkdir(parents=True)
        (folder / "clusters/real.yaml").write_text(json.dumps(cluster))  # JSON is YAML, too
        (folder / "paced.py").write_text(_TASK)
        if not site.requeues:
            (folder / "refuses.sh").write_text(_REFUSES)
            slurm.set_job_environment({"BASH_ENV": str(folder / "refuses.sh")})
        self._hold()
        submitted = self._trainjob("submit", "--cluster", "real", "--no-check", *_JOB, "--json")
        self._paths = RunPaths(Path(json.loads(submitted)["folder"]))
        self._durable: list[int] = []
        self._jobs: dict[str, queue.QueuedJob] = {}
        self._attempt, self._durable_before = 0, 0

    def _trainjob(self, *words: str) -> str:
        command = [sys.executable, "-m", "trainjob", *words]
        return self._slurm.run(command, folder=self._folder, environment=self._environment, timeout_s=LIMIT_S).text

    def _hold(self, state: str = "DOWN") -> None:
        self._slurm.run_as_root(["scontrol", "update", "PartitionName=main", f"State={state}"])

    def _set_pace(self, pace: str) -> None:
        write_atomically(self._paths.folder / "pace", pace)

    def _release(self, pace: str) -> None:
        self._set_pace(pace)
        for job in self._see():
            if job.reason == "BeginTime":
                faults.start_soon(self._slurm, job.id)
        if self._forgets:  # what the controller has written before the job begins
            self._restart_controller(f"cd {self._private}; rm -rf kept; cp -a state kept", "TERM")
        self._hold("UP")

    def _see(self) -> list[queue.QueuedJob]:
        """Return the run's jobs that have not ended."""
        shown = self._slurm.run(["scontrol", "show", "job", "-o"], check=False).text
        self._jobs.update((job.id, job) for job in queue.parse_shown(shown) if job.folder == str(self._paths.folder))
        newest = checkpoints.newest(self._paths)
        if newest is not None:
            self._durable.append(checkpoints.update_of(newest))
        return [job for job in self._jobs.values() if not job.has_ended and job.reason != NEVER_SATISFIED]

    def _place(self) -> float:
        """Return where the newest attempt is; in between where that can't be seen."""
        at_work = [job for job in self._see() if job.state != "PENDING"]
        begun = attempts.current(self._paths)
        if begun != self._attempt:
            self._attempt, self._durable_before = begun, max(self._durable, default=0)
        if not at_work:
            return 3.0 * begun
        word = attempts.load_state(self._paths)
        if word in (None, states.RUNNING) and any(self._read(f"trains.{rank}") != str(begun) for rank in range(2)):
            return 3.0 * begun + TRAINS - HALF
        if at_work[0].state != "RUNNING" or word != states.RUNNING:
            return 3.0 * begun - HALF
        found = progress.load(self._paths)
        durable = (found.durable_update or 0) if found is not None and found.attempt == begun else 0
        return 3.0 * begun + (HAS_CHECKPOINT if durable > self._durable_before else TRAINS)

    def _read(self, name: str) -> str:
        file = self._paths.folder / name
        return file.read_text() if file.exists() else ""

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            if time.monotonic() > deadline:
                log = self._paths.scheduler_log.read_text(errors="replace")
                raise TimeoutError(f"{what} took more than {LIMIT_S:g} s; the job script printed:\n{log[-4000:]}")
            time.sleep(_POLL_S)

    def _is_over(self) -> bool:
        return not self._see()

    def reaches(self, place: float) -> bool:
        if self._place() != place:
            # An attempt before that is to end by itself, if it is not to begin first.
            self._release(_PACES.get(place % 3 - 3, _RUNS) if place - self._place() < 3 else _RUNS)
            self._until(lambda: self._place() >= place or self._is_over(), str(Happening(place, "it")))
            self._hold()
        return self._place() == place

    def _works(self, what: str) -> str:
        try:
            if what == "status":
                return str(json.loads(self._trainjob("status", self._paths.id, "--json"))["state"])
            self._trainjob(*{"stop": ("cancel", "--stop")}.get(what, (what,)), self._paths.id)
        except CommandError:
            return "refused"
        return "done"

    def meets(self, what: str) -> str:
        place, reported = self._place(), ""
        job = next((job for job in self._see() if job.state == "RUNNING"), None)
        if what in ("cancel", "stop"):
            self._set_pace(_WALKS)  # ranks hear of it once they go on, and it waits for them
        if what in COMMANDS:
            reported = self._works(what)
        elif what == "down":
            self._restart_controller(f"sleep {DOWN_S}", "TERM")
        elif job is None:
            return "no job runs"
        else:
            self._meets_in_job(what, job)
        if what in ENDS_ATTEMPT and place % 3:
            self._set_pace(_WALKS)
            settled = 3.0 * -(-place // 3)
            self._until(lambda: self._place() >= settled, f"the end of an attempt after {what}")
            if what == "forget":  # a job that starts where it still ends is held as a duplicate
                self._until(self._nodes_are_empty, "the end of what the controller has forgotten")
            if what == "time limit" and job is not None:
                # The limit of a job that was requeued is the one that it had last.
                faults.set_limit(self._slurm, job.id, TIME_LIMIT)
        return reported

    def _nodes_are_empty(self) -> bool:
        return self._slurm.run_as_root(["pgrep", "slurmstepd"], check=False).code != 0

    def _meets_in_job(self, what: str, job: queue.QueuedJob) -> None:
        slurm = self._slurm
        if what in NODE_FAULTS:
            index, is_cut = NODE_FAULTS[what]
            node = slurm.run(["scontrol", "show", "hostnames", job.nodes]).text.split()[index]
            faults.kill_daemon(slurm, node)
            if not is_cut:
                slurm.run_as_root(["sh", "-c", KILL_NODE, "kill_node", node])
            faults.give_up(slurm, node)
        elif what in LAST_WORDS:
            (self._paths.folder / "fails").write_text(LAST_WORDS[what])
        elif what == "requeue":
            slurm.run(["scontrol", "requeue", job.id])
        elif what == "scancel":
            slurm.run(["scancel", job.id])
        elif what == "preempt":
            urgent = ["--nodes=2", f"--nodelist={job.nodes}", "--exclusive", "--output=/dev/null", "--time=1"]
            slurm.run_as_root(["sbatch", f"--partition={PREEMPTING_PARTITION}", *urgent, "--wrap=sleep 5"])
        elif what == "forget":
            self._restart_controller(f"cd {self._private}; rm -rf state; cp -a kept state", "KILL")
        else:
            faults.let_time_run_out(slurm, job.id)

    def _restart_controller(self, meanwhile: str, how: str) -> None:
        pid_file = self._private / "slurmctld.pid"
        # -R: the partition stays down.
        ends = f"kill -{how} $(cat {pid_file}); while kill -0 $(cat {pid_file}); do sleep 0.1; done 2>/dev/null"
        program = f"{ends}; {meanwhile}; PATH=$PATH:/usr/sbin:/sbin slurmctld -R"
        self._slurm.run_as_root(["sh", "-c", program])
        self._until(lambda: self._slurm.run(["scontrol", "ping"], check=False).code == 0, "the controller")

    def ends(self) -> str:
        self._release(_RUNS)
        self._until(self._is_over, "the end of the run")
        self._hold()
        return self.meets("status")

    def outcome(self, reported: Sequence[str], ended_as: Sequence[str]) -> Outcome:
        last = attempts.current(self._paths)
        self._trainjob("prune", "--older-than-days", "0", "--yes")
        never_decreases = self._durable == sorted(self._durable)
        gone = not self._paths.folder.exists()
        return Outcome(tuple(reported), tuple(ended_as), last, len(self._jobs), never_decreases, gone)


@contextmanager
def slurm_of_site(preemption: str) -> Iterator[PrivateSlurm]:
    """Yield a Slurm on which jobs are preempted as on a site."""
    main = SlurmPartition("main", preempt_mode=preemption.upper(), grace_s=60)
    partitions = (main, SlurmPartition(PREEMPTING_PARTITION, priority_tier=10))
    with private_slurm(Description(nodes=_NODES, memory_mb=8 * 1024, partitions=partitions)) as slurm:
        yield slurm


def replayed(seed: int) -> bool:
    """Play the history of a seed in both worlds, and print what became of its run; return whether they agree."""
    began = time.monotonic()
    with history.place() as where:
        recorded = Recorded(seed, where)
        recorded.run()
        with (one := history.History(seed, where, program=TASK.name)).clients.instead_of_the_real():
            expected = played(SimulatedStage(one), recorded.happenings)
        one.scripts.close()
    site = one.slurm.site
    with (
        slurm_of_site(site.preemption) as slurm,
        tempfile.TemporaryDirectory(prefix="trainjob-replay-") as folder,
    ):
        forgets = any(happening.what == "forget" for happening in recorded.happenings)
        found = played(RealStage(slurm, Path(folder), one, forgets=forgets), recorded.happenings)
    asks = "requeues" if site.requeues else "refuses to requeue"
    print(f"seed {seed}, {recorded.theme.name}; preemption {site.preemption}, Slurm {asks}:")
    for happening, reported in zip(recorded.happenings, found.reported, strict=True):
        print(f"  {happening}{reported.partition(':')[2]}")
    print(f"  left out: {', '.join(what for what, count in recorded.left_out.items() if count) or 'nothing'}")
    print(f"  {found._replace(reported=())}" if found == expected else f"  {found}\n  simulated: {expected}")
    print(f"  {'agree' if found == expected else 'DIFFER'} ({time.monotonic() - began:.0f} s)", flush=True)
    return found == expected


def main() -> int:
    """Return 1 if a run does not end as in the simulated world."""
    parser = argparse.ArgumentParser(prog="python -m simulation.replay", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="the first of the seeds")
    parser.add_argument("--seeds", type=int, default=_EVERY, help="number of seeds")
    parser.add_argument("--every", type=int, default=_EVERY, help="one of how many is replayed (default: %(default)s)")
    asked = parser.parse_args()
    agree = [replayed(seed) for seed in range(asked.first, asked.first + asked.seeds, asked.every)]
    print(f"{sum(agree)} of {len(agree)} agree")
    return int(not all(agree))


if __name__ == "__main__":
    sys.exit(main())
