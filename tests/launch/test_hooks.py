"""What launch/hooks/ promises to the Python processes of other people's programs, in such processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.local_runs import LIMIT_S
from tests.support.programs import ran

HOOKS = ROOT / "trainjob" / "launch" / "hooks"
SHOWS_FINDERS = "print([type(one).__module__ for one in sys.meta_path if not isinstance(one, type)])"
# As the stand-in GPUs do: it is in front, and asks none of those behind it.
HIDDEN = """\
import importlib.machinery, sys
class InFront:
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.PathFinder.find_spec(name, path, target)
sys.meta_path.insert(0, InFront())
"""
TORCH = "import json; loaded = True\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a module named torch."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "torch.py").write_text(TORCH)
    return folder


def python(program: str, *folders: Path, code: int = 0, **environ: str) -> str:
    path = os.pathsep.join(map(str, folders))
    words = [sys.executable, "-c", "import sys\n" + program]
    return ran(words, environ={**os.environ, "PYTHONPATH": path, **environ}, code=code).stdout


def notes(tmp_path: Path, program: str, *folders: Path) -> list[str]:
    """Return what a rank's Python notes of its start and its end."""
    (tmp_path / "notes").write_text("")
    python(program, *folders, TRAINJOB_STACKS=str(tmp_path / "notes"), RANK="0")
    return re.findall(r"(?m)^\w+", (tmp_path / "notes").read_text())


