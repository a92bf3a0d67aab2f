"""Runs public programs in small, each through `submit`, and compares what is shown of them with what they did.

    python -m benchmarks.public_programs [NAME or draw_N …]        # without: draw_1

The programs run by the Python of TRAINJOB_FRAMEWORKS_VENV, if that is set, as those of draw_9 need it.

At each change of progress.json, and in `status --json` in the middle and at the end, a total must be the planned one or
unknown, and in the end the updates those that were made. Where a program prints nothing that could tell its updates,
the epoch is what must be right. Each loss in metrics.jsonl must be one that the program printed of its training, and
the epoch the last one; accuracies and figures of evaluations must be absent. What is quoted must stand in the log, and
`sources` must have each figure.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.public_programs.draws import DRAWS, WITHOUT_TORCH
from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.records import attempts

_FRAMEWORKS = os.environ.get("TRAINJOB_FRAMEWORKS_VENV")
PYTHON = f"{_FRAMEWORKS}/bin/python" if _FRAMEWORKS else sys.executable


def script_of(name: str) -> Path:
    """Return the file that has a program."""
    (draw,) = (draw for draw, programs in DRAWS.items() if name in programs)
    return Path(__file__).with_name("without_torch.py" if name in WITHOUT_TORCH else f"{draw}.py")


class Shown:
    """What was shown of one program, and what it did."""

    def __init__(self, name: str) -> None:
        place = Path(tempfile.mkdtemp(prefix="public-"))
        project, truth, script = place / "project", place / "truth.json", script_of(name)
        project.mkdir()
        for file in (script, *(script.with_name(f"{one}.py") for one in ("account", "toy"))):
            shutil.copy(file, project)
        self._environ = {**os.environ, **{f"XDG_{one}_HOME": str(place / one) for one in ("DATA", "CONFIG", "CACHE")}}
        words = ["--cluster", "local", "--instances", "1", "--env", f"TRUTH={truth}", "--env", "OMP_NUM_THREADS=1"]
        submitted = self._trainjob("submit", *words, "--", PYTHON, script.name, name, folder=project)
        run = Path(submitted["folder"])
        self.seen: list[tuple[int | None, int | None]] = []
        self.epoch: int | None = None
        self.record: dict[str, Any] = {"sources": {}}
        self.statuses: list[dict[str, Any]] = []
        while attempts.state(RunPaths(run)) in (None, *states.ACTIVE):
            self._look(run)
            if self.seen and not self.statuses:
                self.statuses.append(self._trainjob("status", submitted["id"], folder=project))
            time.sleep(0.1)
        self._look(run)
        self.statuses.append(self._trainjob("status", submitted["id"], folder=project))
        if not truth.exists():
            raise SystemExit(f"{name} did not end: {run}")
        self.truth: dict[str, Any] = json.loads(truth.read_text())
        metrics = run / "metrics.jsonl"
        self.lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
        self.log = run / "logs" / "rank-0000.log"

    def _trainjob(self, *words: str, folder: Path) -> Any:
        command = [sys.executable, "-m", "trainjob", words[0], "--json", *words[1:]]
        environ = {**self._environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        return json.loads(subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True).stdout)

    def _look(self, run: Path) -> None:
        if (run / "progress.json").exists():
            record = json.loads((run / "progress.json").read_text())
            self.epoch, self.record = record["epoch"], record
            if not self.seen or self.seen[-1] != (record["update"], record["total_updates"]):
                self.seen.append((record["update"], record["total_updates"]))

    def faults(self) -> Iterator[str]:
        """Yield what was shown wrongly."""
        planned, epochs = _listed(self.truth["total"]), self.truth.get("epochs")
        updates = [update for update, _ in self.seen if update is not None]
        if epochs is not None and self.epoch not in (None, epochs, epochs - 1):
            yield f"epoch {self.epoch} of {epochs}"
        if updates != sorted(updates) or (updates and updates[-1] not in _listed(self.truth["updates"])):
            yield f"update {updates[-1]} of {self.truth['updates']}"
        for total in {total for _, total in self.seen} - {None, *planned}:
            yield f"total {total} of {self.truth['total']}"
        for status in self.statuses:
            most = max((one for one in _listed(self.truth["updates"]) if one is not None), default=0)
            if status["total_updates"] not in (None, *planned) or (status["update"] or 0) > most:
                yield f"status: update {status['update']} of {status['total_updates']}"
        if self.statuses[-1]["update"] != self.record.get("update"):
            yield f"status: update {self.statuses[-1]['update']} in the end"
        log = _words(self.log.read_text())
        for quoted in self.record.get("printed", []):
            if _words(quoted) not in log:
                yield f"quotes {quoted!r}"
        named = {name for name in ("update", "total_updates", "epoch") if self.record.get(name) is not None}
        for kind, before in (("train", ""), ("evaluation", "held_out_")):
            named |= {f"{before}{name}" for name in ("loss", "accuracy") if self._figures(kind, name)}
        for name in sorted(named - set(self.record["sources"])):
            yield f"{name} without a source"
        for kind, of in (("train", "training"), ("evaluation", "held_out")):
            for name, printed, scales in (("loss", of, (1,)), ("accuracy", f"{of}_accuracy", (1, 100))):
                its = self.truth.get(printed, [])
                figures = self._figures(kind, name) if printed in self.truth else []
                strange = [
                    one for one in figures if all(abs(one * scale - each) > 1e-6 for scale in scales for each in its)
                ]
                if strange:
                    yield f"{of} {name} {strange[0]}"

    def _figures(self, kind: str, name: str) -> list[float]:
        return [line[name] for line in self.lines if line["kind"] == kind and line.get(name) is not None]

    def row(self) -> str:
        """Return what is shown in the end."""
        update, total = self.seen[-1] if self.seen else (None, None)
        loss, held_out = (next(reversed(self._figures(kind, "loss")), "-") for kind in ("train", "evaluation"))
        shown = (update, total or "unknown", loss, held_out)
        if self.truth["updates"] is None:
            return "epoch {}, update {} of {}, loss {}, held-out {}".format(self.epoch, *shown)
        return "update {} of {}, loss {}, held-out {}".format(*shown)


def _words(text: str) -> str:
    """Return the letters and digits of a text, which a quotation shares with the log."""
    return "".join(character for character in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text) if character.isalnum())


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def main(names: list[str]) -> None:
    right = wrong = with_total = 0
    for name in names:
        shown = Shown(name)
        faults = list(shown.faults())
        is_right = bool(shown.seen) and shown.seen[-1][0] in _listed(shown.truth["updates"])
        if shown.truth["updates"] is None:
            is_right = is_right and shown.epoch is not None
        right += is_right
        wrong += bool(faults)
        with_total += bool(shown.seen) and shown.seen[-1][1] is not None
        print(
            f"{name:34} {shown.row()}{'; WRONG: ' + '; '.join(faults) + f' ({shown.log})' if faults else ''}",
            flush=True,
        )
    count = len(names)
    print(f"{count} programs: updates right in {right}, a total in {with_total}, something shown wrongly in {wrong}")


if __name__ == "__main__":
    main([name for word in sys.argv[1:] or ["draw_1"] for name in DRAWS.get(word, [word])])
