"""The cost of one node's launcher, beside a Python that does nothing.

    python benchmarks/launching.py [--rounds 20] [--beside CHECKOUT]

The launcher is that of the second of two nodes. It checks its node, records its software and starts one rank, `true`.
CPU time is the least of all rounds, in which all sides take turns; operations are those below the run directory,
counted by strace. --beside: another checkout of this project.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.render_cases import golden_requests, rendered
from trainjob.contract import package, ports
from trainjob.launch.rank_environment import free_port

_WORKING_FOLDER = re.compile(r'AT_FDCWD<[^>]*>, (?="/)')
HERE = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--beside", type=Path)
    options = parser.parse_args()
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as name:
        checkouts = {"launcher": HERE, **({"launcher there": options.beside} if options.beside else {})}
        folders = {side: run_directory(Path(name) / side, checkout) for side, checkout in checkouts.items()}
        for folder in folders.values():
            launched(folder, environ)  # writes the bytecode
        best: dict[str, float] = {}
        for _ in range(options.rounds):
            taken = {"python -I -S": cpu_s([sys.executable, "-I", "-S", "-c", "pass"], environ)}
            taken["python"] = cpu_s([sys.executable, "-c", "pass"], environ)
            taken |= {side: launched(folder, environ) for side, folder in folders.items()}
            best = {side: min(seconds, best.get(side, seconds)) for side, seconds in taken.items()}
        print(f"{'':<18}{'CPU':>9}{'ratio':>8}{'operations':>13}")
        for side, seconds in best.items():
            counted = operations(folders[side], environ) if side in folders and shutil.which("strace") else ""
            print(f"{side:<18}{seconds * 1e3:>6.1f} ms{seconds / best['python -I -S']:>8.1f}{counted:>13}")


def run_directory(folder: Path, checkout: Path) -> Path:
    for part in package.RUNTIME_PACKAGES:
        source = checkout / "trainjob" / part
        shutil.copytree(source, folder / "code" / "trainjob" / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(checkout / "trainjob" / "__init__.py", folder / "code" / "trainjob")
    (folder / "job.json").write_bytes(rendered(golden_requests()["slurm-digits"]).files["job.json"].content)
    (folder / "attempt").write_text("1\n")
    return folder


def launched(folder: Path, environ: dict[str, str], tracer: tuple[str, ...] = ()) -> float:
    """Return the CPU seconds of the second node's launcher."""
    shared = {
        **environ,
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_CPUS_PER_TASK": "1",
        "MASTER_ADDR": ports.LOOPBACK,
        "MASTER_PORT": str(free_port(os.getpid())),
        "TRAINJOB_ATTEMPT": "1",
        "TRAINJOB_TOKEN": "this start",
        "TRAINJOB_DEVICE": "cpu",
    }
    options = ["--launcher", "slurm", "--accelerator", "gpu", "--node-check", "on"]
    words = [sys.executable, "-m", "trainjob.launch", *options, str(folder), "--", "true"]
    of_node = [{**shared, "SLURM_PROCID": n, "SLURM_NODEID": n, "SLURMD_NODENAME": f"node{n}"} for n in "01"]
    first = subprocess.Popen(words, cwd=folder / "code", env=of_node[0])
    seconds = cpu_s([*tracer, *words], of_node[1], folder / "code")
    if first.wait() != 0:
        sys.exit("the first node's launcher failed")
    return seconds


def cpu_s(words: list[str], environ: dict[str, str], folder: Path | None = None) -> float:
    process = subprocess.Popen(words, cwd=folder, env=environ)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status != 0:
        sys.exit(f"{words} exited with {process.returncode}")
    return used.ru_utime + used.ru_stime


def operations(folder: Path, environ: dict[str, str]) -> int:
    trace = folder.with_suffix(".trace")
    calls = "trace=%file,read,pread64,write,pwrite64,getdents64,ftruncate,fsync,fdatasync,flock"
    options = ["-f", "-qq", "-y", "-e", calls, "-e", "signal=none", "-s", "0", "-o", str(trace)]
    launched(folder, environ, ("strace", *options))
    lines = trace.read_text(errors="replace").splitlines()
    # A call that was interrupted has two lines; with an empty path, a call asks about a file that is open.
    calls_made = (line for line in lines if " resumed>" not in line and '>, "", ' not in line)
    # strace shows the working folder even where the path is absolute.
    return sum(str(folder) in _WORKING_FOLDER.sub("", line) for line in calls_made)


if __name__ == "__main__":
    main()
