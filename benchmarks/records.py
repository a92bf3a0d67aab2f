"""The cost of large records: `report`, alone and as a page, of a million lines of metrics; `logs` of a progress bar.

Each beside the plainest way to read the same file, in one run: json.loads line by line, and `cat`. Prints seconds,
their ratio and the peak of memory.

    python -m benchmarks.records [LINES] [LOG_MB]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.records import record
from trainjob.contract.paths import RunPaths

_PLAIN = "import json, sys\nfor line in open(sys.argv[1], 'rb'): json.loads(line)"
_TRAINJOB = "from trainjob.cli.main import main; main()"


def _measured(words: list[str]) -> tuple[float, float, float]:
    """Return the seconds of a command, those to its first output, and its peak of memory in MB."""
    begun = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdout is not None
    first = None
    while process.stdout.read(1 << 16):
        first = first or time.perf_counter() - begun
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - begun
    if status:
        raise SystemExit(f"{words} ended with {os.waitstatus_to_exitcode(status)}")
    return took, first or took, usage.ru_maxrss / 1000


def _write(paths: RunPaths, lines: int, log_mb: int) -> None:
    paths.logs.mkdir(parents=True)
    paths.job.write_text(record(1, name="large", command=["true"]).to_json())
    for path, word in ((paths.state, "COMPLETED"), (paths.attempt, "1")):
        path.write_text(word + "\n")
    paths.events.write_text(f"1000\t1\tbegan\tn1\n{1000 + lines}\t1\tended\tCOMPLETED 0\n")
    seconds = {"data": 0.001234, "compute": 0.123456, "communication": 0.012345, "checkpoint": 0.0}
    with paths.metrics.open("w") as stream:
        stream.write('{"kind":"begin","attempt":1,"update":0,"time":1001.0}\n')
        for update in range(1, lines + 1):
            line = {"kind": "train", "attempt": 1, "epoch": 1, "update": update, "loss": 1 / update, "accuracy": 0.5}
            rest = {"samples_per_s": 1234.5, "learning_rate": 0.1, "seconds": seconds}
            stream.write(json.dumps({**line, **rest}, separators=(",", ":")) + "\n")
    with paths.rank_log(0).open("wb") as log:
        for _ in range(log_mb):
            log.write(b"step 123 of 100000, loss 0.1234\r" * (1_000_000 // 32))


def _row(name: str, ours: list[str], plain: list[str]) -> None:
    took, first, peak_mb = _measured(ours)
    beside, _, _ = _measured(plain)
    print(
        f"{name:<16} {took:6.2f} s, first output after {first:5.2f} s, {peak_mb:5.0f} MB; plain {beside:6.2f} s: "
        f"{took / beside:5.2f} ×"
    )


def main(lines: int = 1_000_000, log_mb: int = 64) -> None:
    """Write a run of that size and print what reading it costs."""
    with tempfile.TemporaryDirectory() as folder:
        paths = RunPaths(Path(folder) / "abcd-large")
        _write(paths, lines, log_mb)
        trainjob = [sys.executable, "-c", _TRAINJOB]
        run, log = str(paths.folder), str(paths.rank_log(0))
        plain, page = [sys.executable, "-c", _PLAIN, str(paths.metrics)], Path(folder) / "report.html"
        _row("report", [*trainjob, "report", run], plain)
        _row("report --html", [*trainjob, "report", run, "--html", str(page)], plain)
        print(f"{'':<16} the page has {page.stat().st_size / 1e6:.1f} MB")
        _row("logs", [*trainjob, "logs", run], ["cat", log])
        _row("logs --rank 0", [*trainjob, "logs", run, "--rank", "0"], ["cat", log])
        _row("logs --json", [*trainjob, "logs", run, "--json"], ["cat", log])


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
