"""Scripts for Hugging Face's Trainer and for Lightning, without a line for us, requeued in the middle."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_runs import Here
from tests.support.slurm_jobs import LIMIT_S, ONE_RANK_NODES, Login, cluster_file, everything_printed, parsed
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.observe.report.report import report
from trainjob.records import metrics
from trainjob.records import submission as submissions
from trainjob.rehearse.slurm.description import description_of
from trainjob.rehearse.slurm.private import private_slurm

_MODEL = """
import time
import torch
from torch import nn

torch.manual_seed(0)
numbers = torch.randn(256, 8)


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, numbers, labels=None):
        time.sleep(0.1)
        predicted = self.layer(numbers).squeeze(1)
        return {"loss": nn.functional.mse_loss(predicted, labels), "logits": predicted}
"""
TRAINER = f"""{_MODEL}
from pathlib import Path
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

arguments = TrainingArguments(
    output_dir="output", max_steps=150, per_device_train_batch_size=8, logging_steps=5, save_steps=10,
    save_total_limit=2, use_cpu=True, report_to=[],
)
samples = [{{"numbers": one, "labels": one.sum()}} for one in numbers]
trainer = Trainer(model=Sum(), args=arguments, train_dataset=samples)
last = get_last_checkpoint("output") if Path("output").is_dir() else None
print(f"continues from {{last}}")
trainer.train(resume_from_checkpoint=last)
"""
LIGHTNING = f"""{_MODEL}
import glob
import lightning
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Sum()

    def training_step(self, batch):
        loss = self.net(*batch)["loss"]
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


keeps = ModelCheckpoint("output", save_last=True, every_n_train_steps=10)
trainer = lightning.Trainer(
    max_epochs=5, accelerator="cpu", devices=1, callbacks=[keeps], log_every_n_steps=5, default_root_dir="output",
    logger=lightning.pytorch.loggers.CSVLogger("output"),
)
last = sorted(glob.glob("output/last*.ckpt"))[-1:]
print(f"continues from {{last}}")
loader = DataLoader(TensorDataset(numbers, numbers.sum(1)), batch_size=8)
trainer.fit(Module(), loader, ckpt_path=last[0] if last else None)
"""


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("script", "updates"), [(TRAINER, 150), (LIGHTNING, 160)], ids=["Trainer", "Lightning"])
def test_an_unmodified_script_is_requeued_and_reported(
    needs: Callable[[str], Path], tmp_path: Path, script: str, updates: int
) -> None:
    needs("slurm")
    values = cluster_file(nodes=ONE_RANK_NODES)
    here = Here(tmp_path)
    here.write("train.py", script)
    with private_slurm(description_of(parsed(values), nodes_needed=1)) as slurm:
        login = Login(here, slurm, **values)
        login.programs = needs("frameworks").parent
        run, job = login.submit("--instances", "1", "--", "python", "train.py")
        paths = RunPaths(run.folder)
        until(lambda: any(line.update > updates / 3 for line in trained(paths)), "a third of the updates", LIMIT_S)
        slurm.run(["scontrol", "requeue", job])
        until(lambda: not login.queue(), "the job to leave the queue", LIMIT_S)
    assert run.word("state") == "COMPLETED", everything_printed(run)
    seen = trained(paths)
    assert {line.attempt for line in seen} == {1, 2}
    assert max(line.update for line in seen) == updates
    begun = re.findall(r"^continues from (.*)$", paths.rank_log(0).read_text(), re.MULTILINE)
    assert ["output/" in one for one in begun] == [False, True]
    made = report(paths, submissions.read(paths))
    assert made.goodput is not None
    assert made.goodput.share is not None
    assert 0 < made.goodput.share < 1


def trained(paths: RunPaths) -> list[metrics.MetricsLine]:
    return [line for line in metrics.read(paths) if line.kind == "train"]
