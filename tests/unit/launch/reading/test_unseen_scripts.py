# ruff: noqa: E501 - lines as programs print them
"""Nineteen public frameworks whose output was written down before anything was run on it.

Two print bare tables, and five print counts without a name, which are not read. The shapes of
the lines are facts about those programs; the words and numbers are ours.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clock import Clock
from tests.unit.launch.reading.test_public_scripts import Script, bar, run
from trainjob.contract.paths import RunPaths
from trainjob.launch.reading.recording import ScriptProgress
from trainjob.records import metrics, progress

STEPS = range(10, 101, 10)


def lines(form: str) -> list[str]:
    return [form.format(step=step, loss=f"{3 - step / 100:.4f}") + "\n" for step in STEPS]


def epochs(form: str, first: int = 0) -> list[str]:
    return [form.format(epoch=epoch, step=step, loss="2.0000") + "\n" for epoch in (first, first + 1) for step in STEPS]


def scripts() -> Iterator[Script]:
    """Yield name, output and the update that must be seen in the end."""
    yield Script(
        "OpenCLIP",
        epochs(
            "2026-01-01,00:00:00 | INFO | Train Epoch: {epoch} [{step:>3}/100 (50%)] Data (t): 0.100 Batch (t): 0.500, 640/s, 640/s/gpu LR: 0.000010 Logit Scale: 14.286 Contrastive_loss: {loss} ({loss}) Loss: {loss} ({loss})"
        ),
        200,
        loss=2.0,
    )
    yield Script("diffusers", [bar(step, 100, "Steps: ", ", lr=1e-5, step_loss=0.2") for step in STEPS], 100, loss=0.2)
    yield Script(
        "AllenNLP", [bar(step, 100, "accuracy: 0.5000, loss: 0.6932 ||: ") for step in STEPS], 100, loss=0.6932
    )
    yield Script(
        "flair",
        epochs(
            "2026-01-01 00:00:00,000 epoch {epoch} - iter {step}/100 - loss {loss} - time (sec): 1.20 - samples/sec: 123.4 - lr: 0.100000",
            first=1,
        ),
        200,
        loss=2.0,
    )
    yield Script(
        "spaCy",
        [
            "E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  SCORE \n---  ------  ------------  --------  ------  ------\n",
            *lines("  0     {step:>4}          0.00    {loss}   67.80    0.68"),
        ],
        100,
    )
    yield Script(
        "PaddleDetection",
        epochs(
            "[01/01 00:00:00] ppdet.engine INFO: Epoch: [{epoch}] [{step:>3}/100] learning_rate: 0.000100 loss: {loss} eta: 0:10:00 batch_cost: 0.5 data_cost: 0.1 ips: 12.3 images/s"
        ),
        200,
        loss=2.0,
    )
    yield Script(
        "GluonCV",
        epochs("INFO:root:Epoch[{epoch}] Batch [{step}]\tSpeed: 1234.5 samples/sec\taccuracy=0.120000\tlr=0.100000"),
        200,
    )
    yield Script(
        "LightGBM",
        lines("[{step}]\ttraining's binary_logloss: {loss}\tvalid_1's binary_logloss: 0.6"),
        100,
    )
    yield Script(
        "CatBoost",
        lines("{step}:\tlearn: {loss}\ttest: 0.5500123\tbest: 0.5500123 ({step})\ttotal: 1.2s\tremaining: 10s"),
        100,
    )
    yield Script("CleanRL", lines("global_step={step}, episodic_return=[23.]"), 100)
    yield Script(
        "Tianshou",
        [bar(step, 100, f"Epoch #{epoch}: ", ", env_step=10, len=20, loss=0.5") for epoch in (1, 2) for step in STEPS],
        200,
        loss=0.5,
    )
    yield Script(
        "fastai",
        [
            "epoch     train_loss  valid_loss  accuracy  time    \n",
            *(f"{epoch}         0.512345    0.412345    0.912345  00:12     \n" for epoch in range(5)),
        ],
        5,
    )
    yield Script(
        "DINOv2",
        lines(
            "I20260101 00:00:00 1 dinov2 helpers.py:103] Training  [{step:>4}/100]  eta: 1 day, 0:00:00  lr: 0.0000 (0.0000)  total_loss: {loss} (2.5)  time: 0.500000  data: 0.010000  max mem: 1000"
        ),
        100,
        loss=2.5,
    )
    yield Script(
        "VISSL",
        lines(
            "INFO 2026-01-01 00:00:00,000 log_hooks.py: 277: Rank: 0; [ep: 0] iter: {step}; lr: 0.1; loss: {loss}; btime(ms): 300; eta: 1:00:00; peak_mem(M): 3000"
        ),
        100,
        loss=2.0,
    )
    yield Script(
        "DeepLearningExamples",
        lines(
            "DLL 2026-01-01 00:00:00.000000 - Training Epoch: 0 Training Iteration: {step}  step_loss : {loss}  learning_rate : 0.0001 "
        ),
        100,
        loss=2.0,
    )
    yield Script(
        "TensorFlow's Estimator", lines("INFO:tensorflow:loss = {loss}, step = {step} (1.234 sec)"), 100, loss=2.0
    )
    yield Script(
        "TensorFlow Model Garden",
        [
            line.replace("<", "{").replace(">", "}")
            for line in lines(
                "train | step: {step:>6} | steps/sec:   12.3 | output: \n    <'learning_rate': 0.1, 'training_loss': {loss}>"
            )
        ],
        100,
        loss=2.0,
    )
    yield Script(
        "OLMo",
        lines(
            "[2026-01-01 00:00:00] INFO     [olmo.train:816, rank=0] [step={step}/100,epoch=0]\n    optim/total_grad_norm=1.2\n    train/CrossEntropyLoss={loss}\n    throughput/total_tokens=81,920"
        ),
        100,
    )
    yield Script(
        "icefall",
        epochs(
            "2026-01-01 00:00:00,000 INFO [train.py:903] (0/4) Epoch {epoch}, batch {step}, loss[loss={loss}, simple_loss=2.1, over 6000.00 frames. ], tot_loss[loss=2.5, over 100.00 frames. ], batch size: 30, lr: 3.00e-03",
            first=1,
        ),
        200,
        loss=2.0,
    )


SCRIPTS = list(scripts())


# The last ones have counts without a name, which are updates only if they move as counted ones do.
UNREAD = ("spaCy", "fastai", "OpenCLIP", "PaddleDetection", "GluonCV", "CatBoost", "DINOv2")


@pytest.mark.parametrize("script", [one for one in SCRIPTS if one.name not in UNREAD], ids=lambda script: script.name)
def test_progress_is_seen(script: Script, tmp_path: Path, clock: Clock) -> None:
    paths = RunPaths(tmp_path)
    run(script, paths, clock)
    train = [line for line in metrics.read(paths) if line.kind == "train"]
    assert progress.read(paths).update == script.update
    assert train[-1].update == script.update
    if script.loss is not None:
        assert train[-1].loss == pytest.approx(script.loss)


@pytest.mark.parametrize("script", [one for one in SCRIPTS if one.name in UNREAD], ids=lambda script: script.name)
def test_a_bare_table_or_count_shows_no_update_rather_than_a_wrong_one(
    script: Script, tmp_path: Path, clock: Clock
) -> None:
    run(script, RunPaths(tmp_path), clock)
    assert progress.read(RunPaths(tmp_path)).update is None


def event(at: float, step: int, loss: float) -> bytes:
    """Return a record of a TensorBoard event file: time, step, and one scalar."""
    value = b"\x0a\x0atrain/loss" + b"\x15" + struct.pack("<f", loss)
    summary = b"\x0a" + bytes([len(value)]) + value
    content = b"\x09" + struct.pack("<d", at) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary
    return struct.pack("<Q", len(content)) + bytes(4) + content + bytes(4)


def test_a_silent_script_is_followed_by_its_tensorboard_file(tmp_path: Path, clock: Clock) -> None:
    """The file grows; each look shows what was added, and a record that is half written waits for its rest."""
    paths, logs = RunPaths(tmp_path / "run"), tmp_path / "project" / "runs" / "one"
    paths.logs.mkdir(parents=True)
    logs.mkdir(parents=True)
    paths.rank_log(0).write_text("--- attempt 1 · rank 0 of 1 · host · 2026-11-23T00:00:00Z ---\nloading\n")
    seen = ScriptProgress(paths, 1, [paths.rank_log(0)], folder=tmp_path / "project")
    shown = []
    for step in (10, 20, 30, 40):
        clock.now += 15
        record = event(clock.now, step, 3 - step / 100)
        with (logs / "events.out.tfevents.1.host").open("ab") as stream:
            stream.write(record[: len(record) - (5 if step == 30 else 0)])
        os.utime(logs / "events.out.tfevents.1.host", (clock.now, clock.now))
        seen.look()
        shown.append(progress.read(paths).update)
        if step == 30:
            with (logs / "events.out.tfevents.1.host").open("ab") as stream:
                stream.write(record[-5:])
    seen.look(is_last=True)
    assert shown == [10, 20, 20, 40]
    train = [line for line in metrics.read(paths) if line.kind == "train"]
    assert [line.update for line in train] == [10, 20, 30, 40]
    assert train[-1].loss == pytest.approx(2.6)
