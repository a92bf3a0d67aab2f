"""Replays one in a hundred histories on a real Slurm: `python -m simulation.replay --first 700000 --seeds 2000`.

A seed's history runs in the simulated world first. What befalls its run there becomes a list: which attempt it meets,
and how far that has come. Then the list is played twice, to a run of the simulated world and to one of a private Slurm,
whose ranks train for real, and what becomes of both is compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from simulation import history, ranks
from simulation.commands import Command
from simulation.ranks import Step
from simulation.slurm import Job
from trainjob.backends.slurm import queue
from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import cancel as cancelling
from trainjob.lifecycle import prune as pruning
from trainjob.machines.process import CommandError
from trainjob.observe.status import status
from trainjob.records import attempts, checkpoints, progress
from trainjob.records.files import write_atomically
from trainjob.rehearse.slurm import configuration, faults
from trainjob.rehearse.slurm.description import PREEMPTING_PARTITION, Description, SlurmPartition
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

_EVERY = 100
_TIME_LIMIT = "01:00:00"
_LIMIT_S = 600.0
_POLL_S = 0.5
_DOWN_S = 20
_MOST_ROUNDS = 8
_NODES = 8  # no dead one comes back
LOST_GPU, KILLED, BROKEN = "a rank loses its GPU", "a rank is killed", "a rank is broken"
_LAST_WORDS = {LOST_GPU: ranks.LOST_GPU, KILLED: ranks.KILLED, BROKEN: ranks.BROKEN}
_NODE_FAULTS = {"dies first": (0, False), "dies second": (1, False), "is cut off": (0, True)}
_ENDS_ATTEMPT = ("preempt", "requeue", "forget", "scancel", "time limit", "cancel", "stop", *_NODE_FAULTS, *_LAST_WORDS)
_COMMANDS = ("status", "cancel", "stop", "resume")
# Where an attempt is. Attempt n is at 3 n - 2 once it trains, at 3 n - 1 once it has written a checkpoint, and at 3 n
# when nothing of it is left; it is half a step before these while it begins and while it ends.
_TRAINS, _HAS_CHECKPOINT, _HALF = -2.0, -1.0, 0.5
# An update takes as long as the run directory's file `pace` says: what befalls the ranks finds them at work. One fails
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
_PACES = {_TRAINS: _STANDS, _HAS_CHECKPOINT: _WALKS}
# Of a site where jobs may not be requeued.
_REFUSES = """\
scontrol() {
  if [[ "$1" != requeue ]]; then command scontrol "$@"; return; fi
  echo 'slurm_requeue error: Requested operation is presently disabled' >&2
  return 1
}
"""
_KILL_NODE = """\
for folder in /proc/[0-9]*; do
  if tr '\\0' '\\n' 2>/dev/null <"$folder/environ" | grep -qx "SLURMD_NODENAME=$1"; then
    parent=$(sed -n 's/^PPid:[^0-9]*//p' "$folder/status")
    if grep -q slurmstepd "/proc/$parent/comm"; then echo "$parent"; fi
    echo "${folder#/proc/}"
  fi
done 2>/dev/null | sort -u | xargs -r kill -KILL 2>/dev/null || true
"""


class Happening(NamedTuple):
    """What befalls the run, and where its attempt is then."""

    place: float
    what: str

    def __str__(self) -> str:
        attempt = int(-(-self.place // 3))
        where = {_TRAINS: f"attempt {attempt} trains", _HAS_CHECKPOINT: f"attempt {attempt} has a checkpoint"}
        return f"{self.what} ({where.get(self.place - 3 * attempt, f'after attempt {attempt}')})"


class Outcome(NamedTuple):
    """What has become of a run. `told`: what commands told of it, and faults that came too late."""

    told: tuple[str, ...]
    ended_as: tuple[str, ...]  # the state after each of its ends
    attempts: int
    jobs: int
    durable_never_decreases: bool
    is_pruned: bool


class Stage(Protocol):
    """A world with one submitted run, in which no job starts but while it is waited for."""

    def reaches(self, place: float) -> bool:
        """Let the run go on until it is there; return False where it gets past it, or does not get there."""

    def befalls(self, what: str) -> str:
        """Have it happen, and return once its attempt has ended, if it ends that; return what a command told."""

    def ends(self) -> str:
        """Let the run go on until nothing of it is left; return the state that `status` tells."""

    def outcome(self, told: Sequence[str], ended_as: Sequence[str]) -> Outcome:
        """Prune the run; return what has become of it."""


def played(stage: Stage, happenings: Sequence[Happening]) -> Outcome:
    """Return what becomes of the run that all this befalls, and that is resumed until it is complete."""
    told = [
        f"{what}: {stage.befalls(what) if stage.reaches(place) else 'the run was elsewhere'}"
        for place, what in happenings
    ]
    ended_as = [stage.ends()]
    while ended_as[-1] != states.COMPLETED and len(ended_as) < _MOST_ROUNDS:
        stage.befalls("resume")
        ended_as.append(stage.ends())
    return stage.outcome(told, ended_as)


# -- in the simulated world --------------------------------------------------------------------------------------------


def _place(one: history.History, paths: RunPaths) -> float:
    """Return where the run's newest attempt is."""
    begun = attempts.current(paths)
    job = next((job for job in one.slurm.of_run(paths.folder) if job.state in ("RUNNING", "COMPLETING")), None)
    if job is None:
        return 3.0 * begun
    step = job.step
    if job.state == "RUNNING" and (step is None or not step.began):
        name = f"script {job.id}.{job.starts}"
        return 3.0 * one.checker.attempt_of.get(name, begun + 1) + _TRAINS - _HALF
    if job.state == "COMPLETING" or step is None or step.is_over or step.over_at != float("inf"):
        return 3.0 * begun - _HALF
    return 3.0 * step.attempt + (_HAS_CHECKPOINT if step.durable > step.began_from else _TRAINS)


