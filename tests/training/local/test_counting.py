"""Weight updates are counted where programs make them, and nothing that they do changes."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.local_runs import PYTHON
from tests.support.programs import ran
from trainjob.launch.reading.counts import Counts, Look

HOOKS = ROOT / "trainjob" / "launch" / "hooks"
BEGINS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
other = torch.nn.Linear(4, 1)
data = TensorDataset(torch.randn(40, 4))
loader = DataLoader(data, batch_size=4)
def loss(network=model): return network(torch.randn(8, 4)).square().mean()
"""
ENDS = "\nprint([one.double().sum().item().hex() for one in model.parameters()])\n"
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
TRAIN = """\
for epoch in range(epochs):
    for at, (batch,) in enumerate(loader):
        model(batch).square().mean().backward()
        if (at + 1) % accumulation == 0:
            optimizer.step(); optimizer.zero_grad()
"""
SCALED = """\
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 10)
for step in range(6):
    optimizer.zero_grad()
    scaler.scale(loss() * (float("inf") if step in (1, 4) else 1.0)).backward()
    scaler.step(optimizer); scaler.update()
"""
# A program; its updates; those of all of its epochs.
PROGRAMS = {
    "a loop": (f"epochs, accumulation = 3, 1\n{SGD}{TRAIN}", 30, 30),
    "accumulation": (f"epochs, accumulation = 3, 2\n{SGD}{TRAIN}", 15, 15),
    "accumulation that leaves batches over": (f"epochs, accumulation = 3, 3\n{SGD}{TRAIN}", 9, 9),
    "epochs that a limit cuts": (f"epochs, accumulation, max_steps = 3, 1, 20\n{SGD}{TRAIN}", 30, None),
    "a limit in an object of the program's own": (
        f"class Config: pass\ncfg = Config(); cfg.max_iter = 20\nepochs, accumulation = 3, 1\n{SGD}{TRAIN}",
        *(30, None),
    ),
    "epochs in an object of the program's own, beside a schedule of the learning rate": (
        "class Trainer:\n    def __init__(self): self.max_epochs = 3\n    def fit(self):\n"
        f"        {SGD}        warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=5)\n"
        "        for epoch in range(self.max_epochs):\n            for (batch,) in loader:\n"
        "                model(batch).square().mean().backward(); optimizer.step(); warm_up.step()\nTrainer().fit()",
        *(30, 30),
    ),
    "a scaler that leaves steps out": (SGD + SCALED, 4, None),
    "a fused optimizer that leaves them out": (
        f"optimizer = torch.optim.Adam(model.parameters(), fused=True)\n{SCALED}",
        *(4, None),
    ),
    "two optimizers in turn": (
        "two = [torch.optim.Adam(one.parameters()) for one in (model, other)]\n"
        "for _ in range(5):\n    for optimizer, one in zip(two, (model, other)):\n"
        "        loss(one).backward(); optimizer.step()",
        *(5, None),
    ),
    "one optimizer for each weight": (
        "every = [torch.optim.SGD([one], lr=0.1) for one in model.parameters()]\n"
        "for _ in range(5):\n    loss().backward()\n    for optimizer in every: optimizer.step()",
        *(5, None),
    ),
    "another optimizer after the first": (
        "for kind in (torch.optim.SGD, torch.optim.AdamW):\n"
        "    optimizer = kind(model.parameters(), lr=0.1)\n"
        "    for _ in range(4): loss().backward(); optimizer.step()",
        *(8, None),
    ),
    "an optimizer that calls another": (
        "class Outer(torch.optim.SGD):\n    def step(self, closure=None): return super().step(closure)\n"
        "optimizer = Outer(model.parameters(), lr=0.1)\nscheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)\n"
        "for _ in range(4): loss().backward(); optimizer.step(); scheduler.step()",
        *(4, None),
    ),
    "evaluations between": (
        f"epochs = 2\n{SGD}held_out = DataLoader(data, batch_size=8)\n"
        "for epoch in range(epochs):\n"
        "    for (batch,) in loader: model(batch).square().mean().backward(); optimizer.step()\n"
        "    for (batch,) in held_out: model(batch)",
        *(20, 20),
    ),
    "two models, one after the other": (
        "for one in (model, other):\n    optimizer = torch.optim.Adam(one.parameters())\n"
        "    for _ in range(5): loss(one).backward(); optimizer.step()",
        *(10, None),
    ),
    "a second optimizer that joins the first": (
        "two = [torch.optim.Adam(one.parameters()) for one in (model, other)]\n"
        "for at in range(6):\n    for optimizer, one in [*zip(two, (model, other))][:1 + (at > 2)]:\n"
        "        loss(one).backward(); optimizer.step()",
        *(6, None),
    ),
    "one that steps twice with the first": (
        "two = [torch.optim.Adam(one.parameters()) for one in (model, other)]\n"
        "for _ in range(5):\n    for at in (0, 0, 1): loss([model, other][at]).backward(); two[at].step()",
        *(10, None),
    ),
    "a critic and a generator that step twice each": (
        "two = [torch.optim.Adam(one.parameters()) for one in (model, other)]\n"
        "for _ in range(5):\n    for at in (0, 0, 1, 1): loss([model, other][at]).backward(); two[at].step()",
        *(10, None),
    ),
    "a limit in a named tuple": (
        "from collections import namedtuple\ncfg = namedtuple('Config', ['total_steps'])(20)\n"
        f"epochs, accumulation = 3, 1\n{SGD}{TRAIN}",
        *(30, None),
    ),
    "a function that calls eval() of a model": (
        f"def main():\n    epochs = 3\n    {SGD}    for epoch in range(epochs):\n        model.train()\n"
        "        for (batch,) in loader: model(batch).square().mean().backward(); optimizer.step()\n"
        "        model.eval()\nmain()",
        *(30, 30),
    ),
    "epochs that end early": (
        f"epochs = 3\n{SGD}for epoch in range(epochs):\n"
        "    for (batch,) in loader: model(batch).square().mean().backward(); optimizer.step()\n"
        "    if epoch == 1: break",
        *(20, None),
    ),
    "batches of two loaders": (
        f"epochs = 3\n{SGD}for epoch in range(epochs):\n"
        "    for (batch,), other in zip(loader, range(5)): model(batch).square().mean().backward(); optimizer.step()",
        *(15, None),
    ),
    "a loader that begins again for each batch": (
        f"epochs = 3\n{SGD}for epoch in range(epochs):\n"
        "    for _ in range(5): next(iter(loader)); loss().backward(); optimizer.step()",
        *(15, None),
    ),
    "epochs of several runs": (
        f"epochs = 3\n{SGD}for run in range(2):\n    for epoch in range(epochs):\n"
        "        for (batch,) in loader: model(batch).square().mean().backward(); optimizer.step()",
        *(60, None),
    ),
    "turns of six steps": (
        "two = [torch.optim.Adam(one.parameters()) for one in (model, other)]\n"
        "for _ in range(2):\n    for at in (0,) * 6 + (1,) * 6: loss([model, other][at]).backward(); two[at].step()",
        *(24, None),
    ),
    "epochs that a variable counts": (
        f"epochs, max_itrs, updates = 0, 25, 0\n{SGD}while updates < max_itrs:\n    epochs += 1\n"
        "    for (batch,) in loader: model(batch).square().mean().backward(); optimizer.step(); updates += 1",
        *(30, None),
    ),
    "a function that keeps its variables": (
        f"def main():\n    epochs = 3\n    kept = locals()\n    {SGD}    for epoch in range(epochs):\n"
        "        for (batch,) in loader: model(batch).square().mean().backward(); optimizer.step()\n"
        "    print(sorted(kept))\nmain()",
        *(30, None),
    ),
    "a state that a checkpoint makes": (
        "from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict\n"
        f"{SGD}get_optimizer_state_dict(model, optimizer)\nfor _ in range(3): loss().backward(); optimizer.step()",
        *(3, None),
    ),
    "a step that is compiled": (
        f"{SGD}loss().backward(); optimizer.step()\nstep = torch.compile(optimizer.step, backend='eager')\n"
        "for _ in range(3): step()\nprint([*torch._dynamo.utils.counters['graph_break']])",
        *(None, None),
    ),
    "no optimizer": ("loss().backward()", None, None),
}


