"""What goes wrong while a task trains, through the command that users give: each says what, and keeps what was good."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.local_runs import Here, Run
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(400)
_LIMIT_S = 180.0

TASK = """\
import os
import torch
from torch import nn
from torch.utils.data import TensorDataset


class Mine:
    outputs, samples, nan_at = 2, 64, 0
    calls = 0

    def build_model(self):
        return nn.Linear(4, self.outputs)

    def open_data(self, place):
        rows = torch.ones(self.samples, 4)
        return TensorDataset(rows, torch.zeros(self.samples, dtype=torch.long))

    def loss(self, outputs, targets):
        self.calls += 1
        loss = nn.functional.cross_entropy(outputs, targets)
        return loss * float("nan") if self.nan_at and self.calls > self.nan_at else loss

    def metrics(self, outputs, targets):
        return {}


class NotANumber(Mine):
    nan_at = 30


class Flat(Mine):
    def build_model(self):
        return nn.Sequential(nn.Linear(4, 2), nn.Flatten(0))


class Disagreeing(Mine):
    samples = 64 + 8 * int(os.environ.get("RANK", 0))
"""


def failed(here: Here, task: str, *words: str) -> tuple[Run, str]:
    """Return a run of two instances that has failed, and what the status shows of it."""
    here.write("mine.py", TASK)
    asked = ("--task", f"mine:{task}", "--micro-batch", "4", "--instances", "2", "--updates", "60")
    run = here.at(here.json("submit", "--again", "--follow", *asked, *words, code=1)["folder"])
    assert run.word("state") == "FAILED"
    assert not run.processes()
    return run, here.run("status", run.id).stdout


def test_a_loss_that_is_no_number_stops_at_the_update_and_keeps_the_last_good_checkpoint(here: Here) -> None:
    run, shown = failed(here, "NotANumber", "--checkpoint-every", "10")
    assert "is nan: the last good checkpoint is" in shown
    kept = sorted(folder.name for folder in (run.folder / "checkpoints").glob("update-*"))
    assert kept
    assert all(name <= "update-00000030" for name in kept)
    assert "Traceback" not in shown
    assert f"checkpoint is {run.folder}/checkpoints/{kept[-1]}" in shown
    cause = run.status()["cause"]
    assert (cause["code"], cause["resume"]) == ("not-finite", False)


def test_a_loss_that_is_no_number_names_no_checkpoint_where_there_is_none_and_next_is_no_resume(here: Here) -> None:
    here.write("mine.py", TASK)
    asked = ("--task", "mine:NotANumber", "--micro-batch", "4", "--updates", "60", "--checkpoint-every", "0")
    shown = here.run("submit", "--follow", *asked, code=1).stdout
    assert "there is no checkpoint yet" in shown
    assert "next: " in shown
    assert "trainjob resume" not in shown


def test_damaged_checkpoints_are_reported_and_the_run_starts_over_only_on_request(here: Here) -> None:
    run, _ = failed(here, "NotANumber", "--checkpoint-every", "10")
    for weights in (run.folder / "checkpoints").glob("update-*/model.safetensors"):
        weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    refused = here.run("resume", run.id, code=1).stderr
    assert "No checkpoint of this run is sound. Restore one from a backup, or start over" in refused
    assert "model.safetensors has sha256" in refused
    assert run.status()["attempt"] == 1
    here.run("resume", run.id, "--from-scratch", "--follow", code=1)
    assert run.status()["attempt"] == 2
    assert "from the beginning to update 60" in run.log(0).split("--- attempt 2")[1]


def test_a_forward_of_the_wrong_shape_is_shown_with_both_shapes(here: Here) -> None:
    _, shown = failed(here, "Flat")
    assert "outputs: (8,) float32" in shown
    assert "targets: (4,) int64" in shown


def test_instances_that_disagree_about_the_data_are_refused(here: Here) -> None:
    _, shown = failed(here, "Disagreeing")
    assert "rank 1 has other training data than rank 0" in shown


@pytest.fixture
def small_disk(tmp_path: Path, needs: Callable[[str], Path]) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run([needs("mount"), "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk], check=True)
    yield disk
    # The run may still be there after a failed test.
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_is_said_aloud_and_training_goes_on_from_the_old_checkpoint(here: Here, small_disk: Path) -> None:
    here.cluster("small", f"runs_dir: {small_disk}/runs\n")
    asked = ("--updates", "1000000", "--checkpoint-every", "200", "--keep-checkpoints", "1", "--log-every", "100000")
    run = here.at(here.json("submit", "--again", "-c", "small", *asked)["folder"])
    until(lambda: checkpoints(run), "a checkpoint", _LIMIT_S)
    filler = small_disk / "filler"
    fill(filler, small_disk)
    until(lambda: "NOT written" in run.log(0), "a loud error", _LIMIT_S)
    kept = checkpoints(run)
    assert len(kept) == 1
    _, _, saved = kept[0].rpartition("-")
    until(lambda: run.status()["trouble"], "the status says it", _LIMIT_S)
    shown = here.run("status", run.id).stdout
    assert "No space left on device" in shown
    assert f"updates since the last durable checkpoint (of update {int(saved)})" in shown
    assert "No space left on device" in run.log(0)
    assert "Training continues, and the previous checkpoint is still there" in run.log(0)
    with filler.open("ab", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(b"\0" * 4096)
    last = run.status()["heartbeat"]
    until(lambda: run.status()["heartbeat"] > last, "a sign of life on a disk without room", _LIMIT_S)
    filler.unlink()
    until(lambda: checkpoints(run) and checkpoints(run) > kept, "a newer checkpoint", _LIMIT_S)
    until(lambda: run.status()["trouble"] is None, "the status is relieved", _LIMIT_S)
    here.run("cancel", run.id)
    assert not run.processes()


def checkpoints(run: Run) -> list[str]:
    return sorted(folder.name for folder in (run.folder / "checkpoints").glob("update-*"))


def fill(filler: Path, disk: Path) -> None:
    """Leave room for a log line, and none for a checkpoint."""
    free = os.statvfs(disk)
    filler.write_bytes(b"\0" * max(0, free.f_bavail * free.f_frsize - 200_000))