class Recorded(history.History):
    """An ordinary history that notes what befalls its first run: as `happenings` what a real Slurm can have, too."""

    def __init__(self, seed: int, where: history.Place) -> None:
        super().__init__(seed, where)
        self.happenings: list[Happening] = []
        self.left_out = Counter[str]()
        slurm, site = self.slurm, self.slurm.site
        self.left_out["answers in trouble"] = int(site.trouble > 0)
        for name, what in (
            ("preempt", "preempt"),
            ("requeue_by_hand", "requeue"),
            ("forget_start", "forget"),
            ("administrator_cancels", "scancel"),
        ):
            setattr(slurm, name, self._noting(what, getattr(slurm, name)))
        fail_node, near_limit, goes_down = slurm.fail_node, slurm._near_limit, self._controller_goes_down

        def fails(job: Job, index: int, *, is_cut: bool) -> None:
            what = next(name for name, fault in _NODE_FAULTS.items() if fault == (index, is_cut))
            self._noting(what, lambda job: fail_node(job, index, is_cut=is_cut))(job)

        def nears_limit(job: Job, number: int) -> None:
            if job.state == "RUNNING" and job.starts == number and job.step is not None and not job.step.is_over:
                self._note("time limit", job)
            near_limit(job, number)

        def down() -> None:
            self._note("down", None)
            goes_down()

        # Set where they are looked up.
        slurm.fail_node, slurm._near_limit = fails, nears_limit  # type: ignore[method-assign]
        self._controller_goes_down = down  # type: ignore[method-assign]

    def _noting(self, what: str, do: Callable[[Job], None]) -> Callable[[Job], None]:
        def noting(job: Job) -> None:
            self._note(what, job)
            do(job)

        return noting

    def _note(self, what: str, job: Job | None) -> None:
        """Note what befalls the job; None: the first run, whatever its job does."""
        if self.world.is_calm or not self.runs():
            return
        paths = self.runs()[0]
        place = _place(self, paths)
        if job is not None and (job.folder != paths.folder or place % 3 == 3 - _HALF):
            self.left_out["befalls another run, or an attempt that ends"] += 1
        else:
            # Beginnings are short: it comes as soon as the ranks train. A command waits for the end of what ends.
            self.happenings.append(Happening(place + _HALF if place % 1 else place, what))

    def _kill_client(self) -> None:
        self.left_out["a command is killed"] += 1
        super()._kill_client()

    def _plan_step(self, job: Job, step: Step) -> None:
        super()._plan_step(job, step)
        fails = step._rank_fails
        self.left_out["srun hangs"] += int(step.is_hung)

        def failing(code: int, last_words: str) -> None:
            kind = next((kind for kind, words in _LAST_WORDS.items() if words == last_words), None)
            if kind is not None and code != 143:
                self._note(kind, job)
            fails(code, last_words)

        step._rank_fails = failing  # type: ignore[method-assign]

    def start(self, kind: str, host: str, work: Callable[[], object], **faults: Any) -> Command:
        """Note the command, too."""
        word = {"list": "status"}.get(kind, kind)
        if word in _COMMANDS:
            self._note(word, None)
        elif not self.world.is_calm and self.clients.commands:
            self.left_out[f"{kind} beside it"] += 1
        self.left_out["a command is killed"] += int("killed_at" in faults)
        return super().start(kind, host, work, **faults)