def counted(program: str, tmp_path: Path) -> tuple[str, Look]:
    """Return what a program prints in rank 0, and what is known of its updates in the end."""
    (tmp_path / "notes").write_text("")
    ours = {"PYTHONPATH": str(HOOKS), "RANK": "0", "OMP_NUM_THREADS": "1", "TRAINJOB_STACKS": str(tmp_path / "notes")}
    with tempfile.TemporaryFile() as file:
        counts = Counts(file)
        environ = {**os.environ, **ours, **counts.environment()}
        (tmp_path / "program.py").write_text(program)
        printed = ran([PYTHON, str(tmp_path / "program.py")], environ=environ, code=0).stdout
        return printed, counts.look((tmp_path / "notes").read_text())


# Each in a fork of one process: most of what these programs take is the import of torch.
PLAIN = """\
import os, runpy, sys
import torch
for path in sys.argv[1:]:
    if not os.fork():
        sys.stdout = open(path + ".printed", "w")
        runpy.run_path(path, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    assert os.wait()[1] == 0, path
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each program prints where nothing of ours is."""
    folder = tmp_path_factory.mktemp("plain")
    files = {name: folder / f"{at}.py" for at, name in enumerate(PROGRAMS)}
    for name, file in files.items():
        file.write_text(BEGINS + PROGRAMS[name][0] + ENDS)
    ran([PYTHON, "-c", PLAIN, *map(str, files.values())], environ={**os.environ, "OMP_NUM_THREADS": "1"}, code=0)
    return {name: Path(f"{file}.printed").read_text() for name, file in files.items()}


