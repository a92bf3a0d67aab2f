"""The parts of a real start add up to its whole, as other files of the run tell it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from tests.support.local_runs import Here, Run

SCRIPT = """\
import time
time.sleep(2)
for step in range(1, 31):
    print(f"step {step}/30 loss {1 / step}", flush=True)
    if step == 1:
        open("first", "w").write(str(time.time()))
    time.sleep(0.3)
"""


def whole_s(run: Run, first_update_at: float) -> float:
    submitted_at = json.loads(run.word("submission.json"))["submitted_at"]
    return first_update_at - datetime.fromisoformat(submitted_at).timestamp()


def parts(run: Run) -> dict[str, Any]:
    (one,) = run.here.json("report", str(run.folder))["startups"]
    return dict(one["parts"])


def test_the_start_of_a_task(here: Here) -> None:
    run = here.at(here.json("submit", "--cluster", "local", "--instances", "2", "--updates", "5", "--follow")["folder"])
    shown, first = parts(run), json.loads(run.word("progress.json"))["timed_since"]
    assert 0.95 * whole_s(run, first) <= sum(shown.values()) <= 1.02 * whole_s(run, first)
    assert {"queue", "environment", "imports", "rendezvous", "data", "model", "first update"} <= set(shown)


def test_the_start_of_a_command(here: Here) -> None:
    here.write("train.py", SCRIPT)
    run = here.follow("python", "train.py", flags=("--instances", "1"))
    first = float((run.folder / "code/project/first").read_text())
    shown = parts(run)
    # The script is looked at once a second.
    assert 0.95 * whole_s(run, first) <= sum(shown.values()) <= whole_s(run, first) + 2.5
    assert 1.9 <= shown["script until its first update"] <= 6


MEETS = """\
import slow_to_import, torch, torch.distributed as dist, time
dist.init_process_group("gloo")
time.sleep(1)
for step in range(1, 21):
    print(f"step {step}/20 loss {1 / step}", flush=True)
    if step == 1 and dist.get_rank() == 0:
        open("first", "w").write(str(time.time()))
    time.sleep(0.3)
dist.destroy_process_group()
"""


def test_the_imports_and_the_rendezvous_of_a_command(here: Here) -> None:
    here.write("train.py", MEETS)
    # Longer than the second between two looks, which may come to the part behind.
    here.write("slow_to_import.py", "import time\ntime.sleep(3)\n")
    run = here.follow("python", "train.py", flags=("--instances", "2"))
    first = float((run.folder / "code/project/first").read_text())
    shown = parts(run)
    assert 0.95 * whole_s(run, first) <= sum(shown.values()) <= whole_s(run, first) + 2.5
    assert list(shown)[-3:] == ["imports", "rendezvous", "script until its first update"]
    assert shown["imports"] > 2
    assert 1 <= shown["script until its first update"] <= 0.7 * whole_s(run, first)


COMPILES = """\
import time
import torch
from torch.utils.data import DataLoader

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        time.sleep(0.3 if index < 4 else 0.02)
        return torch.ones(8)

net = torch.nn.Linear(8, 1)
forward = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
time.sleep(1)
for step, batch in enumerate(DataLoader(Slow(), batch_size=4, num_workers=WORKERS), 1):
    loss = forward(batch).mean()
    loss.backward()
    optimizer.step()
    print(f"step {step}/16 loss {loss.item()}", flush=True)
    if step == 1:
        open("first", "w").write(str(time.time()))
    time.sleep(0.3)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_the_data_and_the_compilation_of_a_command(here: Here, workers: int) -> None:
    here.write("train.py", COMPILES.replace("WORKERS", str(workers)))
    run = here.follow("python", "train.py", flags=("--instances", "1"))
    first = float((run.folder / "code/project/first").read_text())
    shown = parts(run)
    assert 0.95 * whole_s(run, first) <= sum(shown.values()) <= whole_s(run, first) + 2.5
    assert list(shown)[-5:] == ["imports", "script", "data", "compile", "first update"]
    assert 1.2 <= shown["data"] <= 5
    assert shown["script"] >= 1
    assert shown["compile"] > 0.1


READS_ON = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

loader = DataLoader(torch.ones(4, 1), batch_size=2)
for epoch in range(6):
    assert len(list(loader)) == 2
print([hasattr(one, "__wrapped__") for one in (DataLoader.__iter__, _BaseDataLoaderIter.__next__)])
"""


def test_functions_that_were_timed_are_themselves_again(here: Here) -> None:
    here.write("train.py", READS_ON)
    run = here.follow("python", "train.py", flags=("--instances", "1"))
    assert "[False, False]" in run.log(0)
