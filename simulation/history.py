"""One history: what the seed lets happen to a run, and the peace after it, in which the run must come to its end."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from simulation import plan as faults
from simulation import ranks
from simulation.checker import Checker, locks
from simulation.commands import Clients, Command
from simulation.jobs import Job, Site
from simulation.ranks import Step
from simulation.scripts import Scripts, StuckError
from simulation.slurm import Slurm
from simulation.storage import Storage
from simulation.world import World
from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import cancel as cancelling
from trainjob.lifecycle import prune as pruning
from trainjob.observe import index
from trainjob.observe.listing import Choice, listed
from trainjob.observe.status import Snapshot, status
from trainjob.records.files import read_json
from trainjob.requests import interface
from trainjob.requests.interface import PlannedJob

HOSTS = ("login1", "login2")
# Virtual seconds in which things go wrong.
FAULTS_UNTIL_S = 1500.0
_END_WITHIN_S = 4 * 3600.0
_MOST_ROUNDS = 8
# Of a job script's own commands, after which it may be stopped or killed.
_STEPS = 550
_CLUSTER = """\
kind: slurm
nodes: {{count: 4, accelerator: cpu, accelerators: 0, cpus: 4, memory_gb: 8}}
request: none
directives: {{partition: main}}
time_limit: "{limit}"
preemption: {preemption}
queue_follow_up: {follow_up}
python: /usr/bin/python3
runs_dir: {folder}/runs
data_dir: {folder}/data
node_check: false
"""


class Place:
    """The folder of one process's histories, and the job in it, planned once for each kind of site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._jobs: dict[tuple[str, bool, str, bool], PlannedJob] = {}

    def clear(self) -> None:
        """Begin with an empty folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("home", "project", "runs"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "project/train.py").touch()

    def job(self, preemption: str, limit: str, *, follow_up: bool, is_task: bool = True) -> PlannedJob:
        """Return the job for a site: a task, or a script of the user's."""
        key = (preemption, follow_up, limit, is_task)
        if key not in self._jobs:
            file = self.folder / "cluster.yaml"
            text = _CLUSTER.format(
                folder=self.folder, preemption=preemption, follow_up=str(follow_up).lower(), limit=limit
            )
            file.write_text(text)
            settings: dict[str, Any] = {"task": "digits-cnn"} if is_task else {}
            self._jobs[key] = interface.plan(
                file,
                command=None if is_task else ["python", "train.py"],
                hosts=2,
                instances=2,
                name="sim",
                project=self.folder / "project",
                max_attempts=9,
                **settings,
            )
        return self._jobs[key]