# Their like is among the others.
LONGER = {
    "accumulation that leaves batches over",
    "a limit in an object of the program's own",
    "a fused optimizer that leaves them out",
    "two optimizers in turn",
    "another optimizer after the first",
    "two models, one after the other",
    "one that steps twice with the first",
    "a limit in a named tuple",
    "a loader that begins again for each batch",
    "turns of six steps",
    "epochs that a variable counts",
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.full if one in LONGER else ()) for one in PROGRAMS]
)
def test_updates_are_counted_and_the_program_is_the_same(name: str, plain: dict[str, str], tmp_path: Path) -> None:
    program, updates, total = PROGRAMS[name]
    printed, look = counted(BEGINS + program + ENDS, tmp_path)
    assert (look.counted.updates if look.counted else None) == updates
    assert (look.counted.total(look.counted.epochs) if look.counted else None) == total
    assert look.is_awaited == (name == "no optimizer")
    assert printed == plain[name]


def test_programs_that_follow_each_other_add_up_and_ranks_of_one_do_not(tmp_path: Path) -> None:
    steps = f"{BEGINS}{SGD}for _ in range(4): loss().backward(); optimizer.step()\n"
    twice = f"import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, '-c', {steps!r}], check=True)"
    assert counted(twice, tmp_path)[1].counted.updates == 8
    ready = tmp_path / "ready"
    ready.mkdir()
    meet = f"import os, pathlib, time\nready = pathlib.Path({str(ready)!r})\n(ready / str(os.getpid())).touch()\n"
    meet += "while len(list(ready.iterdir())) < 2: time.sleep(0.01)\n"
    side_by_side = (
        "import subprocess, sys\n"
        f"program = {steps!r}.replace('for _', {meet!r} + 'for _').replace('optimizer.step()', "
        "'optimizer.step(); time.sleep(0.3)')\n"
        "both = [subprocess.Popen([sys.executable, '-c', program]) for _ in range(2)]\n"
        "assert [one.wait() for one in both] == [0, 0]"
    )
    assert counted(side_by_side, tmp_path)[1].counted.updates == 4


