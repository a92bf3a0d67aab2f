"""Measures trainjob on a real GPU beside its stand-ins, within a time: one table for docs/results.md, and the evidence.

Each part has its own folder and limit; one that fails is a row that says so, and ends no other.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
# Eight of the scripts that the stand-ins are tested with, the quick ones first.
PROGRAMS = (
    "what scripts call of torch on one GPU",
    "ImageNet with DataParallel",
    "nanoGPT in float16",
    "the DDP tutorial",
    "the FSDP2 tutorial",
    "ZeRO, checkpoints, hooks and collectives",
    "ImageNet with torchrun",
    "the FSDP1 tutorial",
)
# Seconds of all parts together: the limit is eight minutes, and each part leaves the next ones their share.
_WHOLE_S = 460.0
_ACCEPT_S, _TESTS_S, _PROGRAM_S = 120.0, 200.0, 60.0
_TIMED_OUT, _NO_TESTS = 124, 5
_LOSS_WITHIN = 0.05  # of the larger one: other kernels sum in another order, and some programs draw on the device
_JOB = ("--task", "tiny-gpt", "--instances", "1", "--updates", "200")


@dataclass(frozen=True)
class GpuRow:
    """A line of the table: what was measured, on the GPU, on stand-ins or as planned, and whether they agree."""

    what: str
    gpu: str
    beside: str = ""
    verdict: str = "ok"


class GpuRun:
    """One run: its folder, its limit, and whether stand-ins take the place of the GPU, to rehearse it."""

    def __init__(self, folder: Path, on_stand_ins: bool) -> None:
        self.folder, self.on_stand_ins = folder, on_stand_ins
        self.ends_at = time.monotonic() + _WHOLE_S
        folder.mkdir(parents=True, exist_ok=True)
        self.stand_ins = self._environment_of_stand_ins()
        self.gpu = {**os.environ, **(self.stand_ins if on_stand_ins else {}), "XDG_DATA_HOME": str(folder / "data")}

    def _environment_of_stand_ins(self) -> dict[str, str]:
        from tests.support.gpu_scripts import environment

        place = self.folder / "stand-ins"
        place.mkdir(exist_ok=True)
        return environment(place)

    def run(self, words: list[str], limit_s: float, environ: Mapping[str, str], name: str) -> tuple[int, str, float]:
        """Return exit code, output and seconds of a Python; 124 if it took longer. Its output is kept as NAME.log."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        began = time.monotonic()
        limit_s = max(1.0, min(limit_s, self.ends_at - began))
        with (place / "output.log").open("w") as log:
            started = subprocess.Popen(
                [sys.executable, *words], cwd=place, env=dict(environ), stdout=log, stderr=log, start_new_session=True
            )
            try:
                code = started.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(started.pid, 9)
                started.wait()
                code = _TIMED_OUT
        return code, (place / "output.log").read_text(errors="replace"), time.monotonic() - began

    def trainjob(self, *words: str, limit_s: float, name: str, runs_a_job: bool = True) -> dict[str, object]:
        """Return the JSON that a command prints about a cluster file that says what this machine has.

        Where stand-ins take the place of the GPU, jobs run on CPUs: only a rehearsal starts ranks on stand-ins.
        """
        clusters = self.folder / name / "clusters"
        clusters.mkdir(parents=True, exist_ok=True)
        is_on_gpus = not (runs_a_job and self.on_stand_ins)
        devices = {"accelerator": "gpu", "accelerators": self.count()} if is_on_gpus else {}
        (clusters / "here.yaml").write_text(json.dumps({"kind": "local", "python": sys.executable, **devices}))
        environ = self.gpu if is_on_gpus else {**os.environ, "XDG_DATA_HOME": self.gpu["XDG_DATA_HOME"]}
        code, output, _ = self.run(["-m", "trainjob", *words, "--json"], limit_s, environ, name)
        found = re.search(r"(?ms)^\{.*^\}", output)
        if found is None:
            raise RuntimeError(f"exit code {code}: {(output.strip().splitlines() or ['no output'])[-1]}")
        printed = json.loads(found.group())
        assert isinstance(printed, dict)
        return printed

    def count(self) -> int:
        """Return the number of GPUs that a job sees."""
        _, output, _ = self.run(["-c", "import torch; print(torch.cuda.device_count())"], 60.0, self.gpu, "count")
        return int(output.strip().splitlines()[-1])


