"""Prints how much CPU time the command line takes to start, beside a bare typer program and beside torchx.

`python benchmarks/startup.py`. torchx is looked for on PATH, and TORCHX names another. Its dry run of the same job is
what `plan` and `render` are measured by.

Medians over interleaved runs, so that whatever else the machine does falls on all alike; only the ratios, taken
within one run, mean something elsewhere.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPEATS = 15
TORCHX = "torchx run --dryrun"
SAME_JOB = ["--cluster", "local", "--instances", "2", "--", "python", "train.py"]
RUNS = 1000
BARE = """\
import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def first(name: str, number: int = 1) -> None:
    "Do the one thing."


@app.command()
def second(name: str) -> None:
    "Do the other thing."


app()
"""


def main() -> None:
    """Measure, and print one line a figure."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bare = folder / "bare.py"
        bare.write_text(BARE)
        (folder / "train.py").touch()
        make_runs(folder / "data" / "trainjob", RUNS)
        medians = measure(commands(bare), environment(folder), folder)
    torchx = medians.get(TORCHX)
    base = medians["bare typer program --help"]
    print(f"{'':<42} {'median':>10}  {'÷ bare':>7}  {'÷ torchx':>8}")
    for name, seconds in medians.items():
        beside = "" if torchx is None else f"  {seconds / torchx:6.2f} ×"
        print(f"{name:<42} {1000 * seconds:7.1f} ms  {seconds / base:6.2f} ×{beside}")


def commands(bare: Path) -> dict[str, list[str]]:
    ours = [sys.executable, str(Path(sys.executable).parent / "trainjob")]
    return {
        "bare typer program --help": [sys.executable, str(bare), "--help"],
        "the same, running one command": [sys.executable, str(bare), "first", "NAME"],
        "trainjob --help (0.6 × torchx)": [*ours, "--help"],
        "trainjob render": [*ours, "render", "--cluster", "local"],
        "trainjob render of a command (0.75 × torchx)": [*ours, "render", *SAME_JOB],
        "trainjob plan of a command (0.75 × torchx)": [*ours, "plan", *SAME_JOB],
        **torchx_command(),
        f"trainjob list, {RUNS:,} runs (target 0.5 s)": [*ours, "list"],
    }


def torchx_command() -> dict[str, list[str]]:
    """Return torchx's dry run of the same job: two processes on this machine run train.py."""
    program = os.environ.get("TORCHX") or shutil.which("torchx")
    if program is None:
        return {}
    words = ["run", "--dryrun", "--scheduler", "local_cwd", "dist.ddp", "-j", "1x2", "--script", "train.py"]
    return {TORCHX: [program, *words]}


def environment(folder: Path) -> dict[str, str]:
    """Return the user's environment with folders of our own, and compiled modules kept as in any installation."""
    left_out = ("PYTHONDONTWRITEBYTECODE", *(name for name in os.environ if name.startswith("TRAINJOB_")))
    own = {"XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
    return {**{name: value for name, value in os.environ.items() if name not in left_out}, **own}


def measure(asked: dict[str, list[str]], environ: dict[str, str], folder: Path) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in asked}
    for repeat in range(REPEATS + 1):
        for name, command in asked.items():
            seconds = cpu_seconds(command, environ, folder)
            # The first round fills the caches of files and of compiled modules.
            if repeat:
                taken[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def cpu_seconds(command: list[str], environ: dict[str, str], folder: Path) -> float:
    """Return the CPU time of a command: on a busy machine it says more than the time on the clock."""
    process = subprocess.Popen(command, env=environ, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise subprocess.CalledProcessError(status, command)
    return usage.ru_utime + usage.ru_stime


def make_runs(home: Path, count: int) -> None:
    """Write `count` runs that look as if each still ran: the dearest case, because the back end is asked, too."""
    (home / "index").mkdir(parents=True)
    for number in range(count):
        folder = home / "runs" / f"{number:04d}-job"
        folder.mkdir(parents=True)
        (home / "index" / folder.name).symlink_to(folder)
        for name, content in files_of_a_run(number).items():
            (folder / name).write_text(content)


def files_of_a_run(number: int) -> dict[str, str]:
    submission = {
        "backend": "local",
        "cluster": "local",
        "native": {"pid": os.getpid(), "started": 0, "host": "elsewhere"},
        "argv": ["bash", "job.sh"],
        "script": "job.sh",
        "submitted_at": f"2026-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}+00:00",
        "attempt": 1,
        "digest": "",
        "project": {},
    }
    progress = {"epoch": 1, "update": number, "total_updates": 1000, "heartbeat": 0.0, "attempt": 1}
    return {
        "job.json": json.dumps({"contract": 1, "name": f"job {number}", "asked": {"padding": "x" * 4000}}),
        "submission.json": json.dumps(submission),
        "progress.json": json.dumps(progress),
        "state": "RUNNING\n",
        "attempt": "1\n",
    }


if __name__ == "__main__":
    main()
