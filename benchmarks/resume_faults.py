"""Does `verify --resume` find and name faults of resuming, and leave right scripts alone? Scripts of five frameworks.

    python -m benchmarks.resume_faults                       # plain torch
    python -m benchmarks.resume_faults --python ENV/bin/python --framework accelerate --framework lightning
    python -m benchmarks.resume_faults --only optimizer
    python -m benchmarks.resume_faults --unseeded            # the same scripts, which never do the same twice

Each case is one `trainjob verify --resume`. A framework that the interpreter lacks is skipped, and said so. Beside the
time of a case stand the CPU seconds of all its processes, and the machine's load when it ended: a machine that does
other work as well takes longer.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

_SCRIPTS = Path(__file__).parent / "resume_scripts"
_TRAINJOB = str(Path(sys.executable).parent / "trainjob")
# Faults, and the codes of which the verdict must name one.
_FAULTS = {
    "sampler-epoch": ("sampler-epoch",),
    "position": ("sampler-position",),
    "rng": ("rng",),
    "scheduler": ("scheduler",),
    "scaler": ("scaler",),
    "step-counter": ("step-counter",),
    "ema": ("ema",),
    "optimizer": ("optimizer",),
    "torn": ("torn-checkpoint",),
    "rank-0-only": ("rank-0-only",),
    "between-epochs": ("between-epochs",),
    "workers": ("workers-killed",),
}


@dataclass(frozen=True)
class Script:
    """A script, the module that it needs, and the ways in which it can be right."""

    file: str
    module: str
    right: tuple[str, ...] = ("",)
    instances: int = 1
    faults: tuple[str, ...] = tuple(_FAULTS)


_FRAMEWORKS = {
    "plain": Script("plain.py", "torch", ("", "periodic", "rotating", "numbered", "exit-0", "workers")),
    "accelerate": Script("accelerated.py", "accelerate"),
    "trainer": Script("trainer.py", "transformers"),
    "lightning": Script("lit.py", "lightning"),
    "titan": Script("titan.py", "torch.distributed.fsdp", instances=2),
    "gpt": Script("gpt.py", "torch", ("", "noise"), faults=("optimizer", "rng", "scaler", "step-counter", "torn")),
    "epochs": Script(
        "epochs.py", "torch", ("", "workers"), faults=("optimizer", "rng", "scheduler", "step-counter", "torn")
    ),
}


@dataclass(frozen=True)
class Case:
    framework: str
    fault: str
    right: str

    @property
    def name(self) -> str:
        return f"{self.framework} {self.fault or ('right: ' + (self.right or 'as it is'))}"

    @property
    def instances(self) -> int:
        # What rank 0 alone saves is a part only where there are other ranks.
        return 2 if self.fault == "rank-0-only" else _FRAMEWORKS[self.framework].instances


@dataclass(frozen=True)
class Outcome:
    case: str
    is_planted: bool
    passed: bool
    found: tuple[str, ...]
    seconds: float
    cpu_s: float
    load: float  # of the machine, the average of the last minute

    def __str__(self) -> str:
        times = f"{self.seconds:5.1f} s  {self.cpu_s:5.1f} s of CPUs  load {self.load:4.1f}"
        return f"{self.case:<36} {'ok' if self.passed else 'WRONG':<6} {times}  {', '.join(self.found)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", action="append", choices=sorted(_FRAMEWORKS))
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the scripts")
    parser.add_argument("--only", action="append", help="a fault, or a right way")
    parser.add_argument("--unseeded", action="store_true", help="plant the faults in scripts that have no seed")
    parser.add_argument("--side-by-side", type=int, default=2)
    parser.add_argument("--output", type=Path, help="write the outcomes as JSON")
    options = parser.parse_args()
    cases = []
    for name in options.framework or ["plain"]:
        script = _FRAMEWORKS[name]
        if subprocess.run([options.python, "-c", f"import {script.module}"], capture_output=True).returncode:
            print(f"{name}: skipped, because {options.python} has no {script.module}")
            continue
        cases += [Case(name, fault, "") for fault in script.faults]
        cases += [Case(name, "", right) for right in script.right]
    wanted = [case for case in cases if not options.only or (case.fault or case.right) in options.only]
    workers = ProcessPoolExecutor(options.side_by_side, initializer=_adopt_orphans)
    with tempfile.TemporaryDirectory() as folder, workers as pool:
        outcomes = []
        for outcome in pool.map(
            partial(_outcome, python=options.python, folder=Path(folder), unseeded=options.unseeded), wanted
        ):
            outcomes.append(outcome)
            print(outcome, flush=True)
    faults, right = ([one for one in outcomes if one.is_planted == planted] for planted in (True, False))
    print(f"\nfaults found and named: {sum(one.passed for one in faults)} of {len(faults)}")
    print(f"right scripts left alone: {sum(one.passed for one in right)} of {len(right)}")
    print(f"longest: {max((one.seconds for one in outcomes), default=0):.0f} s")
    if options.output:
        options.output.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))


def _adopt_orphans() -> None:
    """Have the runs of a case, whose scripts leave their parent, become children of this process and so count here."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def _cpu_s_of_children() -> float:
    limit = time.monotonic() + 5
    with suppress(ChildProcessError):
        while time.monotonic() < limit:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _outcome(case: Case, *, python: str, folder: Path, unseeded: bool) -> Outcome:
    script = _FRAMEWORKS[case.framework]
    project = folder / case.name.replace(" ", "-").replace(":", "")
    project.mkdir()
    shutil.copy(_SCRIPTS / script.file, project)
    wish = ["--fault", case.fault] if case.fault else ["--right", case.right] if case.right else []
    if unseeded:
        wish.append("--unseeded")
    ranks = ["--instances", str(case.instances)]
    words = [_TRAINJOB, "verify", "--resume", "--json", *ranks, "--", python, script.file, *wish]
    environ = {**os.environ, "XDG_DATA_HOME": str(project / "data")}
    cpu_s, began = _cpu_s_of_children(), time.monotonic()
    ended = subprocess.run(words, cwd=project, env=environ, capture_output=True, text=True)
    seconds = time.monotonic() - began
    measured = seconds, _cpu_s_of_children() - cpu_s, os.getloadavg()[0]
    try:
        verdict = json.loads(ended.stdout)
        found = tuple(one["code"] for one in verdict["findings"])
    except (ValueError, KeyError):
        print(f"{case.name}: {ended.stdout}{ended.stderr}", flush=True)
        return Outcome(case.name, bool(case.fault), False, ("no verdict",), *measured)
    passed = bool(set(found) & set(_FAULTS[case.fault])) if case.fault else not found
    return Outcome(case.name, bool(case.fault), passed, found, *measured)


if __name__ == "__main__":
    main()