class SimulatedStage:
    """The run of a seed's site in the simulated world, where nothing else goes wrong."""

    def __init__(self, one: history.History) -> None:
        self._one = one
        site = dataclasses.replace(one.slurm.site, trouble=0.0, is_busy=False, has_accounting=False)
        one.slurm.site, one.clients.clocks = site, {}
        one.job = one.place.job(site.preemption, _TIME_LIMIT, follow_up=one.queues_follow_up)
        one.slurm.plan_start, one.slurm.plan_step = lambda _job: ([], None), lambda _job, step: one.checker.watch(step)
        one.slurm.is_held = True
        one.do("submit", one._submit)
        self._paths = one.runs()[0]

    def _is_over(self) -> bool:
        return self._one._is_quiet(self._paths)

    def _run(self, until: Callable[[], bool], what: str) -> None:
        self._one.world.run(until, _LIMIT_S * 10)
        if not until():
            raise TimeoutError(f"in the simulated world {what} takes too long")

    def reaches(self, place: float) -> bool:
        one = self._one
        one.slurm.is_held = _place(one, self._paths) == place
        self._run(lambda: _place(one, self._paths) >= place or self._is_over(), str(Happening(place, "it")))
        one.slurm.is_held = True
        return _place(one, self._paths) == place

    def befalls(self, what: str) -> str:
        one, paths, told = self._one, self._paths, ""
        place = _place(one, paths)
        job = next((job for job in one.slurm.of_run(paths.folder) if job.state == "RUNNING"), None)
        if what in _COMMANDS:
            work: dict[str, Callable[[], object]] = {
                "status": lambda: status(paths),
                "cancel": lambda: cancelling.cancel(paths, grace_s=30.0),
                "stop": lambda: cancelling.stop(paths),
                "resume": lambda: one._resume_run(paths),
            }
            done = one.do(what, work[what])
            told = "refused" if done.error else str(getattr(done.result, "state", "")) if what == "status" else "done"
        elif what == "down":
            one.slurm.down_until = one.world.now + _DOWN_S
            one.world.run(limit_s=_DOWN_S)
        elif job is None:
            return "no job runs"
        elif what in _NODE_FAULTS:
            index, is_cut = _NODE_FAULTS[what]
            one.slurm.fail_node(job, index, is_cut=is_cut)
        elif what in _LAST_WORDS and job.step is not None:
            job.step.fails_at, job.step.fails_as = job.step.update, _LAST_WORDS[what]
        elif what == "time limit":
            one.slurm._near_limit(job, job.starts)
        else:
            slurm = one.slurm
            {
                "requeue": slurm.requeue_by_hand,
                "preempt": slurm.preempt,
                "scancel": slurm.administrator_cancels,
                "forget": slurm.forget_start,
            }[what](job)
        if what in _ENDS_ATTEMPT and place % 3:
            settled = 3.0 * -(-place // 3)
            self._run(lambda: _place(one, paths) >= settled, f"the end of an attempt after {what}")
        return told

    def ends(self) -> str:
        self._one.slurm.is_held = False
        self._run(self._is_over, "the end of the run")
        self._one.slurm.is_held = True
        return self.befalls("status")

    def outcome(self, told: Sequence[str], ended_as: Sequence[str]) -> Outcome:
        one, paths = self._one, self._paths
        last, jobs = attempts.current(paths), len(one.slurm.of_run(paths.folder))
        one.world.run(limit_s=60.0)
        chosen = {"older_than": timedelta(0), "in_states": states.ENDED, "keep": 0}
        one.do("prune", lambda: pruning.remove(pruning.candidates(**chosen)))  # type: ignore[arg-type]
        never_decreases = not any("durable progress" in line for line in one.world.violations)
        return Outcome(tuple(told), tuple(ended_as), last, jobs, never_decreases, not paths.folder.exists())


# -- on a real Slurm ---------------------------------------------------------------------------------------------------


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
            "time_limit": _TIME_LIMIT,
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
        self._jobs: dict[str, queue.Job] = {}
        self._attempt, self._durable_before = 0, 0

    def _trainjob(self, *words: str) -> str:
        command = [sys.executable, "-m", "trainjob", *words]
        return self._slurm.run(command, folder=self._folder, environment=self._environment, timeout_s=_LIMIT_S).text

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

    def _see(self) -> list[queue.Job]:
        """Return the run's jobs that have not ended."""
        shown = self._slurm.run(["scontrol", "show", "job", "-o"], check=False).text
        self._jobs.update((job.id, job) for job in queue.parse_shown(shown) if job.folder == str(self._paths.folder))
        newest = checkpoints.newest(self._paths)
        if newest is not None:
            self._durable.append(checkpoints.update_of(newest))
        return [job for job in self._jobs.values() if not job.has_ended and job.reason != "DependencyNeverSatisfied"]

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
            return 3.0 * begun + _TRAINS - _HALF
        if at_work[0].state != "RUNNING" or word != states.RUNNING:
            return 3.0 * begun - _HALF
        found = progress.load(self._paths)
        durable = (found.durable_update or 0) if found is not None and found.attempt == begun else 0
        return 3.0 * begun + (_HAS_CHECKPOINT if durable > self._durable_before else _TRAINS)

    def _read(self, name: str) -> str:
        file = self._paths.folder / name
        return file.read_text() if file.exists() else ""

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not holds():
            if time.monotonic() > deadline:
                log = self._paths.scheduler_log.read_text(errors="replace")
                raise TimeoutError(f"{what} took more than {_LIMIT_S:g} s; the job script printed:\n{log[-4000:]}")
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

    def befalls(self, what: str) -> str:
        place, told = self._place(), ""
        job = next((job for job in self._see() if job.state == "RUNNING"), None)
        if what in ("cancel", "stop"):
            self._set_pace(_WALKS)  # ranks hear of it once they go on, and it waits for them
        if what in _COMMANDS:
            told = self._works(what)
        elif what == "down":
            self._restart_controller(f"sleep {_DOWN_S}", "TERM")
        elif job is None:
            return "no job runs"
        else:
            self._befalls_job(what, job)
        if what in _ENDS_ATTEMPT and place % 3:
            self._set_pace(_WALKS)
            settled = 3.0 * -(-place // 3)
            self._until(lambda: self._place() >= settled, f"the end of an attempt after {what}")
            if what == "time limit" and job is not None:
                # The limit of a job that was requeued is the one that it had last.
                faults.set_limit(self._slurm, job.id, _TIME_LIMIT)
        return told

    def _befalls_job(self, what: str, job: queue.Job) -> None:
        slurm = self._slurm
        if what in _NODE_FAULTS:
            index, is_cut = _NODE_FAULTS[what]
            node = slurm.run(["scontrol", "show", "hostnames", job.nodes]).text.split()[index]
            faults.kill_daemon(slurm, node)
            if not is_cut:
                slurm.run_as_root(["sh", "-c", _KILL_NODE, "kill_node", node])
            faults.give_up(slurm, node)
        elif what in _LAST_WORDS:
            (self._paths.folder / "fails").write_text(_LAST_WORDS[what])
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
        return self.befalls("status")

    def outcome(self, told: Sequence[str], ended_as: Sequence[str]) -> Outcome:
        last = attempts.current(self._paths)
        self._trainjob("prune", "--older-than-days", "0", "--yes")
        never_decreases = self._durable == sorted(self._durable)
        gone = not self._paths.folder.exists()
        return Outcome(tuple(told), tuple(ended_as), last, len(self._jobs), never_decreases, gone)


@contextmanager
def slurm_of_site(preemption: str) -> Iterator[PrivateSlurm]:
    """Yield a Slurm on which jobs are preempted as on a site."""
    main = SlurmPartition("main", preempt_mode=preemption.upper(), grace_s=60)
    partitions = (main, SlurmPartition(PREEMPTING_PARTITION, priority_tier=10))
    with private_slurm(Description(nodes=_NODES, memory_mb=8 * 1024, partitions=partitions)) as slurm:
        yield slurm


# ----------------------------------------------------------------------------------------------------------------------


def replayed(seed: int) -> bool:
    """Play the history of a seed in both worlds, and print what became of its run; return whether they agree."""
    began = time.monotonic()
    with history.place() as where:
        recorded = Recorded(seed, where)
        recorded.run()
        with (one := history.History(seed, where)).clients.instead_of_the_real():
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
    for happening, told in zip(recorded.happenings, found.told, strict=True):
        print(f"  {happening}{told.partition(':')[2]}")
    print(f"  left out: {', '.join(what for what, count in recorded.left_out.items() if count) or 'nothing'}")
    print(f"  {found._replace(told=())}" if found == expected else f"  {found}\n  simulated: {expected}")
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