@dataclass(frozen=True)
class ProgramEnd:
    """How a program has ended: exit code, output, seconds, and the words that it prints where it is right."""

    code: int
    output: str
    took_s: float
    expected: str

    @property
    def is_right(self) -> bool:
        """Whether it ended with 0 and printed its words."""
        return self.code == 0 and self.expected in self.output

    @property
    def loss(self) -> float | None:
        """The last loss that it printed."""
        found = re.findall(r"(?i)\bloss\b[^0-9\n-]{0,12}(-?\d+(?:\.\d+)?(?:e-?\d+)?)", self.output)
        return float(found[-1]) if found else None

    def __str__(self) -> str:
        """Return the seconds and the last loss, or what it ended with."""
        if not self.is_right:
            return f"exit code {self.code}: {(self.output.strip().splitlines() or ['no output'])[-1][:60]}"
        return f"{self.took_s:.1f} s" + ("" if self.loss is None else f", loss {self.loss:.4g}")


def program_verdict(here: ProgramEnd, beside: ProgramEnd) -> str:
    """Return ok only where both ended well and their last losses agree; "not compared" where one had no time to end."""
    if not here.is_right:
        return "not compared" if here.code == _TIMED_OUT else "FAILED"
    if not beside.is_right:
        return "not compared" if beside.code == _TIMED_OUT else "DIFFERS"
    if here.loss is not None and beside.loss is not None:
        apart = abs(here.loss - beside.loss) / max(abs(here.loss), abs(beside.loss), 1e-3)
        return "ok" if apart <= _LOSS_WITHIN else "DIFFERS"
    return "ok"


def programs(run: GpuRun) -> Iterator[GpuRow]:
    """Yield the scripts side by side: on the GPU and on stand-ins, each as its authors wrote it."""
    from tests.standins.gpu.test_programs import COMMANDS
    from tests.standins.gpu.test_programs import PROGRAMS as FOLDER

    for number, name in enumerate(PROGRAMS):
        command, world, expected = COMMANDS[name]
        words = [str(FOLDER / word) if word.endswith(".py") else word for word in command]
        if run.count() < max(1, world):
            yield GpuRow(name, f"takes {world} GPUs", "", "not run")
            continue
        more = {"DTYPE": "float16", "PYTHONWARNINGS": "ignore"}
        here, beside = (
            ProgramEnd(*run.run(words, _PROGRAM_S, {**environ, **more}, f"program-{number}-{place}"), expected)
            for place, environ in (("gpu", run.gpu), ("beside", run.stand_ins))
        )
        yield GpuRow(name, str(here), str(beside), program_verdict(here, beside))


def tests(run: GpuRun) -> Iterator[GpuRow]:
    """Yield the verdict of the tests of real GPUs: losses, errors, NCCL, devices."""
    words = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--tb=short", str(ROOT / "tests/services/gpu")]
    # The programs and the acceptance have parts of their own here.
    words += ["-k", "not programs and not accept and not ladder"]
    code, output, took_s = run.run(words, _TESTS_S, {**run.gpu, "TRAINJOB_TEST_REQUIRE": ""}, "tests")
    last = (output.strip().splitlines() or ["no output"])[-1].strip("= ")
    verdict = "FAILED" if code not in (0, _NO_TESTS) else "ok" if re.search(r"\d passed", last) else "not run"
    yield GpuRow("make test-gpu, without its programs", f"{last} ({took_s:.0f} s)", "", verdict)


