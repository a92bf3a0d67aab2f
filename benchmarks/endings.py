"""What becomes of twelve programs that know nothing of trainjob when something ends them?

    python -m benchmarks.endings --python ENV/bin/python                 # twelve programs, eight events: an hour
    python -m benchmarks.endings --python ENV/bin/python --event scancel --program lightning --program fabric

They run on a private Slurm, on this machine, and on hosts. The programs are in `ending_programs/`, as their users write
them. Each is ended in the middle of its first attempt; one that is not started again is then resumed by hand. A case is
wrong if the state of its first attempt is another one than expected, if it has no sentence, if it is COMPLETED with
updates left, if more or fewer attempts begin than expected, or if more updates are made twice than lay behind its last
checkpoint. A program whose framework the interpreter lacks is skipped, and said so. Exit code 1 if a case is wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulation.replay import KILL_NODE
from tests.support.backend_places import OfHosts
from tests.support.local_runs import Here, Run
from tests.support.network_hosts import network_hosts
from tests.support.slurm_jobs import ONE_RANK_NODES, Login, cluster_file, parsed
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import events
from trainjob.rehearse.slurm import faults
from trainjob.rehearse.slurm.description import SlurmPartition, description_of
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

_PROGRAMS = Path(__file__).with_name("ending_programs")
EVERY = 50  # updates between two checkpoints of those that keep some
_ENDED_AT = 2.4 * EVERY
_LIMIT_S = 400.0
_MARGIN_S = 60
_CANCELS = "cancels"
_URGENT = 16
_MOST_RESUMES = 8


@dataclass(frozen=True)
class Program:
    """`saves_at`: the signals at which it saves; `ends_at`: those that it handles without saving."""

    name: str
    words: tuple[str, ...]
    module: str = "torch"
    instances: int = 2
    saves_at: tuple[str, ...] = ()
    ends_at: tuple[str, ...] = ()
    keeps: bool = True  # a checkpoint each so many updates
    requeues: bool = False  # its job itself, where Slurm has started it
    stops_early: bool = False


PROGRAMS = (
    Program("plain torch, ends with 0", ("plain.py",), saves_at=("USR1", "TERM"), keeps=False),
    Program("plain torch, ends with 143", ("plain.py", "143"), saves_at=("USR1", "TERM"), keeps=False),
    # With several ranks it may hang: each sees the request at an update of its own.
    Program("Trainer, enable_jit_checkpoint", ("trainer.py", "jit"), "transformers", 1, ("TERM",), keeps=False),
    Program("Trainer", ("trainer.py",), "transformers"),
    Program("Lightning", ("lit.py",), "lightning", saves_at=("USR1",), ends_at=("TERM",), keeps=False, requeues=True),
    Program("Lightning under torchrun", ("torchrun", "lit.py"), "lightning", ends_at=("TERM",), keeps=False),
    Program("Fabric", ("fabric.py",), "lightning"),
    Program("accelerate, its example", ("accelerated.py",), "accelerate"),
    Program("nanoGPT", ("gpt_loop.py",)),
    Program("torchtitan", ("titan.py",)),
    Program("submitit", ("checkpointable.py",), "submitit", 1, ("USR1",), ("TERM",), keeps=False, requeues=True),
    Program("early stopping", ("early_stopping.py",), instances=1, saves_at=("TERM",), stops_early=True),
)


_LONG = 4000  # what Slurm calls a limit of two minutes may take three


@dataclass(frozen=True)
class Event:
    """`signals`: which come to the ranks, in their order."""

    name: str
    place: str  # slurm, local, hosts
    signals: tuple[str, ...] = ()
    cluster: str = "hpc"
    options: tuple[str, ...] = ()
    updates: int = 600  # of 50 ms: an attempt outlives its event


TIME_LIMIT, ELEMENT = "time limit", "array element, time limit"
REQUEUE, CANCEL = "preempted, requeue", "preempted, cancel"
EVENTS = (
    Event(TIME_LIMIT, "slurm", ("USR1", "TERM"), updates=_LONG),
    Event(REQUEUE, "slurm", ("TERM",)),
    Event(CANCEL, "slurm", ("TERM",), _CANCELS),
    Event("node loss", "slurm"),
    Event("scancel", "slurm", ("TERM",)),
    Event(ELEMENT, "slurm", ("USR1", "TERM"), options=("--array=1-1",), updates=_LONG),
    # An attempt that begins at 0 when it is resumed must be done before it is asked again.
    Event("time_limit, local", "local", ("USR1", "TERM"), updates=3200),
    Event("time_limit, hosts", "hosts", ("USR1", "TERM"), updates=3200),
)


# The request ends it or makes it fail, or it hangs until the limit ends it: its framework and timing decide.
BY_ITS_END = "by its end"


def by_its_end(code: int, *, was_ended: bool, is_continued: bool) -> str:
    """Return the state of an attempt that was asked and has saved nothing.

    `was_ended`: by the limit; `is_continued`: it had written a checkpoint before, and Slurm can start it again.
    """
    if is_continued:
        return "REQUEUED"
    if was_ended:
        return "TIMEOUT"
    return "STOPPED" if code == 0 else "FAILED"


def expected(program: Program, event: Event) -> str:
    """Return the state in which the first attempt is to end."""
    requeues = program.requeues and event.place == "slurm"
    saves = bool({*program.saves_at} & {*event.signals}) and (not program.requeues or requeues)
    if event.name == "scancel":
        return "CANCELLED"
    if event.name == "node loss" and program.instances == 1:
        return "LOST"  # with the node of its job script
    if event.name in (REQUEUE, "node loss"):
        return "REQUEUED"
    if event.name == CANCEL:
        # Lightning keeps a checkpoint of each epoch, which its script does not load.
        return "REQUEUED" if saves or program.keeps else "REQUEUED|STOPPED|CANCELLED"
    if saves:
        return "STOPPED" if event.place != "slurm" else "REQUEUED"
    if program.ends_at:  # one that handles TERM and does not save at it is asked by it
        return BY_ITS_END
    return "REQUEUED" if event.place == "slurm" and program.keeps else "TIMEOUT"


def most_lost(program: Program, event: Event) -> int:
    """Return how many updates may be made twice: those behind the last checkpoint."""
    if {*program.saves_at} & {*event.signals} and not (program.requeues and event.place != "slurm"):
        return 2
    return EVERY + 20 if program.keeps else event.updates


class Place(ABC):
    """Where runs are started, ended and resumed."""

    def __init__(self, python: str, modules: str) -> None:
        self.python, self.modules = python, modules

    def words(self, program: Program, event: Event) -> list[str]:
        """Return the options of a run, and its command."""
        words = [f"--instances={program.instances}", "--env", f"UPDATES={event.updates}", "--env", "OMP_NUM_THREADS=1"]
        if self.modules:
            words += ["--env", f"PYTHONPATH={self.modules}"]
        if program.module == "submitit":
            words += ["--env", "SUBMITIT_EXECUTOR=slurm"]
        first, *more = program.words
        torchrun = str(Path(self.python).with_name("torchrun"))
        command = [torchrun, *more] if first == "torchrun" else [self.python, first, *more]
        return [*words, "--name", "ending", "--", *command]

    def submission(self, cluster: str, program: Program, event: Event) -> list[str]:
        """Return the command that submits a run where no scheduler keeps its time limit."""
        return [
            "submit",
            "--cluster",
            cluster,
            "--again",
            "--time-limit",
            "2:30",
            "--json",
            *self.words(program, event),
        ]

    @abstractmethod
    def start(self, program: Program, event: Event) -> Case:
        """Start a run of the program that the event is to meet."""

    def end(self, case: Case) -> None:  # noqa: B027 - most places need do nothing
        """Have the event happen. Without a scheduler, the time limit comes by itself."""

    def is_over(self, case: Case) -> bool:
        return not case.processes()

    @abstractmethod
    def resume(self, case: Case) -> None:
        """Resume a run by hand."""


class OnSlurm(Place):
    def __init__(self, python: str, modules: str, folder: Path, slurm: PrivateSlurm) -> None:
        super().__init__(python, modules)
        self.slurm, self.folder = slurm, folder
        self.queued: set[str] = set()
        self._lock, self._logins = threading.Lock(), 0
        self._ended: set[str] = set()

    def start(self, program: Program, event: Event) -> Case:
        with self._lock:
            self._logins += 1
            number = self._logins
        folder = self.folder / f"user-{number}"
        folder.mkdir()
        here = Here(folder)
        _write_programs(here)
        settings = {"nodes": ONE_RANK_NODES, "time_limit_signal": {"margin_s": _MARGIN_S}}
        login = Login(here, self.slurm, **settings)
        login.cluster(_CANCELS, preemption="cancel", directives={"partition": _CANCELS}, **settings)
        login.programs = Path(self.python).parent
        hosts = () if program.instances == 1 else ("--hosts", "2")
        run = login.render(*hosts, *self.words(program, event), cluster=event.cluster)
        job = login.sbatch(run, *event.options)
        if event.options:
            job, run = f"{job}_1", Run(here, run.folder / "tasks/1")
        return Case(program, event, self, run, job, login, number)

    def look(self) -> None:
        """Note which jobs there are, and start those soon that Slurm holds back."""
        lines = self.slurm.run(["squeue", "--noheader", "--array", "--format=%i|%T|%r"]).text.splitlines()
        jobs = [line.split("|") for line in lines]
        self.queued = {job for job, *_ in jobs}
        for job, state, why in jobs:
            if state == "PENDING" and why == "BeginTime" and job not in self._ended:
                self._ended.add(job)
                faults.set_limit(self.slurm, job, "30")
                faults.start_soon(self.slurm, job)
            elif state == "RUNNING":
                self._ended.discard(job)

    def end(self, case: Case) -> None:
        slurm, name = self.slurm, case.event.name
        if name in (TIME_LIMIT, ELEMENT):
            faults.let_time_run_out(slurm, case.job)
            return
        listed = slurm.run(["squeue", "--noheader", f"--jobs={case.job}", "--format=%N"]).text.strip()
        nodes = slurm.run(["scontrol", "show", "hostnames", listed]).text.split()
        if name == "scancel":
            slurm.run(["scancel", case.job])
        elif name == "node loss":
            faults.kill_daemon(slurm, nodes[-1])
            slurm.run_as_root(["sh", "-c", KILL_NODE, "kill_node", nodes[-1]])
            faults.give_up(slurm, nodes[-1])
        else:
            urgent = [f"--partition={_urgent(case.number)}", "--exclusive", "--time=1", "--output=/dev/null"]
            slurm.run_as_root(["sbatch", f"--nodelist={','.join(nodes)}", *urgent, "--wrap=sleep 1"])

    def is_over(self, case: Case) -> bool:
        # Follow-up jobs have other numbers: job_id has the newest.
        return not {case.job, case.run.word("job_id"), case.run.word(".follow_up")} & self.queued

    def resume(self, case: Case) -> None:
        run = case.run
        options: tuple[str, ...] = ()
        if case.event.options:
            options, run = case.event.options, Run(run.here, run.folder.parents[1])
        case.job = case.login.sbatch(run, *options) + ("_1" if options else "")
        self.queued.add(case.job)


class OnThisMachine(Place):
    def __init__(self, python: str, modules: str, folder: Path) -> None:
        super().__init__(python, modules)
        self.here = Here(folder)
        self.here.environ["PATH"] = f"{Path(python).parent}:{self.here.environ['PATH']}"
        _write_programs(self.here)

    def start(self, program: Program, event: Event) -> Case:
        shown = self.here.run(*self.submission("local", program, event)).stdout
        return Case(program, event, self, self.here.at(json.loads(shown)["folder"]))

    def resume(self, case: Case) -> None:
        case.run.here.run("resume", case.run.id)


class OnHosts(Place):
    def __init__(self, python: str, modules: str, place: OfHosts) -> None:
        super().__init__(python, modules)
        self.place = place
        place.environ["PATH"] = f"{Path(python).parent}:{place.environ['PATH']}"
        place.cluster_file("here", hosts="gpu-[1-2]", python=python, env={"PATH": place.environ["PATH"]})
        for path in _PROGRAMS.glob("*.py"):
            place.write(path.name, path.read_text())

    def _call(self, *words: str) -> str:
        code, out, err = self.place.call(str(Path(sys.executable).parent / "trainjob"), *words)
        assert code == 0, out + err
        return out

    def start(self, program: Program, event: Event) -> Case:
        folder = json.loads(self._call(*self.submission("here", program, event)))["folder"]
        return Case(program, event, self, Run(None, Path(folder)))  # type: ignore[arg-type]  # it asks nobody

    def resume(self, case: Case) -> None:
        self._call("resume", case.run.id)


@dataclass
class Case:
    program: Program
    event: Event
    place: Place
    run: Run
    job: str = ""
    login: Login = None  # type: ignore[assignment]  # under Slurm
    number: int = 0  # likewise

    @property
    def counted(self) -> int:
        """How many updates rank 0 has made."""
        path = self.run.folder / "code/project/counted"
        return path.stat().st_size if path.exists() else 0

    def processes(self) -> list[int]:
        return self.run.processes()

    def attempts(self) -> list[events.Attempt]:
        return events.attempts(events.read(RunPaths(self.run.folder)))

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {_LIMIT_S:.0f} s for {what}")
            time.sleep(0.3)

    def _has_settled(self) -> bool:
        begun = self.attempts()
        has_ended = bool(begun) and begun[-1].ended_at is not None and begun[-1].state != "REQUEUED"
        return has_ended and self.place.is_over(self)

    def outcome(self) -> Outcome:
        """End it once it is at work, resume it where nothing else does, and return what came of it."""
        self.wait(lambda: self.counted >= _ENDED_AT or len(self.attempts()) > 1 or self._has_settled(), "work")
        before = self.counted
        self.place.end(self)
        self.wait(lambda: len(self.attempts()) > 1 or self._has_settled(), "the first attempt to end")
        self.wait(self._has_settled, "the run to end")
        by_itself, first = self.attempts(), self.attempts()[0]
        # On a slow machine a time limit may end a resumed attempt as well.
        while self.attempts()[-1].state != "COMPLETED" and len(self.attempts()) < len(by_itself) + _MOST_RESUMES:
            self._resume()
        ended = self.attempts()
        return Outcome(self, before, first, len(by_itself), len(ended), ended[-1].state or "", self.counted)

    def _resume(self) -> None:
        known = len(self.attempts())
        self.place.resume(self)
        self.wait(lambda: len(self.attempts()) > known, "the resumed attempt")
        self.wait(self._has_settled, "the resumed run to end")


@dataclass
class Outcome:
    case: Case
    before: int
    first: events.Attempt
    by_itself: int  # attempts
    attempts: int
    last_state: str
    counted: int

    @property
    def lost(self) -> int:
        if self.case.program.stops_early:
            return 0
        return self.counted - self.case.event.updates

    def faults(self) -> Iterator[str]:
        """Yield what is not as it should be."""
        program, event = self.case.program, self.case.event
        state = expected(program, event)
        if state == BY_ITS_END:
            state = self._by_its_end()
        if self.first.state not in state.split("|"):
            yield f"expected {state}"
        if not self.first.why:
            yield "no sentence"
        if self.last_state != "COMPLETED":
            yield f"ended as {self.last_state}"
        if self.by_itself != (2 if self.first.state in ("REQUEUED", "LOST") else 1):
            yield f"{self.by_itself} attempts"
        if self.lost < 0:
            yield f"COMPLETED with {-self.lost} updates left"
        if self.lost > most_lost(program, event) * (self.attempts - 1):
            yield f"{self.lost} updates lost"
        script = self.case.run.folder / "logs/scheduler.out"
        if script.exists() and "Slurm has started its job once more" in script.read_text(errors="replace"):
            yield "requeued twice"

    def _by_its_end(self) -> str:
        """Return the state that the events of the first attempt call for."""
        mine = [one for one in events.read(RunPaths(self.case.run.folder)) if one.attempt == 1]
        code = next(int(one.detail.split()[1]) for one in mine if one.what == "ended")
        was_ended = any((one.what, one.detail) == ("signal", "TERM") for one in mine)
        is_continued = self.case.event.place == "slurm" and self._left_checkpoint()
        return by_its_end(code, was_ended=was_ended, is_continued=is_continued)

    def _left_checkpoint(self) -> bool:
        """Return whether there is a checkpoint that Lightning has written in the first attempt."""
        began, ended = self.first.began_at, self.first.ended_at or 0.0
        written = (self.case.run.folder / "code/project").rglob("*.ckpt")
        return any(began <= path.stat().st_mtime <= ended for path in written)

    def row(self) -> str:
        program, event = self.case.program, self.case.event
        went_on = "by itself" if self.attempts == self.by_itself else "by resume"
        row = f"| {program.name} | {event.name} | {self.first.state} | {went_on} | {self.lost} | {self.first.why} |"
        wrong = "; ".join(self.faults())
        return row + (f" WRONG: {wrong} ({self.case.run.folder})" if wrong else "")


def _urgent(number: int) -> str:
    """Return a partition for one case: Slurm makes those of one partition wait for each other."""
    return f"urgent-{number % _URGENT}"


def _write_programs(here: Here) -> None:
    for path in _PROGRAMS.glob("*.py"):
        here.write(path.name, path.read_text())


@contextmanager
def _on_slurm(python: str, modules: str, folder: Path, at_once: int, lost: int) -> Iterator[OnSlurm]:
    site = description_of(parsed(cluster_file(nodes=ONE_RANK_NODES, preemption="requeue")), nodes_needed=2)
    cancels = dataclasses.replace(site.partitions[0], name=_CANCELS, preempt_mode="CANCEL")
    groups = (dataclasses.replace(site.groups[0], count=2 * at_once + lost),)
    urgent = [SlurmPartition(_urgent(number), priority_tier=10) for number in range(_URGENT)]
    partitions = (*site.partitions, cancels, *urgent)
    with private_slurm(dataclasses.replace(site, groups=groups, daemons=None, partitions=partitions)) as slurm:
        place, over = OnSlurm(python, modules, folder, slurm), threading.Event()

        def keep_looking() -> None:
            while not over.wait(2.0):
                place.look()

        looking = threading.Thread(target=keep_looking, daemon=True)
        looking.start()
        try:
            yield place
        finally:
            over.set()
            looking.join()


@contextmanager
def _on_hosts(python: str, modules: str, folder: Path) -> Iterator[OnHosts]:
    sshd = Path(shutil.which("sshd") or "/usr/sbin/sshd")
    with network_hosts(sshd, ("gpu-1", "gpu-2", "gpu-3")) as hosts:
        yield OnHosts(python, modules, OfHosts(hosts, folder, "here"))


def _outcome(place: Place, case_of: tuple[Program, Event]) -> str:
    program, event = case_of
    try:
        case = place.start(program, event)
    except (AssertionError, UserError) as error:
        return f"| {program.name} | {event.name} | WRONG: not started: {error}"
    try:
        return case.outcome().row()
    except (TimeoutError, AssertionError, UserError) as error:
        return f"| {program.name} | {event.name} | WRONG: {error} ({case.run.folder})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the programs")
    parser.add_argument("--modules", default="", help="a folder of modules beside it (submitit)")
    parser.add_argument("--program", action="append", help="those whose name begins so")
    parser.add_argument("--event", action="append", choices=[one.name for one in EVENTS])
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--keep", type=Path, help="a folder for the runs; absent: they are removed")
    asked = parser.parse_args()
    programs = [one for one in PROGRAMS if not asked.program or one.name.startswith(tuple(asked.program))]
    for module in sorted({one.module for one in programs}):
        environ = {**os.environ, "PYTHONPATH": asked.modules}
        if subprocess.run([asked.python, "-c", f"import {module}"], capture_output=True, env=environ).returncode:
            print(f"skipped, because {asked.python} has no {module}")
            programs = [one for one in programs if one.module != module]
    wanted = [event for event in EVENTS if not asked.event or event.name in asked.event]
    rows = []
    print("| program | event | first attempt | went on | updates lost | why |\n|---|---|---|---|---|---|", flush=True)
    with ExitStack() as stack:
        folder = asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="endings-")))
        for kind in ("slurm", "local", "hosts"):
            cases = [
                (program, event)
                for event in wanted
                if event.place == kind
                for program in programs
                if kind == "slurm" or program.module != "submitit"  # it is started by Slurm
            ]
            if not cases:
                continue
            own = folder / kind
            own.mkdir(parents=True)
            lost = sum(event.name == "node loss" for _, event in cases)
            place: AbstractContextManager[Place]
            if kind == "slurm":
                place = _on_slurm(asked.python, asked.modules, own, asked.at_once, lost)
            elif kind == "local":
                place = nullcontext(OnThisMachine(asked.python, asked.modules, own))
            else:
                place = _on_hosts(asked.python, asked.modules, own)
            with place as made, ThreadPoolExecutor(asked.at_once) as pool:
                for done in as_completed([pool.submit(_outcome, made, case) for case in cases]):
                    rows.append(done.result())
                    print(rows[-1], flush=True)
    wrong = sum("WRONG" in row for row in rows)
    print(f"\n{len(rows)} cases, {wrong} wrong")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
