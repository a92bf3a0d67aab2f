"""Are mistakes in a training of several ranks told, which raise no error, and are right scripts left alone?

    python -m benchmarks.silent_mistakes                   # 22 mistakes and 30 right scripts, by rehearse and by verify
    python -m benchmarks.silent_mistakes --only not-finite --only dropout
    python -m benchmarks.silent_mistakes --right           # the right scripts alone, or --mistakes

Four ranks of gloo train `silent_scripts/train.py`: on two nodes of a private Slurm in `trainjob rehearse`, and on this
machine in `trainjob verify`, which compares them with one rank alone. A mistake is told where a note or a finding has a
code that names it, or the training has failed. A right script has to be without any note; what verify can't compare
(random numbers) is counted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).parent / "silent_scripts" / "train.py"
_TRAINJOB = str(Path(sys.executable).parent / "trainjob")
_RANKS = 4
_FAILED = "failed"
# Mistakes, and the codes of which one must be told.
_MISTAKES = {
    "init-rank": ("init-rank", _FAILED),
    "hang": (_FAILED,),
    "same-samples": ("same-samples",),
    "sampler-rank": ("sampler-rank", "order-per-rank", "other-samples"),
    "order-per-rank": ("order-per-rank",),
    "no-set-epoch": ("same-order",),
    "weights-apart": ("weights-apart",),
    "module-called": ("not-synchronised",),
    "no-sync": ("not-synchronised",),
    "accumulation-not-divided": ("accumulation-not-divided",),
    "sum-of-losses": ("mean-against-sum",),
    "forward-reduce": ("reduced-without-gradient",),
    "reduced-again": ("reduced-twice",),
    "all-save": ("all-save",),
    "not-finite": ("not-finite",),
    "rate-scaled-twice": ("learning-rate",),
    "scheduler-by-ranks": ("learning-rate",),
    "other-weights": ("other-weights",),
    "rate-zero": ("weights-unchanged",),
    "not-zeroed": ("not-zeroed",),
    "clips-scaled": ("clips-scaled",),
    "evaluation-mode": ("evaluation-mode",),
}
_RIGHT = (
    *("", "accumulated", "no-sync", "scaler", "clips", "dropout", "augmented", "seed-per-rank", "norm", "frozen-norm"),
    *("frozen", "groups", "adam", "lbfgs", "zero", "two-optimizers", "warm-up", "one-cycle", "average", "stream"),
    *("batch-sampler", "workers", "uneven-end", "find-unused", "half-hook", "by-hand", "global-mean", "checkpointing"),
    *("metrics", "zero-first"),
)
_ACCUMULATES = ("accumulation-not-divided", "accumulated", "no-sync", "zero-first")


@dataclass(frozen=True)
class Case:
    """One script, and by what it is looked at."""

    mistake: str
    right: str
    by: str

    @property
    def name(self) -> str:
        return f"{self.by} {self.mistake or 'right: ' + (self.right or 'as it is')}"

    @property
    def words(self) -> list[str]:
        kind = ["--mistake", self.mistake] if self.mistake else ["--right", self.right] if self.right else []
        is_accumulated = (self.mistake or self.right) in _ACCUMULATES
        return [*kind, *(["--accumulate", "2"] if is_accumulated else [])]

    def is_good(self, found: set[str]) -> bool:
        return bool(found & set(_MISTAKES[self.mistake])) if self.mistake else not found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", action="append", choices=("rehearse", "verify"))
    parser.add_argument("--only", action="append", help="a mistake, or a right way")
    parser.add_argument("--mistakes", action="store_true", help="the mistakes alone")
    parser.add_argument("--right", action="store_true", help="the right scripts alone")
    parser.add_argument("--side-by-side", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.side_by_side) as pool:
        outcomes: dict[Case, set[str]] = {}
        cases = list(_cases(options))
        for case, found in zip(cases, pool.map(partial(_found, folder=Path(folder)), cases), strict=True):
            outcomes[case] = found
            print(f"{case.name:<44} {'ok' if case.is_good(found) else '–':<3} {', '.join(sorted(found))}", flush=True)
    for by in options.by or ("rehearse", "verify"):
        mine = {case: found for case, found in outcomes.items() if case.by == by}
        good = Counter((bool(case.mistake), case.is_good(found)) for case, found in mine.items())
        print(f"{by}: {good[True, True]} of {good[True, True] + good[True, False]} mistakes told", end=", ")
        print(f"{good[False, False]} of {good[False, True] + good[False, False]} right scripts with a note")
    planted = {case.mistake for case in outcomes if case.mistake}
    told = {case.mistake for case, found in outcomes.items() if case.mistake and case.is_good(found)}
    print(f"by one of them: {len(told)} of {len(planted)}; by none: {', '.join(sorted(planted - told)) or '–'}")


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    for by in options.by or ("rehearse", "verify"):
        named = [(one, "") for one in _MISTAKES] if not options.right else []
        named += [("", one) for one in _RIGHT] if not options.mistakes else []
        yield from (Case(*one, by) for one in named if not options.only or (one[0] or one[1]) in options.only)


def _found(case: Case, *, folder: Path) -> set[str]:
    project = folder / case.name.replace(" ", "-").replace(":", "")
    (project / "clusters").mkdir(parents=True)
    shutil.copy(_SCRIPT, project)
    cluster = {"kind": "slurm", "nodes": {"count": 2, "cpus": 4, "memory_gb": 8}, "time_limit": "00:10:00"}
    cluster |= {"runs_dir": str(project / "runs"), "python": sys.executable}
    (project / "clusters" / "two.yaml").write_text(json.dumps(cluster))
    script = ["--", sys.executable, "train.py", *case.words]
    if case.by == "rehearse":
        asked = ["rehearse", "--cluster", "two", "--instances", str(_RANKS), "--hosts", "2", "--updates", "1000"]
    else:
        asked = ["verify", "--instances", str(_RANKS), "--alone", f"--batch-size {4 * _RANKS}"]
    environ = {**os.environ, "XDG_DATA_HOME": str(project / "data"), "OMP_NUM_THREADS": "1"}
    words = [_TRAINJOB, *asked, "--json", *script]
    ended = subprocess.run(words, cwd=project, env=environ, capture_output=True, text=True)
    try:
        verdict: dict[str, Any] = json.loads(ended.stdout)
    except ValueError:
        return {_FAILED} if "FAILED" in ended.stderr else {"no verdict", ended.stderr[-300:]}
    found = {one["code"] for one in verdict.get("findings", ())}
    if "passed" in verdict and not verdict["passed"] and not found:
        found.add(_FAILED)
    return found | ({"note"} if verdict.get("notes") else set())


if __name__ == "__main__":
    main()