def memory(run: GpuRun) -> Iterator[GpuRow]:
    """Yield the memory of a task on the device, beside the plan's."""
    planned = run.trainjob("plan", "--cluster", "here", *_JOB, "--memory", limit_s=60.0, name="planned")
    run.trainjob("submit", "--cluster", "here", *_JOB, "--follow", limit_s=120.0, name="submitted")
    used = run.trainjob("usage", "last", limit_s=30.0, name="usage")
    ranks, held = used["rows"], planned["memory"]
    assert isinstance(ranks, list)
    assert isinstance(held, dict)
    (rank,) = ranks
    most = rank["most_device_memory_bytes"]
    shown = "not seen" if most is None else f"{most / 1e6:,.0f} MB at most"
    verdict = "not run" if most is None else "see both"  # CUDA's own context is beyond the plan
    yield GpuRow("memory of tiny-gpt (plan: without CUDA's own context)", shown, held["memory per device"], verdict)


def devices(run: GpuRun) -> Iterator[GpuRow]:
    """Yield what the commands see of the devices, and the time of an acceptance with its figures."""
    listed = run.trainjob("devices", "--cluster", "here", limit_s=30.0, name="devices", runs_a_job=False)["rows"]
    assert isinstance(listed, list)
    count = run.count()
    where = f": {listed[0]['where']}" if listed else ""
    verdict = "ok" if len(listed) == count else "DIFFERS"
    yield GpuRow("trainjob devices", f"{len(listed)} listed{where}", f"{count} seen by torch", verdict)


def acceptance(run: GpuRun) -> Iterator[GpuRow]:
    """Yield the steps of `cluster accept`, whose jobs pass the node check, with their figures."""
    accepted = run.trainjob("cluster", "accept", "here", limit_s=_ACCEPT_S, name="accept")
    outcomes = accepted["outcomes"]
    assert isinstance(outcomes, list)
    for one in outcomes:
        figures = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in one["figures"].items()
        )
        verdict = "ok" if one["state"].lower() in ("passed", "accepted", "ok") else one["state"]
        yield GpuRow(f"cluster accept: {one['step']}", f"{one['seconds']:.0f} s", figures, verdict)


PARTS: tuple[Callable[[GpuRun], Iterator[GpuRow]], ...] = (devices, memory, acceptance, tests, programs)


def table(rows: list[GpuRow], device: str) -> str:
    """Return the rows as a table of Markdown."""
    head = f"{device} · torch {torch.__version__} · {date.today().isoformat()} · benchmarks/gpu/run.sh"
    lines = ["", head, "", "| what | on the GPU | beside it: stand-ins, or the plan | verdict |", "|---|---|---|---|"]
    lines += [f"| {row.what} | {row.gpu} | {row.beside} | {row.verdict} |" for row in rows]
    return "\n".join([*lines, ""])


def main() -> int:
    """Return 0 if every part went well."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu/run.sh")
    parser.add_argument("--output", type=Path, default=Path("gpu-run"), help="folder of logs, rows.json and table.md")
    parser.add_argument("--on-stand-ins", action="store_true", help="rehearse without a GPU")
    options = parser.parse_args()
    began = time.monotonic()
    run = GpuRun(options.output.resolve(), options.on_stand_ins)
    name = "import torch; print(torch.cuda.get_device_name(0))"
    code, output, _ = run.run(["-c", name], 60.0, run.gpu, "device")
    if code != 0:
        sys.stderr.write(f"no GPU that torch can use: {(output.strip().splitlines() or ['no output'])[-1]}\n")
        return 1
    device = output.strip().splitlines()[-1]
    rows: list[GpuRow] = []
    for part in PARTS:
        try:
            for row in part(run):
                rows.append(row)
                sys.stderr.write(
                    f"{time.monotonic() - began:5.0f} s  {row.what}: {row.gpu} · {row.beside} · {row.verdict}\n"
                )
        except Exception as error:  # noqa: BLE001 - a part that fails is a row of the table
            rows.append(GpuRow(part.__name__, f"{type(error).__name__}: {str(error)[:80]}", "", "FAILED"))
            sys.stderr.write(f"{time.monotonic() - began:5.0f} s  {rows[-1].what}: {rows[-1].gpu}\n")
        # What is known so far survives whatever ends this process.
        (run.folder / "rows.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
        (run.folder / "table.md").write_text(table(rows, device))
    print(table(rows, device))
    return 0 if all(row.verdict not in ("FAILED", "DIFFERS") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
