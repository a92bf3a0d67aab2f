"""Are mistakes of a training on several ranks that raise no error found, and right scripts left alone?

    python -m benchmarks.silent_mistakes                       # 22 mistakes and 30 right scripts
    python -m benchmarks.silent_mistakes --only not-finite --only dropout
    python -m benchmarks.silent_mistakes --commands --only hang # the commands themselves, which take a minute each

Four ranks of gloo train `silent_scripts/train.py`, as on two nodes, and then one rank alone. A mistake is told by
`rehearse` where the four ranks show it, or one of them fails, and by `verify` also where they differ from the one.
With `--commands` both are called, `rehearse` on a private Slurm; without, ranks are forked from one process that has
imported torch and the hook, and the record of each is judged by the same functions. A right script has to be without
any note. An INCONCLUSIVE of verify, as where random numbers hide whether the script is right, is counted apart.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trainjob.contract import package
from trainjob.contract.paths import RunPaths
from trainjob.records import updates
from trainjob.verify.scripts import ranks, update_log

_SCRIPT = Path(__file__).parent / "silent_scripts" / "train.py"
_TRAINJOB = str(Path(sys.executable).parent / "trainjob")
_RANKS = 4
_ALONE = ("--batch-size", str(4 * _RANKS))
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
    "never-synced": ("not-synchronised",),
    "accumulation-not-divided": ("accumulation-not-divided",),
    "sum-of-losses": ("sum-of-losses", "mean-against-sum"),
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
_INCONCLUSIVE = {"random-draws", "batch-norm", "different-work"}


@dataclass(frozen=True)
class Case:
    """One script: a mistake, or a way in which it is right."""

    mistake: str
    right: str

    @property
    def name(self) -> str:
        return self.mistake or f"right: {self.right or 'as it is'}"

    @property
    def words(self) -> list[str]:
        kind = ["--mistake", self.mistake] if self.mistake else ["--right", self.right] if self.right else []
        return [*kind, *(["--accumulate", "2"] if (self.mistake or self.right) in _ACCUMULATES else [])]

    def is_told(self, found: set[str]) -> bool:
        return bool(found & set(_MISTAKES[self.mistake]))


@dataclass(frozen=True)
class Told:
    """The codes that each command says, the second without those of the first."""

    rehearse: set[str]
    verify: set[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="a mistake, or a right way")
    parser.add_argument("--commands", action="store_true", help="call the commands")
    options = parser.parse_args()
    cases = [*(Case(one, "") for one in _MISTAKES), *(Case("", one) for one in _RIGHT)]
    wanted = [case for case in cases if not options.only or (case.mistake or case.right) in options.only]
    told: dict[Case, Told] = {}
    with tempfile.TemporaryDirectory() as folder:
        judge = by_commands if options.commands else by_forks
        for case, found in zip(wanted, map(partial(judge, folder=Path(folder)), wanted), strict=True):
            told[case] = found
            shown = f"{', '.join(sorted(found.rehearse)) or '–':<40} {', '.join(sorted(found.verify)) or '–'}"
            print(f"{case.name:<32} {shown}", flush=True)
    planted = [case for case in wanted if case.mistake]
    first = [case for case in planted if case.is_told(told[case].rehearse)]
    second = [case for case in planted if case not in first and case.is_told(told[case].verify)]
    others = [case.name for case in planted if case not in (*first, *second)]
    print(f"\n{len(planted)} mistakes: {len(first)} told by rehearse, {len(second)} more by verify; by none: {others}")
    right = [case for case in wanted if not case.mistake]
    noted = [case.name for case in right if told[case].rehearse]
    accused = [case.name for case in right if told[case].verify - _INCONCLUSIVE]
    hidden = sum(bool(told[case].verify & _INCONCLUSIVE) for case in right)
    print(f"{len(right)} right scripts: notes of rehearse {noted}, findings of verify {accused}, inconclusive {hidden}")


def by_forks(case: Case, *, folder: Path) -> Told:
    """Return what the two commands would say of ranks that are forked."""
    project = folder / case.name.replace(" ", "-").replace(":", "")
    several, one = RunPaths(project / "several"), RunPaths(project / "one")
    has_ended = _trained(several, _RANKS, case.words)
    found = {cause.code for cause in ranks.of_run(several)} | set(ranks.notes_of_run(several))
    if not has_ended:
        return Told(found | {_FAILED}, set())
    # As verify does: what ranks show by themselves is mended first.
    if found or not _trained(one, 1, [*case.words, *_ALONE]):
        return Told(found, set() if found else {_FAILED})
    logs = [[attempts[0] for attempts in update_log.read(paths)] for paths in (several, one)]
    return Told(found, {cause.code for cause in ranks.with_one(logs[0], logs[1][0])})


def _trained(paths: RunPaths, count: int, words: Sequence[str]) -> bool:
    """Train with ranks as of two nodes; return whether all ended with 0."""
    (paths.folder / "code" / "project").mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(count):
        if (child := os.fork()) == 0:
            local = {"LOCAL_RANK": str(rank % max(1, count // 2)), "LOCAL_WORLD_SIZE": str(max(1, count // 2))}
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
            os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(count), **local, **meeting})
            os._exit(_as_rank(paths, words))
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return not any(codes)


def _as_rank(paths: RunPaths, words: Sequence[str]) -> int:
    importlib.import_module("trainjob_hooks.recorder").begin(str(paths.folder))
    os.chdir(paths.folder / "code" / "project")
    sys.argv = [str(_SCRIPT), *words]
    with open("output.txt", "a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    try:
        runpy.run_path(str(_SCRIPT), run_name="__main__")
    except BaseException:  # noqa: BLE001 - SystemExit as well: this is a fork
        traceback.print_exc()
        return 1
    return 0


def by_commands(case: Case, *, folder: Path) -> Told:
    """Return what the two commands say."""
    project = folder / case.name.replace(" ", "-").replace(":", "")
    (project / "clusters").mkdir(parents=True)
    shutil.copy(_SCRIPT, project)
    cluster = {"kind": "slurm", "nodes": {"count": 2, "cpus": 4, "memory_gb": 8}, "time_limit": "00:10:00"}
    cluster |= {"runs_dir": str(project / "runs"), "python": sys.executable}
    (project / "clusters" / "two.yaml").write_text(json.dumps(cluster))
    on_two = ["rehearse", "--cluster", "two", "--hosts", "2", "--updates", "1000"]
    found = [_said(case, project, words) for words in (on_two, ["verify", "--alone", " ".join(_ALONE)])]
    return Told(found[0], found[1] - found[0])


def _said(case: Case, project: Path, words: Sequence[str]) -> set[str]:
    environ = {**os.environ, "XDG_DATA_HOME": str(project / "data"), "OMP_NUM_THREADS": "1"}
    command = [_TRAINJOB, *words, "--instances", str(_RANKS), "--json", "--", sys.executable, "train.py", *case.words]
    ended = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True)
    try:
        verdict: dict[str, Any] = json.loads(ended.stdout)
    except ValueError:
        return {_FAILED} if "FAILED" in ended.stderr else {"no verdict", ended.stderr[-300:]}
    if "error" in verdict:
        return {_FAILED}
    found = {one["code"] for one in verdict["findings"]} | set(verdict.get("notes", ()))
    return found | ({_FAILED} if verdict.get("state", "COMPLETED") != "COMPLETED" else set())


def _import_torch_with_hook() -> None:
    """Import torch as a rank does whose Python records; forks then only have to begin."""
    os.environ.update(updates.hooked(Path(os.devnull), None))
    os.environ["TRAINJOB_RUN_DIR"] = tempfile.mkdtemp()
    sys.path.insert(0, str(package.folder() / "launch" / "hooks"))
    importlib.import_module("trainjob_hooks").install()
    torch = importlib.import_module("torch")
    for name in ("torch.distributed", "torch.nn.parallel", "torch.utils.data", "torch.utils.checkpoint"):
        importlib.import_module(name)
    importlib.import_module("torch._dynamo")
    torch.set_num_threads(1)
    shutil.rmtree(os.environ["TRAINJOB_RUN_DIR"])


if __name__ == "__main__":
    if "--commands" not in sys.argv:
        _import_torch_with_hook()
    main()
