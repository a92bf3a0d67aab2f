"""How long a run starts whose Python environment lies on a slow shared file system, beside one that brings it near.

    python benchmarks/environments.py [--rounds 3] [--call-ms 5] [--instances 2]

The virtualenv and the run directories lie on the shared file system, whose calls that open a file or look at one take
--call-ms (benchmarks/slow_files.c, preloaded). Sides take turns: ranks that import from there; `environment.archive` on
a node that has no copy yet; and again on the node that has it. A start lasts from the first line of the job script to
the end of the first update, as `report` says it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TRAINJOB = Path(sys.executable).with_name("trainjob")
PLAIN, COLD, AGAIN = "imported from the shared storage", "archive, no copy on the node yet", "archive, copy on the node"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--call-ms", type=float, default=5.0)
    parser.add_argument("--instances", type=int, default=2)
    options = parser.parse_args()
    found: dict[str, list[float]] = {PLAIN: [], COLD: [], AGAIN: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv = virtualenv(folder / "shared" / "venv")
        archive, disk = folder / "shared" / "env.tar", folder / "disk"
        subprocess.run(["tar", "-cf", str(archive), "-C", str(venv), "."], check=True)
        shim = folder / "slow_files.so"
        compiler = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(shim), str(HERE / "slow_files.c"), "-ldl"]
        subprocess.run(compiler, check=True)
        slow = {"LD_PRELOAD": shim, "SLOW_FILES": folder / "shared", "SLOW_FILES_US": round(1000 * options.call_ms)}
        common = ["--instances", str(options.instances), "--updates", "2"]
        common += [word for pair in slow.items() for word in ("--env", "{}={}".format(*pair))]
        near = ["--environment", f"archive={archive}", "--environment", f"folder={disk}"]
        python = shutil.which("python3", path=os.defpath) or sys.executable
        for number in range(options.rounds):
            shutil.rmtree(disk, ignore_errors=True)
            disk.mkdir()
            for side, interpreter, flags in (
                (PLAIN, venv / "bin/python", []),
                (COLD, python, near),
                (AGAIN, python, near),
            ):
                whole_s, parts = started(folder, str(interpreter), [*common, *flags])
                found[side].append(whole_s)
                shown = ", ".join(f"{part} {seconds:.1f}" for part, seconds in parts.items() if seconds >= 0.05)
                print(f"round {number + 1}: {side}: {whole_s:.1f} s ({shown})", flush=True)
    for side in (COLD, AGAIN):
        shares = [1 - one / other for one, other in zip(found[side], found[PLAIN], strict=True)]
        print(
            f"{side}: {100 * statistics.median(shares):.0f} % shorter "
            f"({100 * min(shares):.0f} to {100 * max(shares):.0f})"
        )


def started(folder: Path, python: str, flags: list[str]) -> tuple[float, dict[str, float]]:
    """Return the seconds of a start without its queue, and its parts."""
    project = folder / "project"
    (project / "clusters").mkdir(parents=True, exist_ok=True)
    (project / "clusters/here.yaml").write_text(json.dumps({"kind": "local", "python": python}))
    environ = {**os.environ, "XDG_DATA_HOME": str(folder / "shared" / "data")}

    def asked(*words: str) -> Any:
        ended = subprocess.run([TRAINJOB, *words, "--json"], cwd=project, env=environ, capture_output=True, text=True)
        if ended.returncode:
            sys.exit(f"trainjob {' '.join(words)}: {ended.stdout}{ended.stderr}")
        return json.loads(ended.stdout)

    run = asked("submit", "--cluster", "here", "--again", "--follow", *flags)
    (one,) = asked("report", run["folder"])["startups"]
    parts = dict(one["parts"])
    return one["whole_s"] - parts.pop("queue", 0.0), parts


def virtualenv(folder: Path) -> Path:
    """Return a virtualenv with torch, numpy and tqdm, and what these need, as it is here."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    target = next(folder.glob("lib/python*/site-packages"))
    waiting, seen = ["torch", "numpy", "tqdm"], set()
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another system, or an extra
            continue
        waiting += [re.split(r"[^\w.-]", one)[0] for one in distribution.requires or () if "extra ==" not in one]
        for file in distribution.files or ():
            place = target / file
            if ".." not in file.parts and Path(str(file.locate())).is_file():
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(file.locate()), place)
    subprocess.run([str(folder / "bin/python"), "-c", "import torch, numpy, tqdm"], check=True)
    return folder


if __name__ == "__main__":
    main()