@pytest.mark.parametrize(
    ("stated", "all_of_it"), [("epochs = 3", 30), ("epochs, max_steps = 9, 30", 30), ("epochs = 4", 40)]
)
def test_what_variables_state_is_all_that_is_made(stated: str, all_of_it: int, tmp_path: Path) -> None:
    loop = "for _ in range(3):\n    for (batch,) in loader: loss().backward(); optimizer.step()"
    known = counted(f"{BEGINS}{stated}\n{SGD}{loop}", tmp_path)[1].counted
    assert [made for made in (10, 20, 30, 40) if known.has_made(made)] == [all_of_it]


def test_the_state_that_an_optimizer_has_loaded_says_where_it_continues(tmp_path: Path) -> None:
    file = Path(tempfile.mkdtemp(dir=tmp_path)) / "state.pt"
    adam = f"{BEGINS}optimizer = torch.optim.AdamW(model.parameters())\n"
    steps = "for _ in range(4): loss().backward(); optimizer.step()\n"
    first = counted(f"{adam}{steps}torch.save(optimizer.state_dict(), {str(file)!r})", tmp_path)[1].counted
    second = counted(f"{adam}optimizer.load_state_dict(torch.load({str(file)!r}))\n{steps}", tmp_path)[1].counted
    assert [(one.began, one.updates) for one in (first, second)] == [(0, 4), (4, 4)]


def test_what_may_be_printed_by_an_evaluation_is_known_to_the_byte(tmp_path: Path) -> None:
    """Another loader, or eval(), begins it; the next update ends it. It is unknown of what goes through a pipe."""
    program = (
        f"{BEGINS}{SGD}held_out = DataLoader(data, batch_size=8)\nprint('before')\n"
        "for epoch in range(2):\n"
        "    for (batch,) in loader: model(batch).square().mean().backward(); optimizer.step(); print('train')\n"
        "    if epoch: model.eval(); print('eval')\n"
        "    for (batch,) in held_out: model(batch); print('eval')\n"
        "optimizer.step(); print('train')"
    )
    (tmp_path / "notes").write_text("")
    ours = {"PYTHONPATH": str(HOOKS), "RANK": "0", "OMP_NUM_THREADS": "1", "TRAINJOB_STACKS": str(tmp_path / "notes")}
    log = tmp_path / "log"
    with tempfile.TemporaryFile() as file, log.open("w") as stream:
        counts = Counts(file)
        environ = {**os.environ, **ours, **counts.environment(), "PYTHONUNBUFFERED": "1"}
        subprocess.run([PYTHON, "-c", program], env=environ, stdout=stream, stderr=stream, check=True)
        found = counts.look((tmp_path / "notes").read_text()).counted
    parts = [log.read_bytes()[begin:end].decode().split() for begin, end in found.asides]
    assert parts == [["before"], ["eval"] * 5, ["eval"] * 6]
    line = len("before\n")
    assert [found.may_be_of_evaluation((at, at + line - 1), 3) for at in (0, line)] == [True, False]
    assert counted(program, tmp_path)[1].counted.may_be_of_evaluation((7, 12), 3) is None


def test_updates_that_a_device_makes_are_not_awaited(tmp_path: Path) -> None:
    """PopTorch takes an optimizer of torch's, and calls no step of it: then all that is printed counts."""
    (tmp_path / "poptorch.py").write_text("")
    imported = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import poptorch\n"
    for before, is_awaited in (("", True), (imported, False)):
        look = counted(f"{before}{BEGINS}{SGD}", tmp_path)[1]
        assert (look.counted, look.is_awaited, look.has_optimizer) == (None, is_awaited, is_awaited)
