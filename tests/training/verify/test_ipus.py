"""IPU jobs proved and measured by the command line: verify, bench, and a Horovod hello under anybody's poprun line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.local_runs import Here
from tests.support.verdicts import verify

# Instances start one interpreter each with torch: slow beside other work.
pytestmark = pytest.mark.timeout(500)
SMALL = ("--cluster", "pod4", "--instances", "2", "--replicas", "4")

HELLO = """\
import horovod.torch as hvd, popdist, torch, sys
popdist.init()
hvd.init()
loss, accuracy = hvd.grouped_allreduce([torch.tensor([float(hvd.rank())]), torch.tensor(50.0)], op=hvd.Average)
sys.stdout.write(f"{hvd.rank()} of {hvd.size()}: {loss.item()} {accuracy.item()}\\n")
"""


def test_instances_and_replicas_train_as_one(here: Here) -> None:
    verdict = verify(here, *SMALL, "--updates", "4", "--accumulation", "2", "--device-iterations", "2", limit_s=400)
    assert (verdict["equal"], verdict["engine"], verdict["instances"]) == (True, "ipu", 2)
    assert [one["update"] for one in verdict["updates"]] == [2, 4]
    assert all(one["same_samples"] and one["parameters"] < 1e-6 for one in verdict["updates"])
    assert all(one["gradients"] is None for one in verdict["updates"])
    assert "an IPU shows no gradients" in verdict["null_because"]["gradients"]
    assert not verdict["kept"]
    assert not list((here.folder / "data" / "trainjob" / "experiments").iterdir())


@pytest.mark.full
def test_an_interrupted_run_ends_with_the_same_bits(here: Here) -> None:
    asked = ("--updates", "200", "--micro-batch", "4", "--device-iterations", "2", "--checkpoint-every", "20")
    verdict = verify(here, *SMALL, "--resume", "--interruptions", "1", *asked, limit_s=400)
    assert (verdict["equal"], verdict["bitwise"], verdict["engine"]) == (True, True, "ipu")
    assert [one["way"] for one in verdict["interruptions"]] == ["time-limit"]
    output = here.run("verify", *SMALL, "--resume", "--other-instances", "1", code=2).stderr
    assert "32 bits" in output


OWN = """\
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset


class Samples(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, number):
        return torch.arange(4.0) * (number % 7) / 10 - 0.3, number % 3


class Stream(IterableDataset):
    def __iter__(self):
        return (Samples()[number] for number in range(96))


class Mapped:
    samples = Samples

    def build_model(self):
        return nn.Linear(4, 3)

    def open_data(self, place):
        return self.samples(), None

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)


class Streamed(Mapped):
    samples = Stream
"""


# tests/training/train/test_ipu.py trains a data set of a user's own with the same weights.
@pytest.mark.parametrize("task", [pytest.param("Mapped", marks=pytest.mark.full), "Streamed"])
def test_a_data_set_of_ones_own_trains_as_one(here: Here, task: str) -> None:
    here.write("own.py", OWN)
    asked = ("--task", f"own:{task}", "--samples", "96", "--micro-batch", "4", "--device-iterations", "2")
    verdict = verify(here, *SMALL, *asked, "--updates", "4", "--workers", "1", limit_s=400)
    assert (verdict["equal"], verdict["stream"]) == (True, task == "Streamed")
    assert all(one["same_samples"] for one in verdict["updates"])


NOISY = """\
from torch import nn
from trainjob.train.tasks.digits_cnn import DigitsCnn


class Noisy(DigitsCnn):
    def build_model(self):
        return nn.Sequential(super().build_model(), nn.Dropout(0.5))
"""


def test_dropout_on_ipus_is_distinguished(here: Here) -> None:
    here.write("noisy.py", NOISY)
    asked = ("--task", "noisy:Noisy", "--data", "digits", "--samples", "1437", "--micro-batch", "4", "--updates", "2")
    verdict = verify(here, *SMALL, *asked, code=1, limit_s=400)
    assert [finding["code"] for finding in verdict["findings"]] == ["dropout-stream"]


def test_a_horovod_hello_runs_unchanged(here: Here) -> None:
    here.write("hello.py", HELLO)
    line = ("poprun", "--num-replicas", "8", "--num-instances", "4", "--ipus-per-replica", "2", "python", "hello.py")
    ended = here.run("rehearse", "--cluster", "pod16", "--", *line)
    # By what was said: mpirun may put what two instances say on one line.
    output = sorted(re.findall(r"\d of 4: [\d.]+ [\d.]+", ended.stdout))
    assert output == [f"{rank} of 4: 1.5 50.0" for rank in range(4)]


def test_a_pods_loaders_are_measured(here: Here, tmp_path: Path) -> None:
    asked = ("--accumulation", "2", "--device-iterations", "4", "--seconds", "0.2", "--loaders", "0")
    (row,) = here.json("bench", "loader", *SMALL, *asked, "-o", str(tmp_path / "figures.json"))
    assert (row["instances"], row["replicas"], row["steps"]) == (2, 4, 1437 // (4 * 2 * 4 * 4))
    assert row["samples_per_s"] > 0
    assert row["seconds_per_epoch"] > 0
    assert (tmp_path / "figures.json").exists()


@pytest.mark.full
@pytest.mark.parametrize(("samples", "micro_batch", "steps"), [(4_100, 16, [8, 1, 1, 1]), (50_000, 64, [24, 3, 3, 3])])
def test_the_lessons_four_steps_are_one_table(here: Here, samples: int, micro_batch: int, steps: list[int]) -> None:
    asked = ("--samples", str(samples), "--micro-batch", str(micro_batch))
    rows = here.json("bench", "scaling", "--lessons", *asked)
    reported = [(row["instances"], row["replicas"], row["workers"]) for row in rows]
    assert reported == [(1, 1, 0), (1, 8, 0), (1, 8, 4), (4, 8, 4)]
    assert [row["loader_steps"] for row in rows] == steps
    assert [row["lesson_seconds_per_epoch"] for row in rows] == [6, 6, 2.5, 1.6]
    for row in rows:
        trained = row["loader_steps"] * micro_batch * 8 * 4 * row["replicas"]
        assert row["samples_per_s"] * row["seconds_per_epoch"] == pytest.approx(trained)
