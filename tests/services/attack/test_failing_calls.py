"""Each command that changes something, run once for each system call that it makes, with that call failing.

Allowed are success, and one line with the cure. Afterwards the state is the one before or the one after, nothing runs
that `list` does not show, and the same command succeeds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.attack import Attack
from tests.support.failing_calls import Call, Ended, calls, calls_on, failing, unseen
from tests.support.local_runs import PYTHON, Here, Run
from tests.support.programs import TRAINJOB
from tests.support.runs_at_work import make_run
from tests.support.shell_library import LIBRARY
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.data.checking import check_folder
from trainjob.data.manifest import read_manifest
from trainjob.records import checkpoints

KIND = "failing system calls"
SUBMIT = ["submit", "--cluster", "local", "--again", "--no-check", "--instances", "1"]

# Writes the checkpoint of one update as a rank does, in the process's first thread, which strace then counts alone.
SAVE = """\
import pathlib, sys
import torch
from trainjob.contract.paths import RunPaths
from trainjob.train.recording.checkpoint import CheckpointWriter
from trainjob.train.recording.state import State

torch.set_num_threads(1)
paths, update = RunPaths(pathlib.Path(sys.argv[1])), int(sys.argv[2])
writer = CheckpointWriter(paths, 1, lambda: None, lambda line: print(line, file=sys.stderr))
state = State({"weight": torch.full((3,), float(update))}, {"momentum": torch.ones(3)}, {})
print("durable" if writer._write(update, state, {"contract": 1, "update": update}) else "refused")
"""
# The end of a job script whose ranks have failed.
END = f"""\
set -euo pipefail
cd "$1" && . {LIBRARY}/record.sh
TRAINJOB_ATTEMPT=1
trap 'end_attempt $?' EXIT
exit 3
"""


@pytest.fixture(autouse=True)
def _strace(needs: Callable[[str], Path]) -> None:
    needs("strace")


class Case:
    """A command, what it works on, and the states that it may leave."""

    # What is tried where time is short; `full` tries every call. None: a call of each kind.
    kinds: tuple[str, ...] | None = ()
    # What names the run that has begun; matches nothing of a command that begins none.
    begun = r"(?!)"

    def __init__(self, here: Here) -> None:
        self.here = here

    def prepare(self) -> list[str]:
        """Make what the command works on; return the command."""
        raise NotImplementedError

    def state(self) -> Any:
        """Return what the command changes."""
        raise NotImplementedError

    def is_after(self, before: Any, now: Any) -> bool:
        """Return whether `now` is what success makes of `before`."""
        raise NotImplementedError

    def calls(self, log: Path) -> list[Call]:
        return list(calls(self.here, self.prepare(), log))

    def is_allowed(self, ended: Ended) -> bool:
        # Where standard output has no room, the run that has begun is named before the error.
        first, _, rest = ended.err.partition("\n")
        return ended.is_allowed or (bool(re.match(self.begun, first)) and ended._replace(err=rest).is_allowed)

    def says_that_it_failed(self, ended: Ended) -> bool:
        return ended.code != 0

    def succeeds(self, argv: list[str]) -> None:
        """Raise AssertionError unless the same command succeeds now."""
        self.here.run(*argv[1:])


class Submit(Case):
    kinds = None
    begun = r"submitted run \S"

    def prepare(self) -> list[str]:
        # The fewer runs there are, the sooner they are listed.
        shutil.rmtree(self.here.folder / "data" / "trainjob", ignore_errors=True)
        return [TRAINJOB, *SUBMIT, "--", "true"]

    def state(self) -> int:
        return len(self.here.json("list"))

    def is_after(self, before: Any, now: Any) -> bool:
        return bool(now == before + 1)


class Resume(Case):
    kinds = ("rename", "fsync")
    begun = r"run \S+ continues: /"

    def prepare(self) -> list[str]:
        self.here.write("fails.py", "raise SystemExit(3)\n")
        self.run = self.here.json(*SUBMIT, "--follow", "--", "python", "fails.py", code=1)["id"]
        return [TRAINJOB, "resume", self.run]

    def state(self) -> tuple[str, int]:
        now = until(self._ended, f"the end of {self.run}")
        return now["state"], now["attempt"]

    def _ended(self) -> Any:
        now = self.here.json("status", self.run)
        return now["state"] not in ("PENDING", "RUNNING") and now

    def is_after(self, before: Any, now: Any) -> bool:
        return bool(now == ("FAILED", before[1] + 1))


class Cancel(Case):
    kinds = ("rename", "write")

    def prepare(self) -> list[str]:
        self.here.write("stays.py", "import time\ntime.sleep(600)\n")
        self.run: Run = self.here.submit("python", "stays.py", instances=1)
        self.run.wait("RUNNING")
        return [TRAINJOB, "cancel", self.run.id]

    def state(self) -> str:
        return str(self.run.status()["state"])

    def is_after(self, before: Any, now: Any) -> bool:
        return bool(now == "CANCELLED" and not self.run.processes())


class Prune(Case):
    kinds = ("rename", "unlink")

    def prepare(self) -> list[str]:
        self.here.follow("true")
        return [TRAINJOB, "prune", "--older-than-days", "0", "--keep", "0", "--yes"]

    def state(self) -> list[tuple[str, str]]:
        return [(one["id"], one["state"]) for one in self.here.json("list")]

    def is_after(self, before: Any, now: Any) -> bool:
        return bool(now == [])

    def says_that_it_failed(self, ended: Ended) -> bool:
        return ended.code != 0 or "stays, because its age is not known" in ended.err


class Export(Case):
    kinds = ("rename", "openat")

    def __init__(self, here: Here) -> None:
        super().__init__(here)
        self.run = here.follow("true")
        save(here, self.run.folder, 4)
        self.target = here.folder / "data" / "out" / "model.safetensors"
        self.target.parent.mkdir()

    def prepare(self) -> list[str]:
        self.target.write_bytes(b"the weights of yesterday")
        return [TRAINJOB, "export", self.run.id, "-o", str(self.target)]

    def state(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.target.parent.iterdir()}

    def is_after(self, before: Any, now: Any) -> bool:
        model = self.run.folder / "checkpoints" / "update-00000004" / checkpoints.MODEL
        return bool(now == {self.target.name: model.read_bytes()})


class DataPrepare(Case):
    kinds = ("rename", "write")

    def prepare(self) -> list[str]:
        self.sets = self.here.folder / "data" / "sets"
        words = ["data", "prepare", "synthetic", "--again", "--held-out", "4", "--data-dir", str(self.sets)]
        if not self.sets.exists():
            self.here.run(*words, "--samples", "16")
        self.samples = 24 - self.state()
        return [TRAINJOB, *words, "--samples", str(self.samples)]

    def state(self) -> int:
        check_folder(self.sets / "synthetic")
        manifest = read_manifest(self.sets / "synthetic")
        assert manifest is not None
        return manifest.splits["train"].samples

    def is_after(self, before: Any, now: Any) -> bool:
        return bool(now == self.samples)

    def succeeds(self, argv: list[str]) -> None:
        super().succeeds(argv)
        assert [path.name for path in self.sets.iterdir()] == ["synthetic"]


class Checkpoint(Case):
    kinds = ("rename", "write")

    def prepare(self) -> list[str]:
        folder = self.here.folder / "runs" / "abcd-run"
        shutil.rmtree(folder, ignore_errors=True)
        self.paths = make_run(folder)
        save(self.here, folder, 4)
        return [PYTHON, "-c", SAVE, str(folder), "8"]

    def calls(self, log: Path) -> list[Call]:
        return [call for call in super().calls(log) if not call.text.startswith("write(1")]

    def state(self) -> list[int]:
        complete = checkpoints.folders(self.paths.checkpoints)
        assert [checkpoints.check(folder).folder for folder in complete] == complete
        return [checkpoints.update_of(folder) for folder in complete]

    def is_after(self, before: Any, now: Any) -> bool:
        # An older one that can't be removed does no harm.
        return now in ([8], [8, 4])

    def is_allowed(self, ended: Ended) -> bool:
        if ended.out == "durable\n":
            return ended.code == 0 and self.state()[0] == 8 and not ended.err
        # One that is there, and whose folder could not be made durable, is called NOT written as well.
        return (ended.code, ended.out) == (0, "refused\n") and "NOT written" in ended.err

    def says_that_it_failed(self, ended: Ended) -> bool:
        return ended.out == "refused\n"

    def succeeds(self, argv: list[str]) -> None:
        save(self.here, Path(argv[-2]), 8)
        assert self.state() == [8]


class ScriptsEnd(Case):
    kinds = ("renameat2", "openat", "write")

    def prepare(self) -> list[str]:
        self.folder = self.here.folder / "runs" / "abcd-run"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name, word in (("attempt", "1"), ("state", "RUNNING")):
            (self.folder / name).write_text(f"{word}\n")
        return ["bash", "-c", END, "job.sh", str(self.folder)]

    def calls(self, log: Path) -> list[Call]:
        argv = self.prepare()
        every = calls_on(self.here, argv, log, self.folder)
        return list({(one.kind, one.number, one.path): one for one in every}.values())

    def state(self) -> tuple[str, str]:
        words = [RunPaths(self.folder).state, RunPaths(self.folder).exit_code]
        state, code = (path.read_text().strip() if path.exists() else "" for path in words)
        return state, code

    def is_after(self, before: Any, now: Any) -> bool:
        return bool(now == ("FAILED", "3"))

    def is_allowed(self, ended: Ended) -> bool:
        return ended.code == 3

    def succeeds(self, argv: list[str]) -> None:
        subprocess.run(argv, check=False, timeout=60)
        assert self.state() == ("FAILED", "3")


def save(here: Here, folder: Path, update: int) -> None:
    subprocess.run([PYTHON, "-c", SAVE, str(folder), str(update)], check=True, env=here.environ, capture_output=True)


CASES: dict[str, type[Case]] = {
    "submit": Submit,
    "resume": Resume,
    "cancel": Cancel,
    "prune": Prune,
    "export": Export,
    "data prepare": DataPrepare,
    "a rank's checkpoint": Checkpoint,
    "the end of a job script": ScriptsEnd,
}

# Those that make many calls are swept in parts, which can run side by side.
PARTS = {"submit": 8, "resume": 2, "cancel": 2}


def one_of_each(every: list[Call], kinds: tuple[str, ...] | None) -> list[Call]:
    """Return the last call but one of each kind: the later, the more there is to put right."""
    of_kind = {
        kind: [call for call in every if call.kind == kind]
        for kind in dict.fromkeys(call.kind for call in every)
        if kinds is None or kind in kinds
    }
    return [found[max(0, len(found) - 2)] for found in of_kind.values()]


def attack_calls(attack: Attack, case: Case, tmp_path: Path, choose: Callable[[list[Call]], list[Call]]) -> None:
    # The first run fills caches of modules and templates, and calls numbered in it would be others in the next.
    case.calls(tmp_path / "calls")
    chosen, missed = choose(case.calls(tmp_path / "calls")), 0
    with attack(KIND) as trials:
        for call in chosen:
            with trials.trial(f"{call.kind} {call.number}: {call.text[:200]}"):
                argv = case.prepare()
                before = case.state()
                ended = failing(case.here, argv, call, tmp_path / "trace")
                missed += "INJECTED" not in (tmp_path / "trace").read_text(errors="replace")
                check_end(case, argv, before, ended)
    # A command that polls makes fewer calls at times.
    assert missed <= max(1, len(chosen) // 4), f"{missed} of {len(chosen)} calls were not made"


def check_end(case: Case, argv: list[str], before: Any, ended: Ended) -> None:
    assert case.is_allowed(ended), ended
    now = case.state()
    is_before = now == before and case.says_that_it_failed(ended)
    assert is_before or case.is_after(before, now), (before, now, ended)
    assert unseen(case.here) == []
    case.succeeds(argv)
    case.here.end_everything()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_some_calls_of_each_command_fail(attack: Attack, here: Here, tmp_path: Path, name: str) -> None:
    case = CASES[name](here)
    attack_calls(attack, case, tmp_path, lambda every: one_of_each(every, case.kinds))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "part"), [(name, part) for name in CASES for part in range(PARTS.get(name, 1))])
def test_every_call_of_each_command_fails(attack: Attack, here: Here, tmp_path: Path, name: str, part: int) -> None:
    attack_calls(attack, CASES[name](here), tmp_path, lambda every: every[part :: PARTS.get(name, 1)])
