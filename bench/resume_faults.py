"""Does `verify --resume` find and name faults of resuming, and leave right scripts alone? Scripts of five frameworks.

    python -m bench.resume_faults                       # plain torch
    python -m bench.resume_faults --python ENV/bin/python --framework accelerate --framework lightning
    python -m bench.resume_faults --only optimizer

Each case is one `trainjob verify --resume`. A framework that the interpreter lacks is skipped, and said so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
_INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Script:
    """A script, the module that it needs, its faults, and the ways in which it can be right."""

    file: str
    module: str
    faults: tuple[str, ...]
    right: tuple[str, ...]
    instances: int = 1


_FRAMEWORKS = {
    "plain": Script(
        "plain.py",
        "torch",
        tuple(fault for fault in _FAULTS if fault != "rank-0-only"),
        ("", "periodic", "rotating", "numbered", "exit-0", "workers"),
    ),
    # On CPUs accelerate, Trainer and Lightning scale no gradients, and their models are not sharded.
    "accelerate": Script(
        "accelerated.py",
        "accelerate",
        tuple(fault for fault in _FAULTS if fault not in ("scaler", "rank-0-only")),
        ("",),
    ),
    "trainer": Script(
        "trainer.py",
        "transformers",
        ("position", "rng", "scheduler", "step-counter", "ema", "optimizer", "torn", "between-epochs"),
        ("",),
    ),
    "lightning": Script(
        "lit.py",
        "lightning",
        ("sampler-epoch", "position", "rng", "scheduler", "ema", "optimizer", "torn", "between-epochs"),
        ("",),
    ),
    "titan": Script(
        "titan.py",
        "torch.distributed.fsdp",
        ("position", "scheduler", "step-counter", "optimizer", "rank-0-only"),
        ("",),
        instances=2,
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


@dataclass(frozen=True)
class Outcome:
    case: Case
    passed: bool
    found: tuple[str, ...]
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", action="append", choices=sorted(_FRAMEWORKS))
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the scripts")
    parser.add_argument("--only", action="append", help="a fault, or a right way")
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
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.side_by_side) as pool:
        outcomes = []
        for outcome in pool.map(lambda case: _outcome(case, options.python, Path(folder)), wanted):
            outcomes.append(outcome)
            word = "ok" if outcome.passed else "WRONG"
            print(f"{outcome.case.name:<36} {word:<6} {outcome.seconds:5.1f} s  {', '.join(outcome.found)}", flush=True)
    faults, right = ([one for one in outcomes if bool(one.case.fault) == planted] for planted in (True, False))
    print(f"\nfaults found and named: {sum(one.passed for one in faults)} of {len(faults)}")
    print(f"right scripts left alone: {sum(one.passed for one in right)} of {len(right)}")
    print(f"longest: {max((one.seconds for one in outcomes), default=0):.0f} s")
    if options.output:
        rows = [
            {"case": one.case.name, "passed": one.passed, "found": one.found, "seconds": one.seconds}
            for one in outcomes
        ]
        options.output.write_text(json.dumps(rows, indent=1))


def _outcome(case: Case, python: str, folder: Path) -> Outcome:
    script = _FRAMEWORKS[case.framework]
    project = folder / case.name.replace(" ", "-").replace(":", "")
    project.mkdir()
    shutil.copy(_SCRIPTS / script.file, project)
    wish = ["--fault", case.fault] if case.fault else ["--right", case.right] if case.right else []
    ranks = ["--instances", str(script.instances)]
    words = [_TRAINJOB, "verify", "--resume", "--json", *ranks, "--", python, script.file, *wish]
    environ = {**os.environ, "XDG_DATA_HOME": str(project / "data")}
    began = time.monotonic()
    ended = subprocess.run(words, cwd=project, env=environ, capture_output=True, text=True)
    seconds = time.monotonic() - began
    try:
        verdict = json.loads(ended.stdout)
        found = tuple(one["code"] for one in verdict["findings"])
    except (ValueError, KeyError):
        print(f"{case.name}: {ended.stdout}{ended.stderr}")
        return Outcome(case, False, ("no verdict",), seconds)
    passed = bool(set(found) & set(_FAULTS[case.fault])) if case.fault else not found
    return Outcome(case, passed, found, seconds)


if __name__ == "__main__":
    main()