def test_our_finder_is_in_front_of_the_one_of_the_stand_in_gpus(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")
    stacks = str(tmp_path / "notes")
    found = python(SHOWS_FINDERS, HOOKS, ROOT / "standins" / "gpu", TRAINJOB_STACKS=stacks, RANK="0")
    assert found.startswith("['trainjob_hooks', 'trainjob_gpu.imports'"), found


def test_a_finder_of_the_hidden_sitecustomize_hides_no_import_from_us(tmp_path: Path, site: Path) -> None:
    (site / "sitecustomize.py").write_text(HIDDEN)
    assert notes(tmp_path, "import torch", HOOKS, site) == ["imported", "ended"]


def test_a_module_that_is_only_looked_for_is_seen_when_it_is_imported(tmp_path: Path, site: Path) -> None:
    looks = "import importlib.util; importlib.util.find_spec('torch')"
    assert notes(tmp_path, looks, HOOKS, site) == ["ended"]
    assert notes(tmp_path, f"{looks}; import torch, importlib; importlib.reload(torch)", HOOKS, site) == [
        "imported",
        "ended",
    ]


def test_of_two_copies_one_serves_and_what_they_hide_has_its_turn(tmp_path: Path, site: Path) -> None:
    (site / "sitecustomize.py").write_text("print('hidden')")
    copy = shutil.copytree(HOOKS, tmp_path / "copy")
    assert notes(tmp_path, "import torch", HOOKS, copy, site) == ["imported", "ended"]
    assert python("print(sys.path[1:4])", copy, HOOKS, site).splitlines() == [
        "hidden",
        str(python("print(sys.path[1:4])", site).splitlines()[1]),
    ]


def test_a_loader_stays_the_one_that_it_is(tmp_path: Path, site: Path) -> None:
    shows = (
        "import torch, json; loader = torch.__spec__.loader; print(json.dumps([type(loader).__name__, vars(loader)]))"
    )
    (tmp_path / "notes").write_text("")
    plain = python(shows, site)
    assert python(shows, HOOKS, site, TRAINJOB_STACKS=str(tmp_path / "notes"), RANK="0") == plain
    assert json.loads(plain)[0] == "SourceFileLoader"


@pytest.mark.parametrize("stacks", ["/nowhere/at/all", "/proc/1/mem"])
def test_a_fault_of_ours_is_not_raised_in_the_program(site: Path, stacks: str) -> None:
    assert python("import torch; print(torch.loaded)", HOOKS, site, TRAINJOB_STACKS=stacks, RANK="0") == "True\n"


def test_what_the_hidden_sitecustomize_raises_is_reported_as_without_us(site: Path) -> None:
    (site / "sitecustomize.py").write_text("import nowhere_to_be_found")
    with_us, without = (
        ran([sys.executable, "-c", "print(1)"], environ={**os.environ, "PYTHONPATH": path}).stderr.splitlines()[-1]
        for path in (f"{HOOKS}:{site}", str(site))
    )
    assert with_us == without
    assert "nowhere_to_be_found" in without


def test_a_python_that_imports_nothing_of_this_reads_few_files_of_ours(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")
    shows = "print(sorted(name for name in sys.modules if name.startswith('trainjob')))"
    found = python(shows, HOOKS, TRAINJOB_STACKS=str(tmp_path / "notes"), RANK="0")
    assert found == "['trainjob_hooks', 'trainjob_hooks.stacks']\n"


def test_under_the_oldest_python(tmp_path: Path, site: Path, needs: object) -> None:
    interpreter = needs("python3.8")  # type: ignore[operator]  # a fixture
    (tmp_path / "notes").write_text("")
    environ = {"PYTHONPATH": f"{HOOKS}:{site}", "TRAINJOB_STACKS": str(tmp_path / "notes"), "RANK": "0"}
    ran([str(interpreter), "-c", "import torch"], environ={**os.environ, **environ}, code=0)
    assert re.findall(r"(?m)^\w+", (tmp_path / "notes").read_text()) == ["imported", "ended"]


# What a program's signal handler raises while our code runs: an alarm comes as our code asks the program for something.
ALARM = """\
import signal
class Late(TimeoutError): pass
def late(*given): raise Late
signal.signal(signal.SIGALRM, late)
"""
OPTIMIZER = """\
import signal
class Optimizer:
    is_late = False
    state = {}
    def __init__(self): pass
    @property
    def param_groups(self):
        if self.is_late:
            signal.raise_signal(signal.SIGALRM)
        return []
    def step(self, closure=None): pass
"""


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    """A folder with as much of torch as is asked when updates are counted."""
    folder = tmp_path / "with-torch"
    (folder / "torch" / "optim").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("class cuda:\n    is_initialized = staticmethod(lambda: False)\n")
    (folder / "torch" / "optim" / "__init__.py").touch()
    (folder / "torch" / "optim" / "optimizer.py").write_text(OPTIMIZER)
    return folder


def counted(tmp_path: Path, torch: Path, program: str) -> tuple[str, bytes]:
    for name in ("notes", "counts"):
        (tmp_path / name).write_bytes(b"")
    files = {"TRAINJOB_STACKS": str(tmp_path / "notes"), "TRAINJOB_COUNTS": str(tmp_path / "counts")}
    printed = python(f"{ALARM}from torch.optim.optimizer import *\n{program}", HOOKS, torch, code=0, RANK="0", **files)
    return printed, (tmp_path / "counts").read_bytes().strip(b"\0 ")


TRAINS = """\
class SGD(Optimizer): pass
one = SGD()
one.step()
one.is_late = IS_LATE
try:
    one.step()
except Late:
    print("stopped")
one.is_late = False
one.step()
"""


@pytest.mark.parametrize(
    "handler",
    [
        "def late(number, frame): raise Late",
        "late = lambda *given: [][0]; Late = IndexError",
        "import functools; late = functools.partial(lambda told, number, frame: [][0], 1); Late = IndexError",
        "class Handler:\n    def __call__(self, number, frame):\n        raise Late\nlate = Handler()",
    ],
)
def test_what_a_signal_handler_raises_while_updates_are_counted_reaches_the_program(
    handler: str, tmp_path: Path, torch: Path
) -> None:
    program = f"{handler}\nsignal.signal(signal.SIGALRM, late)\n" + TRAINS.replace("IS_LATE", "True")
    printed, line = counted(tmp_path, torch, program)
    assert printed == "stopped\n"
    assert line.startswith(b"2 "), line


def test_a_fault_of_the_optimizer_itself_only_ends_the_count(tmp_path: Path, torch: Path) -> None:
    trains = TRAINS.replace("IS_LATE", "True").replace("Late", "TimeoutError")
    program = trains.replace(
        "class SGD(Optimizer): pass",
        "class SGD(Optimizer):\n    @property\n    def param_groups(self):\n        frame = sys._getframe()\n"
        "        return [][0] if self.is_late else []",
    )
    printed, line = counted(tmp_path, torch, program)
    assert printed == ""
    assert line.endswith(b"IndexError"), line


def test_what_a_signal_handler_raises_while_a_note_is_written_reaches_the_program(tmp_path: Path, site: Path) -> None:
    program = f"""{ALARM}
import os
write = os.write
def writes(descriptor, content):
    if content.startswith(b"imported"):
        signal.raise_signal(signal.SIGALRM)
    return write(descriptor, content)
os.write = writes
try:
    import torch
except Late:
    print("stopped")
"""
    (tmp_path / "notes").write_text("")
    assert python(program, HOOKS, site, TRAINJOB_STACKS=str(tmp_path / "notes"), RANK="0") == "stopped\n"


# Its part named `module` is in evaluation mode with it, and drops nothing itself.
RECORDED = """\
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(2, 1)
        self.dropout = torch.nn.Dropout(0.5)
    def forward(self, given):
        return self.dropout(self.part(given)).sum()
class OfItself(Model):
    @property
    def module(self):
        return self
class WithPart(Model):
    def __init__(self):
        super().__init__()
        self.module = torch.nn.Linear(2, 1)
class DistributedDataParallel(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
    def forward(self, given):
        return self.module(given)
for model in MODELS:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).backward()
    optimizer.step()
"""


def test_a_model_is_judged_behind_the_wrappers_that_are_known(tmp_path: Path) -> None:
    is_evaluating = {
        "OfItself()": False,
        "WithPart()": False,
        "WithPart().eval()": True,
        "DistributedDataParallel(Model().eval())": True,
    }
    record = {"TRAINJOB_RECORD_UPDATES": str(tmp_path), "TRAINJOB_RUN_DIR": str(tmp_path), "RANK": "0"}
    words = [sys.executable, "-c", RECORDED.replace("MODELS", f"({', '.join(is_evaluating)})")]
    ran(words, environ={**os.environ, "PYTHONPATH": str(HOOKS), **record}, timeout_s=LIMIT_S, code=0)
    lines = map(json.loads, (tmp_path / "updates/rank-0000.jsonl").read_text().splitlines())
    found = [one["evaluating"] for one in lines if one["event"] == "update"]
    assert dict(zip(is_evaluating, found, strict=True)) == is_evaluating
