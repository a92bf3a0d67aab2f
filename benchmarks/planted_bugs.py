"""Plants bugs into copies of the code, one in each, for the simulation to find: `python -m benchmarks.planted_bugs`.

Each is a mistake as people make them: a comparison turned round, a marker not removed, a lock not taken. They are in
planted_bugs.yaml, with the history that catches each.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

_ROOT = Path(__file__).resolve().parent.parent
_COPIED = ("trainjob", "templates", "standins", "simulation")


@dataclass(frozen=True)
class Bug:
    """A text in a file of trainjob/ that is there once, and what stands in its place.

    `seed` is a history about `about`, in which ranks run `program`, that it breaks, and that keeps every invariant
    without it; without one none is known. `found`: it takes back the mending of a fault that was found on a real Slurm,
    or by the simulation.
    `stopped_by`: it does no harm because of that.
    """

    bug: str
    file: str
    text: str
    instead: str
    about: str
    program: str = "task"
    seed: int | None = None
    found: bool = False
    stopped_by: str = ""


def bugs() -> list[Bug]:
    """Return all of them."""
    return [Bug(**each) for each in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())]


def main() -> int:
    """Return 1 if a bug is not caught by its history."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--search", type=int, default=0, help="histories to try for each bug without a seed")
    parser.add_argument("--first", type=int, default=1, help="the first of their seeds")
    parser.add_argument("--about", help="what they are about; default: what the bug names")
    parser.add_argument("--only", default="", help="bugs whose name contains this")
    asked = parser.parse_args()
    chosen = [bug for bug in bugs() if asked.only in bug.bug and not bug.stopped_by]
    for bug in chosen:
        if (_ROOT / "trainjob" / bug.file).read_text().count(bug.text) != 1:
            sys.exit(f"{bug.bug}: {bug.file} should have this once: {bug.text}")

    def seeds(bug: Bug) -> list[str] | None:
        if bug.seed is not None and not asked.search:
            return ["--seed", str(bug.seed), "--about", bug.about, "--program", bug.program]
        many = ["--seeds", str(asked.search), "--first", str(asked.first), "--until-found", "--processes", "1"]
        return [*many, "--about", asked.about or bug.about, "--program", bug.program] if asked.search else None

    caught, lost = 0, 0
    with ThreadPoolExecutor(max_workers=2) as pool:
        found = pool.map(lambda bug: (words := seeds(bug)) and broken(bug, words), chosen)
        for bug, line in zip(chosen, found, strict=True):
            caught += bool(line)
            lost += bug.seed is not None and not line
            print(f"{'caught' if line else 'MISSED'}  {bug.bug}: {line or ''}", flush=True)
    print(f"{caught} of {len(chosen)} planted bugs caught")
    return int(lost > 0)


def broken(bug: Bug, words: list[str]) -> str | None:
    """Return the seed of the first history that the bug breaks, and the invariant; None where it breaks none."""
    with tempfile.TemporaryDirectory() as folder:
        for name in _COPIED:
            shutil.copytree(_ROOT / name, Path(folder, name))
        file = Path(folder, "trainjob", bug.file)
        file.write_text(file.read_text().replace(bug.text, bug.instead))
        command = [sys.executable, "-m", "simulation", *words]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    line = re.search(r"^seed \d+: (?!every invariant holds).*$", ended.stdout, re.MULTILINE)
    if line is None and "every invariant holds" not in ended.stdout:
        raise RuntimeError(f"{bug.bug}: {ended.stdout} {ended.stderr}")
    return line and line[0][:150]


if __name__ == "__main__":
    sys.exit(main())