@contextmanager
def place() -> Iterator[Place]:
    """Give histories a folder in memory, and a user's folders in it."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="trainjob-simulation-", dir=memory if os.access(memory, os.W_OK) else None))
    kept = {name: os.environ.get(name) for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    os.environ.update(XDG_DATA_HOME=str(folder / "home"), XDG_CONFIG_HOME=str(folder / "home"))
    made = Place(folder)
    made.clear()
    try:
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class History:
    """One history of a seed."""

    def __init__(self, seed: int, where: Place, about: str = "", program: str = "") -> None:
        self.place = where
        where.clear()
        self.world = world = World(seed, where.folder, FAULTS_UNTIL_S)
        self.plan = plan = world.random("plan")
        self.theme = theme = faults.theme_of(seed, about)
        site = Site(
            preemption=plan.choice(["requeue", "requeue", "cancel"]),
            requeues=plan.random() < theme.requeues,
            has_accounting=plan.random() < 0.5,
            is_busy=plan.random() < theme.busy,
            trouble=plan.choice(theme.trouble),
            troubled=theme.troubled,
            answers=theme.answers,
            term_within_s=theme.term_within_s,
            epilogue_s=theme.epilogue_s,
        )
        limit = plan.choice(["01:00:00", "00:03:30"])
        self.queues_follow_up = not site.requeues and plan.random() < 0.8
        self.program = faults.program_of(seed, theme, program)
        self.job = where.job(site.preemption, limit, follow_up=self.queues_follow_up, is_task=self.program.is_task)
        self.scripts = Scripts(world)
        self.slurm = Slurm(world, self.scripts, site)
        self.slurm.program = self.program
        late_s = world.random("storage").choice(theme.storage_late_s)
        storage = Storage(world, HOSTS, [where.folder / "runs", where.folder / "home"], late_s)
        self.scripts.changes = lambda path: storage.changes(str(path))
        self.clients = Clients(world, storage, self.slurm.programs.answer)
        self.clients.clocks = {host: plan.choice([0.0, 0.0, 120.0, -300.0]) for host in HOSTS}
        self.checker = Checker(world, self.slurm, self.clients)
        self.slurm.plan_start, self.slurm.plan_step = self._plan_start, self._plan_step
        world.note(
            "world", "theme", f"{theme.name}; {self.program.name}; {site}, limit {limit}, clocks {self.clients.clocks}"
        )

    def run(self) -> World:
        """Return the world after its history."""
        try:
            with self.clients.instead_of_the_real():
                self._plan_faults()
                self._plan_commands()
                self.world.run(limit_s=FAULTS_UNTIL_S)
                self._peace()
                self.checker.end()
        except StuckError as error:
            self.world.violate("the simulation itself", str(error))
        finally:
            self.scripts.close()
        return self.world

    # What goes wrong.

    def _plan_faults(self) -> None:
        slurm = self.slurm

        def with_job(do: Callable[[Job], None]) -> Callable[[], None]:
            def doing() -> None:
                job = next((job for job in slurm.jobs.values() if job.state == "RUNNING"), None)
                if job is not None and not self.world.is_calm:
                    do(job)

            return doing

        kinds: dict[str, Callable[[], None]] = {
            "down": self._controller_goes_down,
            "preempt": with_job(slurm.preempt),
            "requeue": with_job(slurm.requeue_by_hand),
            "forget": with_job(slurm.forget_start),
            "dies first": with_job(lambda job: slurm.fail_node(job, 0, is_cut=False)),
            "is cut off": with_job(lambda job: slurm.fail_node(job, 0, is_cut=True)),
            "dies second": with_job(lambda job: slurm.fail_node(job, 1, is_cut=False)),
            "administrator cancels": with_job(slurm.administrator_cancels),
            "kills a client": self._kill_client,
            "a clock jumps": self._clock_jumps,
            "is asked": with_job(slurm.ask_to_stop),
        }
        for moment, kind in self.theme.certain:
            self.world.when(moment, 1, 0.0, kinds[kind])
        for _ in range(self.plan.randint(1, self.theme.most[0])):
            self._sometime(kinds[self.plan.choice(self.theme.faults)])

    def _kill_client(self) -> None:
        """Kill the command that began last, at its next step."""
        running = [command for command in self.clients.commands if not command.is_over]
        if running and not self.world.is_calm:
            running[-1].killed_at = running[-1].count + 1

    def _clock_jumps(self) -> None:
        if self.world.is_calm:
            return
        draw = self.world.random(f"clock {self.world.now}")
        host, by_s = draw.choice(HOSTS), draw.choice([-3600.0, -45.0, 45.0, 3600.0])
        self.clients.clocks[host] += by_s
        self.world.note(host, "clock jumps", f"by {by_s:+.0f} s")

    def _controller_goes_down(self) -> None:
        if self.world.is_calm:
            return
        down_s = self.world.random(f"down {self.world.now}").uniform(3.0, 150.0)
        self.slurm.down_until = self.world.now + down_s
        self.world.note("slurm", "is down", f"for {down_s:.0f} s")

    def _sometime(self, do: Callable[[], None]) -> None:
        plan = self.plan
        if plan.random() < 0.15:
            self.world.after(plan.uniform(0.0, FAULTS_UNTIL_S - 200.0), do)
        else:
            moment, number = plan.choice(self.theme.moments), plan.choice(self.theme.numbers)
            self.world.when(moment, number, faults.delay_s(plan, self.theme.longest_s), do)

    def _plan_start(self, job: Job) -> tuple[list[int], int | None]:
        draw = self.world.random(f"start {job.id}.{job.starts}")
        if self.world.is_calm:
            return [], None
        pauses = sorted(draw.sample(range(1, _STEPS), draw.choice([0, 0, 0, 3, 6])))
        return pauses, draw.randrange(1, _STEPS) if draw.random() < self.theme.killed else None

    def _plan_step(self, job: Job, step: Step) -> None:
        self.checker.watch(step)
        draw = self.world.random(f"step {job.id}.{job.starts}")
        if self.world.is_calm:
            return
        if draw.random() < self.theme.fails:
            step.fails_at = draw.randrange(0, ranks.UPDATES)
            for_good = draw.random() < self.theme.fails_for_good
            step.fails_as = draw.choice([ranks.KILLED, ranks.BROKEN]) if for_good else ranks.LOST_GPU
        if self.theme.tells_others:
            step.is_failure_seen = draw.choice([True, False])
        step.is_hung = draw.random() < self.theme.hangs
        step.dies_at_term = draw.choice([None, ""])
        step.sees_late_s = draw.choice([0.0, 0.0, 0.0, 20.0, 60.0])
        if draw.random() < self.theme.full:
            step.disk_is_full_until = self.world.now + draw.uniform(10.0, 300.0)

    def _plan_commands(self) -> None:
        kinds: dict[str, Callable[[], object]] = {
            "status": self._status,
            "list": self._list,
            "cancel": self._cancel,
            "resume": self._resume,
            "stop": self._stop,
            "wait": self._wait,
            "prune": self._prune,
            "submit": self._submit,
        }
        self.world.after(0.0, self._command("submit", self._submit))
        for _ in range(self.plan.randrange(self.theme.most[1] + 1)):
            kind = self.plan.choice(self.theme.commands)
            begin = self._command(kind, kinds[kind])
            if self.plan.random() < 0.4:  # a second client does the same, at about the same time
                begin = self._both(begin, self._command(kind, kinds[kind]), self.plan.uniform(0.0, 0.5))
            self._sometime(begin)
        # Somebody looks after a while.
        self.world.after(self.plan.uniform(100.0, 600.0), self._command("status", self._status))

    def _both(self, begin: Callable[[], None], other: Callable[[], None], later_s: float) -> Callable[[], None]:
        def both() -> None:
            begin()
            self.world.after(later_s, other)

        return both

    def _command(self, kind: str, work: Callable[[], object]) -> Callable[[], None]:
        plan = self.plan
        host = plan.choice(HOSTS)
        wrong: dict[str, Any] = {}
        if plan.random() < self.theme.killed + 0.04:
            wrong["killed_at"] = plan.randrange(1, 30)
        if plan.random() < 0.05:
            first = plan.randrange(1, 25)
            wrong["full_at"] = frozenset(range(first, first + plan.choice([1, 2, 40])))
        if plan.random() < self.theme.pauses:
            wrong["pauses"] = {plan.randrange(1, 25): plan.uniform(0.1, 20.0)}

        def begin() -> None:
            if not self.world.is_calm:
                self.start(kind, host, work, **wrong)

        return begin

    # Commands.

    def start(self, kind: str, host: str, work: Callable[[], object], **faults: Any) -> Command:
        """Start a command."""
        return self.clients.start(f"{kind} {len(self.clients.commands) + 1}", host, work, **faults)

    def do(self, kind: str, work: Callable[[], object]) -> Command:
        """Start a command, and return it when it has ended."""
        command = self.start(kind, HOSTS[0], work)
        self.world.run(lambda: command.is_over)
        return command

    def runs(self) -> list[RunPaths]:
        """Return the runs whose folders exist."""
        folders = sorted((self.place.folder / "runs").iterdir(), key=lambda one: one.name)
        return [RunPaths(one) for one in folders if not one.name.startswith(".")]

    def _submit(self) -> object:
        return self.job.submit(check=False).folder

    def _status(self) -> Snapshot:
        return status(index.find("last"))

    def _list(self) -> list[Snapshot]:
        return listed(Choice())

    def _cancel(self) -> Snapshot:
        return cancelling.cancel(index.find("last"), grace_s=30.0)

    def _stop(self) -> object:
        paths = index.find("last")
        cancelling.stop(paths)
        return paths.folder

    def _resume(self) -> object:
        return self._resume_run(index.find("last"))

    def _resume_run(self, paths: RunPaths) -> object:
        before = self.checker.truth(paths.folder).cancelled_at
        self.checker.resumes(paths.folder)
        try:
            interface.run(paths.folder).resume(warn=lambda _line: None)
        except BaseException:
            # Refused: the run stays as it is, unless another resume is at it.
            under_way = [one for one in self.clients.commands if one.name.startswith("resume") and not one.is_over]
            if len(under_way) < 2 and all(job.has_ended for job in self.slurm.of_run(paths.folder)):
                self.checker.truth(paths.folder).cancelled_at = before
            raise
        return paths.folder

    def _wait(self) -> Snapshot | None:
        try:
            return interface.run("last").wait(timeout_s=100.0)
        except TimeoutError:
            return None

    def _prune(self) -> None:
        age = timedelta(seconds=self.theme.prunes_after_s)
        chosen = pruning.candidates(older_than=age, in_states=states.ENDED, keep=0)
        # A run that has just ended may be resumed meanwhile, which `remove` sees.
        for candidate in chosen:
            jobs = self.slurm.of_run(Path(candidate.status.folder))
            # One that is COMPLETING has nothing left that writes.
            if age and any(job.state in ("PENDING", "RUNNING") and not job.can_never_start for job in jobs):
                self.world.violate("prune removes what has ended", candidate.status.id)
        kept = pruning.remove(chosen)
        pruning.forget_missing()
        for removed in (one.status for one in chosen if one.status.id not in kept):
            if removed.id in index.ids():
                self.world.violate("a run that was removed is forgotten", removed.id)
            jobs = self.slurm.of_run(Path(removed.folder))
            # Slurm learns a moment later that a script has ended.
            jobs = [job for job in jobs if job.script is None or not job.script.is_over]
            if any(job.state in ("PENDING", "RUNNING") and not job.can_never_start for job in jobs):
                self.world.violate("prune removes what has ended", f"{removed.id}, which has a job")

    # Peace: faults are over.

    def _peace(self) -> None:
        world = self.world
        world.note("world", "peace")
        world.run(lambda: all(command.is_over for command in self.clients.commands), _END_WITHIN_S)
        for command in self.clients.commands:
            if not command.is_over:
                world.violate("every command ends", command.name)
                return
        for paths in self.runs():
            if paths.id not in index.ids():
                world.violate("no run is lost", paths.id)
            self._to_its_end(paths)
        self.do("list", self._list)
        self._nothing_is_left()

    def _is_quiet(self, paths: RunPaths) -> bool:
        return all(job.has_ended or job.can_never_start for job in self.slurm.of_run(paths.folder)) and all(
            script.is_over for script in self.scripts.by_number.values() if script.folder == paths.folder
        )

    def _to_its_end(self, paths: RunPaths) -> None:
        world = self.world
        if self.plan.random() < 0.25:
            cancelled = self.do("cancel", lambda: cancelling.cancel(paths, grace_s=30.0)).result
            world.run(limit_s=1800.0)
            if isinstance(cancelled, Snapshot) and cancelled.state in states.ENDED and not self._is_quiet(paths):
                world.violate("cancel ends everything", paths.id)
        for _ in range(_MOST_ROUNDS):
            world.run(lambda: self._is_quiet(paths), _END_WITHIN_S)
            if not self._is_quiet(paths):
                world.violate("every run ends", f"{paths.id} is still at work")
                return
            world.run(limit_s=120.0)
            if not self._is_quiet(paths):
                continue
            now = self.do("status", lambda: status(paths)).result
            if not isinstance(now, Snapshot):
                world.violate("every run ends", f"status of {paths.id} is refused")
                return
            if now.state in states.ACTIVE:
                world.violate("the reported state is true", f"{paths.id} is {now.state}, and nothing of it is left")
                return
            if now.state == states.COMPLETED:
                return
            again = self.do("resume", lambda: self._resume_run(paths))
            if again.error is not None:
                self._after_refusal(paths, again)
        world.violate("every run ends", f"{paths.id} is not COMPLETED after {_MOST_ROUNDS} rounds in peace")

    def _after_refusal(self, paths: RunPaths, again: Command) -> None:
        lock = paths.folder / ".lock"
        if "is locked" not in str(again.error) or not lock.exists():
            return
        if (read_json(lock) or {}).get("host") == again.host:
            self.world.violate("nothing is left behind", "a lock whose holder is gone, as its host can see")
        # Its holder was killed on another host: the message says that the lock may be removed.
        lock.unlink()
        self.world.note("administrator", "removes the lock")

    def _nothing_is_left(self) -> None:
        world = self.world
        world.run(limit_s=2 * 3600.0)
        for job in self.slurm.jobs.values():
            if not job.has_ended:
                world.violate("nothing is left behind", f"job {job.id} is {job.state} ({job.reason})")
        if not all(script.is_over for script in self.scripts.by_number.values()):
            world.violate("nothing is left behind", "a job script")
        left = locks(self.place.folder / "runs", {one.pid for one in self.clients.commands if one.is_killed})
        if left:
            world.violate("nothing is left behind", ", ".join(left))

        for lock in (self.place.folder / "runs").glob("*/.lock"):
            lock.unlink()  # its holder was killed, which only commands on that host can see

        def prune() -> None:
            ever = timedelta(days=-1)  # the clock of another host may have been hours ahead at the submission
            chosen = pruning.candidates(older_than=ever, in_states=states.ENDED, keep=0)
            pruning.remove(chosen)
            for folder in pruning.leftovers(older_than=ever):
                shutil.rmtree(folder)
            pruning.forget_missing()

        self.do("prune", prune)
        left = [path.name for path in (self.place.folder / "runs").iterdir()] + index.ids()
        if left:
            world.violate("nothing is left behind", f"after prune: {', '.join(left)}")


def happens(seed: int, where: Place, about: str = "", program: str = "") -> World:
    """Return the world of a seed after its history."""
    random.seed(seed)
    return History(seed, where, about, program).run()
