"""The seconds that a run in a reservation takes to start, against bare srun in the same job.

    python -m benchmarks.reserve [CYCLES [KILLS]]

A private Slurm of two nodes. In one reservation, CYCLES times (30), a script is edited and run, by `trainjob submit`,
by bare srun, and by srun within srun, the least that a run of ours takes; they take turns. A start counts from the
command until the last of two ranks has written a line: the first thing that its script does, and after the script has
imported torch. Of ours, the part from the srun of the step on is shown, and the client's CPU time. Then KILLS clients
(20) that hold a reservation, with a run in it, are killed by KILL, and all that is left a minute later is counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shlex
import statistics
import sys
import tempfile
import time
from pathlib import Path

from trainjob.rehearse.slurm.description import Description, SlurmPartition
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

TRAINJOB = str(Path(sys.executable).with_name("trainjob"))
_PROGRAMS = {"an empty program": "", "a program that imports torch": "import torch\n"}
_SCRIPT = (
    "import pathlib, time, os\npathlib.Path({marks!r}, os.environ['SLURM_PROCID']).write_text(repr(time.time()))\n"
)
# A step has other words of Slurm's than a login shell, and srun would obey them.
_CLEAN = ["sh", "-c", 'exec env -i PATH="$PATH" SLURM_CONF="$SLURM_CONF" "$@"', "sh"]
_LIMIT_S, _POLL_S = 60.0, 0.02
_RESERVE = [TRAINJOB, "reserve", "here", "--instances", "2", "--hosts", "2", "--for", "1h"]


def _cpu_s() -> float:
    """Return the CPU time of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Client:
    """Somebody who types commands beside a private Slurm."""

    def __init__(self, slurm: PrivateSlurm, folder: Path) -> None:
        self.slurm, self.folder, self.marks = slurm, folder, folder / "marks"
        self.marks.mkdir()
        self.cpu_s = 0.0  # of the last command
        cluster = {
            "kind": "slurm",
            "nodes": {"count": 2, "cpus": 8, "memory_gb": 16},
            "directives": {"partition": "gpu"},
            "python": sys.executable,
            "network": {"interface": "lo"},
            "runs_dir": str(folder / "runs"),
        }
        (folder / "clusters").mkdir()
        (folder / "clusters/here.yaml").write_text(json.dumps(cluster))
        self.environment = {
            "PATH": os.environ["PATH"],
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }

    def call(self, *words: str, check: bool = True) -> str:
        """Return what a command prints."""
        return self.slurm.run(
            words, folder=self.folder, environment=self.environment, timeout_s=_LIMIT_S, check=check
        ).text

    def edit(self, number: int, program: str = "") -> None:
        """Change the script, which begins with `program`, and forget that it has ever run."""
        for mark in self.marks.iterdir():
            mark.unlink()
        (self.folder / "go.py").write_text(f"# edit {number}\n{program}{_SCRIPT.format(marks=str(self.marks))}")

    def begun_at(self) -> float:
        """Return when the last of two ranks began, in seconds since 1970."""
        deadline = time.monotonic() + _LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                found = [float(mark.read_text()) for mark in self.marks.iterdir()]
                if len(found) == 2:
                    return max(found)
            time.sleep(_POLL_S)
        sys.exit("two ranks have not begun within a minute")

    def start_s(self, number: int, program: str, *words: str) -> float:
        """Return the seconds that a command takes to start two ranks, and wait until it has ended."""
        self.edit(number, program)
        before, began_at = _cpu_s(), time.time()
        self.call(*words)
        self.cpu_s = _cpu_s() - before
        return self.begun_at() - began_at

    def jobs(self) -> list[str]:
        """Return the jobs that wait or run."""
        return self.call("squeue", "--noheader", "--format=%A").split()

    def steps(self) -> list[str]:
        """Return the steps that run, without those of job scripts."""
        listed = self.call("squeue", "--steps", "--noheader", "--format=%i").split()
        return [step for step in listed if step.rpartition(".")[2].isdigit()]

    def wait_for_steps(self) -> None:
        """Stay until no step runs."""
        while self.steps():
            time.sleep(_POLL_S)


def cycles(client: Client, count: int) -> None:
    """Print the seconds of starts in one reservation."""
    reserved = json.loads(client.call(*_RESERVE, "--json"))
    submit = (TRAINJOB, "submit", "--cluster", "here", "--in", "last", "--instances", "2", "--hosts", "2", "--again")
    srun = ("srun", f"--jobid={reserved['scheduler']['job_id']}", "--overlap", "--nodes=2", "--ntasks=2", "--mem=0")
    outer = (*srun[:3], "--nodes=1", "--ntasks=1", "--mem=0")
    for name, program in _PROGRAMS.items():
        ours, steps, bare, within = list[float](), list[float](), list[float](), list[float]()
        cpu_s = list[float]()
        for number in range(count):
            ours.append(client.start_s(number, program, *submit, "--", sys.executable, "go.py"))
            cpu_s.append(client.cpu_s)
            newest = max(client.folder.glob("runs/*/.srun"), key=lambda path: path.stat().st_mtime)
            steps.append(client.begun_at() - newest.stat().st_mtime)
            client.wait_for_steps()
            bare.append(client.start_s(number, program, *srun, sys.executable, "go.py"))
            client.wait_for_steps()
            within.append(client.start_s(number, program, *outer, *_CLEAN, *srun, sys.executable, "go.py"))
            client.wait_for_steps()
        print(f"{name}, {count} starts each, load {os.getloadavg()[0]:.0f}")
        for label, each in (
            ("submit --in last", ours),
            ("its step alone", steps),
            ("srun within srun", within),
            ("bare srun", bare),
        ):
            ratio = statistics.median(each) / statistics.median(bare)
            spread = f"({min(each):.2f} to {max(each):.2f})"
            print(f"  {label:<18}{statistics.median(each):.2f} s {spread}, {ratio:.2f} x bare srun", flush=True)
        print(f"  the client takes {statistics.median(cpu_s):.2f} s of CPU time", flush=True)
    client.call(TRAINJOB, "cancel", reserved["id"])


def kills(client: Client, count: int) -> None:
    """Print what killed clients have left."""
    left_jobs = left_steps = 0
    for number in range(count):
        client.edit(number)
        run = [TRAINJOB, "submit", "--cluster", "here", "--in", "last", "--instances", "2", "--hosts", "2", "--again"]
        stays = [sys.executable, "-c", "import time; time.sleep(600)"]
        held = f"{shlex.join([*_RESERVE, '--hold'])} & client=$!"
        begun = 'until [ -n "$(squeue --noheader --states=running)" ]; do sleep 0.05; done'
        client.call("bash", "-c", f"{held}; {begun}; {shlex.join([*run, '--', *stays])}; kill -KILL $client; wait")
        deadline = time.monotonic() + _LIMIT_S
        while time.monotonic() < deadline and (client.jobs() or client.steps()):
            time.sleep(_POLL_S)
        left_jobs, left_steps = left_jobs + len(client.jobs()), left_steps + len(client.steps())
    print(f"{count} clients killed: {left_jobs} allocations and {left_steps} steps are left", flush=True)


def main(count: int, killed: int) -> None:
    description = Description(nodes=2, cpus=8, memory_mb=16 * 1024, partitions=(SlurmPartition("gpu"),))
    with tempfile.TemporaryDirectory() as name, private_slurm(description) as slurm:
        client = Client(slurm, Path(name))
        if count:
            cycles(client, count)
        if killed:
            kills(client, killed)


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[1:]]
    main(*(asked + [30, 20][len(asked) :]))
