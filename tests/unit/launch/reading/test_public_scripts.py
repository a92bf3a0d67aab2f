# ruff: noqa: E501 - lines as programs print them
"""Progress without configuration: little imitations of what public scripts print, most of them one per framework.

The shapes of the lines are facts about those programs; the words and numbers are ours.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import Clock
from trainjob.contract.paths import RunPaths
from trainjob.launch.reading import lines, recording
from trainjob.launch.reading.counts import Counted, Look
from trainjob.launch.reading.recording import ScriptProgress
from trainjob.records import metrics, progress

HEADER = "--- attempt 1 · rank 0 of 1 · host · 2026-11-23T00:00:00Z ---\n"


@dataclass
class Script:
    """A script: its command, what it prints between two looks, and what must be seen in the end."""

    name: str
    looks: list[str]
    update: int
    total: int | None = None
    loss: float | None = None
    epoch: int | None = None
    command: Sequence[str] = ("python", "train.py")


def bar(count: int, total: int, before: str = "", after: str = "", rate: str = "2.00it/s") -> str:
    percent = 100 * count // total
    return f"\r{before}{percent:3d}%|{'█' * (percent // 10):<10}| {count}/{total} [00:05<08:15,  {rate}{after}]"


def hugging_face() -> Script:
    looks = [bar(500, 500, "Map: ", rate="6000 examples/s"), bar(500, 500, rate="99.1it/s"), bar(0, 120)]
    for step in range(10, 121, 10):
        look = bar(step, 120)
        look += f"\n{{'loss': {3 - step / 100:.4f}, 'grad_norm': 1.5, 'learning_rate': 4e-05, 'epoch': {step / 40}}}\n"
        if step % 40 == 0:
            look += "".join(bar(count, 8, rate="30.1it/s") for count in (2, 5, 8)) + "\n"
            look += f"{{'eval_loss': {2.5 - step / 100:.4f}, 'eval_runtime': 0.5, 'epoch': {step / 40}}}\n"
        looks.append(look)
    looks.append("{'train_runtime': 60.1, 'train_samples_per_second': 16.0, 'train_loss': 2.4, 'epoch': 3.0}\n")
    return Script("transformers run_clm", looks, 120, 120, 1.8, 3)


def lightning() -> Script:
    looks = [bar(2, 2, "Sanity Checking DataLoader 0: ") + "\n"]
    for epoch in range(3):
        for step in (10, 20, 40):
            looks.append(bar(step, 40, f"Epoch {epoch}: ", f", v_num=0, train_loss={2 - epoch / 4:.3f}"))
        looks.append(bar(5, 5, "Validation DataLoader 0: ") + "\x1b[A")
        held_out = f", v_num=0, train_loss={2 - epoch / 4:.3f}, val_loss={2.5 - epoch / 4:.3f}"
        looks.append(bar(40, 40, f"Epoch {epoch}: ", held_out))
    return Script(*("Lightning with tqdm", looks, 120, 120, 1.5, 2), ["python", "fit.py", "--max_epochs", "3"])


def lightning_rich() -> Script:
    looks = [
        f"\x1b[2KEpoch {epoch}/2 ━━━━━━━━━━╺━━━ {step}/40 0:00:05 • 0:00:05 9.50it/s v_num: 0.000 train_loss: 1.500\n"
        for epoch in range(3)
        for step in (10, 20, 40)
    ]
    return Script("Lightning with Rich", looks, 120, 120, 1.5, epoch=3, command=["fit.py", "trainer.max_epochs=3"])


def keras(version: int) -> Script:
    looks = []
    for epoch in (1, 2):
        looks.append(f"Epoch {epoch}/2\n")
        for step in (1, 30, 60):
            looks.append(
                f"\r\x1b[1m{step:>2}/60\x1b[0m \x1b[32m━━━━━━━━\x1b[0m \x1b[1m5s\x1b[0m 50ms/step - accuracy: 0.9 - loss: 1.2"
                if version == 3
                else f"{step:>2}/60 [====>.........] - ETA: 5s - loss: 1.2000 - accuracy: 0.9000" + "\b" * 60
            )
        looks.append(" - val_accuracy: 0.8 - val_loss: 1.4\n")
    return Script(f"Keras {version}", looks, 120, 120, 1.2, 2)


def counted(name: str, form: str, steps: Sequence[int], looks: Sequence[str] = (), **expected: object) -> Script:
    """A script that prints one line in `form` at each of `steps`."""
    lines = [form.format(step=step, loss=f"{3 - step / 1000:.4f}") + "\n" for step in steps]
    facts = {"update": steps[-1], "loss": round(3 - steps[-1] / 1000, 4), **expected}
    return Script(name, [*looks, *lines], **facts)  # type: ignore[arg-type] # facts are the fields of a Script


def by_epoch(name: str, form: str, first: int, *, size: int = 100, after: str = "", **expected: object) -> Script:
    """A script that counts within each of two epochs."""
    looks = []
    for epoch in (first, first + 1):
        looks += [
            form.format(epoch=epoch, step=step, loss="1.5000") + "\n" for step in range(size // 5, size + 1, size // 5)
        ]
        looks.append(after + "\n")
    return Script(name, looks, **{"update": 2 * size, "loss": 1.5, "epoch": first + 1, **expected})  # type: ignore[arg-type]


STEPS = range(10, 201, 10)
SCRIPTS = [
    hugging_face(),
    lightning(),
    lightning_rich(),
    keras(2),
    keras(3),
    by_epoch("Epoch [1/2], Step [10/100]", "Epoch [{epoch}/2], Step [{step}/100], Loss: {loss}", 1, total=200),
    by_epoch("Composer", "[epoch={epoch}][batch={step}/100]:\n\t Train loss/train/total: {loss}", 1),
    counted(
        "nanoGPT",
        "iter {step}: loss {loss}, time 123.45ms, mfu 12.34%",
        STEPS,
        ["step 0: train loss 4.2, val loss 4.1\n"],
    ),
    counted(
        "nanochat",
        "step {step:05d}/00200 (5%) | loss: {loss} | lrm: 1.00 | dt: 91ms | tok/sec: 574,321",
        STEPS,
        total=200,
    ),
    counted(
        "Megatron-LM",
        " [2026-01-01 00:00:00] iteration {step:8d}/     200 | consumed samples: 2560 | learning rate: 1.5E-06 | lm loss: {loss} | loss scale: 1.0 |",
        STEPS,
        total=200,
    ),
    counted(
        "torchtitan",
        "[titan] 2026-01-01 00:00:00,000 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: {loss}  \x1b[36mtps: 1,234\x1b[39m",
        STEPS,
    ),
    counted(
        "fairseq",
        '2026-01-01 | INFO | train_inner | {{"epoch": 1, "update": 0.5, "loss": "{loss}", "num_updates": "{step}", "lr": "1e-05"}}',
        STEPS,
    ),
    counted(
        "DeepSpeed",
        "[2026-01-01 00:00:00,000] [INFO] [timer.py:260:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec=99.1\nloss: {loss}",
        STEPS,
    ),
    counted(
        "detectron2",
        "[01/01 00:00:00 d2.utils.events]:  eta: 0:10:00  iter: {step}  total_loss: {loss}  loss_cls: 0.5  lr: 0.0004  max_mem: 1000M",
        STEPS,
    ),
    counted(
        "OpenNMT",
        "[2026-01-01 00:00:00,000 INFO] Step {step}/  200; acc: 5.0; ppl: 1000; xent: {loss}; lr: 0.00001; 1000/1000 tok/s;     10 sec;",
        STEPS,
        total=200,
        loss=None,
    ),
    counted(
        "JSON lines",
        '{{"current_steps": {step}, "total_steps": 200, "loss": {loss}, "lr": 5e-05, "epoch": 0.1}}',
        STEPS,
        total=200,
    ),
    counted(
        "MaxText",
        "completed step: {step}, seconds: 1.234, Tokens/s/device: 1234.5, total_weights: 8192, loss: {loss}",
        STEPS,
    ),
    counted(
        "JAX with clu", "I0101 00:00:00.000000 123 logging_writer.py:48] [{step}] accuracy=0.9, loss={loss}", STEPS
    ),
    counted("XGBoost", "[{step}]\ttrain-logloss:{loss}\teval-logloss:0.6", STEPS, loss=None),
    Script(
        "bars of epochs and batches",
        [bar(0, 2, "Epochs: ")]
        + [
            bar(step, 100, "Training: ", ", loss=1.5") + (("\n" + bar(epoch + 1, 2, "Epochs: ")) if step == 100 else "")
            for epoch in range(2)
            for step in (0, 20, 60, 100)
        ],
        *(200, 200, 1.5),
    ),
    Script(
        "bar without a total", [f"\rTraining: {step}it [00:05, 20.1it/s, loss=1.5]" for step in STEPS], 200, None, 1.5
    ),
    Script("Stable-Baselines3", [f"|    total_timesteps      | {2048 * n:<11} |\n" for n in range(1, 9)], 16384),
]


# Batches, samples or something else: only a count of updates beside them says which.
UNNAMED = [
    by_epoch(
        "pytorch/examples mnist",
        "Train Epoch: {epoch} [{step}/600 (50%)]\tLoss: {loss}",
        1,
        after="\nTest set: Average loss: 0.0512, Accuracy: 9832/10000 (98%)\n",
        size=600,
        command=["python", "main.py", "--epochs=2"],
    ),
    by_epoch(
        "pytorch/examples imagenet",
        "Epoch: [{epoch}][{step:4d}/100]\tTime  0.5 ( 0.6)\tLoss {loss} (1.6)",
        0,
        after="Test: [ 50/100]\tLoss 6.8 (6.8)\tAcc@1   0.78 (  0.30)\n * Acc@1 71.3 Acc@5 90.1",
        command=["main.py", "--epochs", "2"],
    ),
    by_epoch("torchvision", "Epoch: [{epoch}]  [{step:3d}/100]  eta: 0:10:00  lr: 0.1  img/s: 300.0  loss: {loss}", 0),
    by_epoch(
        "timm",
        "Train: {epoch} [{step:4d}/100 ( 50%)]  Loss: {loss} (1.6)  Time: 0.5s, 512.0/s  LR: 1.0e-05",
        0,
    ),
    by_epoch(
        "MMEngine", "2026/01/01 - mmengine - INFO - Epoch(train)  [{epoch}][{step:3d}/100]  lr: 0.1  loss: {loss}", 1
    ),
    by_epoch(
        "word language model", "| epoch {epoch:3d} | {step:5d}/  100 batches | lr 20.00 | loss {loss} | ppl 9.1", 1
    ),
    by_epoch("CatBoost", "{step}:\tlearn: {loss}\ttest: 0.55\tbest: 0.55 ({step})\ttotal: 1.2s", 0, epoch=None),
]


def run(script: Script, paths: RunPaths, clock: Clock) -> None:
    """Show a script's output to what reads it, a look every second."""
    paths.logs.mkdir()
    log = paths.rank_log(0)
    log.write_text(HEADER)
    seen = ScriptProgress(paths, 1, [log], script.command)
    for text in script.looks:
        clock.now += 1
        with log.open("a") as stream:
            stream.write(text)
        seen.look()
    seen.look(is_last=True)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_progress_is_seen_without_configuration(script: Script, tmp_path: Path, clock: Clock) -> None:
    paths = RunPaths(tmp_path)
    run(script, paths, clock)
    record, lines = progress.read(paths), list(metrics.read(paths))
    assert (record.update, record.total_updates, record.epoch) == (script.update, script.total, script.epoch)
    train = [line for line in lines if line.kind == "train"]
    updates = [line.update for line in train]
    assert updates == sorted(set(updates))
    assert updates[-1] == script.update
    if script.loss is not None:
        assert train[-1].loss == pytest.approx(script.loss)
    assert {(line.loss, line.accuracy) for line in lines if line.kind == "evaluation"} <= {(None, None)}


@pytest.mark.parametrize("script", UNNAMED, ids=lambda script: script.name)
def test_a_count_without_a_name_shows_no_update(script: Script, tmp_path: Path, clock: Clock) -> None:
    run(script, RunPaths(tmp_path), clock)
    record = progress.read(RunPaths(tmp_path))
    assert (record.update, record.total_updates, record.epoch) == (None, None, script.epoch)


def test_hostile_text_is_no_progress_and_takes_no_time(tmp_path: Path, clock: Clock) -> None:
    """Megabytes in one line, brackets without an end, numbers that no float holds, and control characters."""
    lines = [
        "[" * 100_000,
        "step " * 50_000,
        "a b c d " * 20_000 + ": 1",
        "1" * 100_000 + "/" + "2" * 100_000,
        "|" * 5_000 + "%|" * 5_000,
        "step " + "9" * 400 + " loss 1",
        "step 5 loss nan",
        "step 5 loss 1e999",
        "\x1b]0;title\x07\x1b[2J\x00\xff step",
        "━" * 5_000,
        "Epoch: " * 500,
        '{"step": ' + '{"a": ' * 20_000,
    ]
    run(Script("hostile", [line + "\n" for line in lines], 0), RunPaths(tmp_path), clock)
    record = progress.read(RunPaths(tmp_path))
    assert record.update in (None, 5)
    assert [line for line in metrics.read(RunPaths(tmp_path)) if line.loss is not None] == []


def test_an_expression_of_the_job_is_all_that_counts(tmp_path: Path, clock: Clock) -> None:
    paths = RunPaths(tmp_path)
    paths.logs.mkdir()
    paths.rank_log(0).write_text(
        HEADER + "step 999/1000 loss 9.9\nat=10 of 50 cost 2.5\nTest:\nat=20 of 50 cost 2.25\n"
    )
    pattern = r"at=(?P<update>\d+) of (?P<total>\d+) cost (?P<loss>[\d.]+)"
    ScriptProgress(paths, 1, [paths.rank_log(0)], pattern=pattern).look(is_last=True)
    assert (progress.read(paths).update, progress.read(paths).total_updates) == (20, 50)


def test_a_second_attempt_begins_where_its_bar_jumps_to(tmp_path: Path, clock: Clock) -> None:
    paths = RunPaths(tmp_path)
    paths.logs.mkdir()
    progress.write(paths, progress.ProgressRecord(attempt=1, update=64, total_updates=100))
    paths.rank_log(0).write_text(HEADER + bar(64, 100) + "\n" + HEADER.replace("attempt 1", "attempt 2"))
    seen = ScriptProgress(paths, 2, [paths.rank_log(0)])
    for step in (0, 61, 62, 63, 80, 100):
        clock.now += 1
        with paths.rank_log(0).open("a") as stream:
            stream.write(bar(step, 100))
        seen.look()
    seen.look(is_last=True)
    begin, *train = metrics.read(paths)
    assert (begin.kind, begin.attempt, begin.update) == ("begin", 2, 61)
    assert [line.update for line in train] == [62, 63, 80, 100]
    assert progress.read(paths).began_at == 61


def test_a_stale_attempt_writes_nothing(tmp_path: Path, clock: Clock) -> None:
    paths = RunPaths(tmp_path)
    paths.logs.mkdir()
    paths.attempt.write_text("2\n")
    paths.rank_log(0).write_text(HEADER + "step 10/100 loss 2.5\n")
    ScriptProgress(paths, 1, [paths.rank_log(0)]).look(is_last=True)
    assert not paths.progress.exists()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("python train.py --epochs 5", (5, None)),
        ("python train.py --num_train_epochs=3 --max_steps 100", (3, 100)),
        ("accelerate launch train.py --max-train-steps 100", (None, 100)),
        ("python train.py trainer.max_epochs=7", (7, None)),
        ("python train.py --logging_steps 10 --save_epochs 2 --epochs five", (None, None)),
    ],
)
def test_what_a_command_states_about_its_length(words: str, found: tuple[int | None, int | None]) -> None:
    assert recording.stated(words.split()) == found


def test_a_silent_script_is_read_by_the_files_that_it_writes(tmp_path: Path, clock: Clock) -> None:
    paths, out = RunPaths(tmp_path / "run"), tmp_path / "project" / "out"
    paths.logs.mkdir(parents=True)
    paths.rank_log(0).write_text(HEADER + "loading\n")
    command = ["python", "train.py", "--output_dir", "out"]
    seen = ScriptProgress(paths, 1, [paths.rank_log(0)], command, folder=tmp_path / "project")
    for step in (10, 20, 30, 40):
        clock.now += 20
        folder = out / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        log = [{"step": one, "loss": 3 - one / 10, "epoch": one / 20} for one in range(10, step + 1, 10)]
        log += [{"step": 20, "eval_loss": 2.5, "epoch": 1.0}] * (step >= 20)
        state = {"global_step": step, "max_steps": 40, "epoch": step / 20, "log_history": log}
        (folder / "trainer_state.json").write_text(json.dumps(state))
        os.utime(folder / "trainer_state.json", (clock.now, clock.now))
        seen.look()
    seen.look(is_last=True)
    lines = list(metrics.read(paths))
    assert (progress.read(paths).update, progress.read(paths).total_updates) == (40, 40)
    assert lines[-1].loss == -1.0
    assert progress.read(paths).printed[0] == "trainer_state.json: step 20, eval_loss 2.5, epoch 1"


def test_a_bar_that_is_drawn_once_in_the_end_completes_what_a_file_has_reported(tmp_path: Path, clock: Clock) -> None:
    """Lightning without a terminal: Rich draws its bar in the end, and the logger has written a CSV file before."""
    paths, out = RunPaths(tmp_path / "run"), tmp_path / "project" / "lightning_logs"
    paths.logs.mkdir(parents=True)
    out.mkdir(parents=True)
    paths.rank_log(0).write_text(HEADER + "loading\n")
    seen = ScriptProgress(paths, 1, [paths.rank_log(0)], folder=tmp_path / "project")
    (out / "metrics.csv").write_text("epoch,step,train_loss\n" + "".join(f"0,{step},2.5\n" for step in (9, 19, 29)))
    os.utime(out / "metrics.csv", (clock.now + 20, clock.now + 20))
    clock.now += 30
    seen.look()
    with paths.rank_log(0).open("a") as log:
        log.write("Epoch 2/2 ━━━━━━━━━━━━━━ 20/20 0:00:02 • 0:00:00 32.44it/s v_num: 0.000     \n")
    clock.now += 30
    seen.look(is_last=True)
    assert (progress.read(paths).update, progress.read(paths).total_updates) == (60, 60)
    assert [line.update for line in metrics.read(paths) if line.kind == "train"] == [9, 19, 29, 60]


def test_a_checkpoint_is_seen_by_its_file(tmp_path: Path, clock: Clock) -> None:
    paths, project = RunPaths(tmp_path / "run"), tmp_path / "project"
    paths.logs.mkdir(parents=True)
    project.mkdir()
    paths.rank_log(0).write_text(HEADER)
    seen = ScriptProgress(paths, 1, [paths.rank_log(0)], folder=project)
    durable = []
    for step in range(10, 60, 10):
        clock.now += 20
        with paths.rank_log(0).open("a") as log:
            log.write(f"step {step}/50 loss 2.5\n")
        if step == 20:
            (project / "model.pt").write_text("")
            os.utime(project / "model.pt", (clock.now - 5, clock.now - 5))
        seen.look()
        durable.append(progress.read(paths).durable_update)
    seen.look(is_last=True)
    assert durable == [None, 20, 20, 20, 20]


def test_a_checkpoint_is_seen_where_no_update_can_be_read(tmp_path: Path, clock: Clock) -> None:
    paths, project = RunPaths(tmp_path / "run"), tmp_path / "project"
    paths.logs.mkdir(parents=True)
    project.mkdir()
    (project / "model.pt").write_text("")
    os.utime(project / "model.pt", (clock.now - 5, clock.now - 5))
    seen = ScriptProgress(paths, 1, [paths.rank_log(0)], folder=project)
    clock.now += 20
    seen.look()
    assert not paths.progress.exists(), "it was there before"
    os.utime(project / "model.pt", (clock.now - 5, clock.now - 5))
    clock.now += 20
    seen.look()
    record = progress.read(paths)
    assert (record.attempt, record.checkpoint_at, record.update, record.heartbeat) == (1, clock.now - 25, None, None)


@pytest.mark.parametrize(("written_s", "is_known"), [(-5, False), (5, True)])
@pytest.mark.parametrize("node_s", [-60, 60])
def test_whose_checkpoint_it_is_tells_the_clock_of_the_file_system_alone(
    node_s: int, written_s: int, is_known: bool, tmp_path: Path, clock: Clock
) -> None:
    paths, project = RunPaths(tmp_path / "run"), tmp_path / "project"
    paths.logs.mkdir(parents=True)
    project.mkdir()
    paths.attempt.write_text("2\n")
    began = clock.now - node_s
    os.utime(paths.attempt, (began, began))
    seen = ScriptProgress(paths, 2, [paths.rank_log(0)], folder=project)
    (project / "model.pt").write_text("")
    os.utime(project / "model.pt", (began + written_s, began + written_s))
    seen.look(is_last=True)
    assert (progress.read(paths).checkpoint_at is not None) is is_known
    paths.rank_log(0).write_text(HEADER + "step 10/50 loss 2.5\n")
    os.utime(project / "model.pt", (began - 5, began - 5))
    seen.look()
    seen.look(is_last=True)
    assert progress.read(paths).durable_update is None


def test_an_unread_checkpoint_of_a_run_that_could_be_read_before_does_not_replace_its_progress(
    tmp_path: Path, clock: Clock
) -> None:
    paths, project = RunPaths(tmp_path / "run"), tmp_path / "project"
    paths.logs.mkdir(parents=True)
    project.mkdir()
    earlier = progress.ProgressRecord(attempt=1, update=61, durable_update=60)
    progress.write(paths, earlier)
    seen = ScriptProgress(paths, 2, [paths.rank_log(0)], folder=project)
    clock.now += 20
    (project / "model.pt").write_text("")
    os.utime(project / "model.pt", (clock.now - 5, clock.now - 5))
    seen.look(is_last=True)
    assert progress.read(paths) == earlier


# --- Beside updates that are counted.


def beside_counted(
    paths: RunPaths, clock: Clock, looks: Sequence[tuple[int, str]], command: Sequence[str] = (), **facts: Any
) -> list[tuple[int | None, int | None]]:
    """Show a script's output beside the updates that it had made at each look; return update and total of each look."""
    paths.logs.mkdir(exist_ok=True)
    log, attempt, state = paths.rank_log(0), facts.pop("attempt", 1), facts.pop("state", None)
    awaited = facts.pop("awaited", Look(is_awaited=True))
    with log.open("a") as stream:
        stream.write(HEADER.replace("attempt 1", f"attempt {attempt}"))
    made, began = 0, clock.now

    def counts() -> Look:
        return Look(Counted(made, began, clock.now, state, **facts)) if made else awaited

    seen = ScriptProgress(paths, attempt, [log], command, counts=counts)
    shown = []
    for made, text in looks:  # noqa: B007 - `counts` reads it
        clock.now += 1
        with log.open("a") as stream:
            stream.write(text)
        seen.look()
        shown.append((progress.read(paths).update, progress.read(paths).total_updates))
    seen.look(is_last=True)
    return [*shown, (progress.read(paths).update, progress.read(paths).total_updates)]


def test_a_count_that_moves_as_the_updates_do_gives_their_total(tmp_path: Path, clock: Clock) -> None:
    looks = [(made, f"step {made}/50 loss {3 - made / 50:.4f}\n") for made in range(10, 51, 10)]
    shown = beside_counted(RunPaths(tmp_path), clock, looks, loops=1)
    assert [update for update, _ in shown] == [10, 20, 30, 40, 50, 50]
    assert {total for _, total in shown} == {None, 50}
    assert shown[-1][1] == 50
    sources = progress.read(RunPaths(tmp_path)).sources
    assert sources["update"] == "counted at Optimizer.step"
    assert sources["total_updates"] == sources["loss"] == "printed: step #/# loss #"


def test_a_total_that_a_smaller_number_among_the_variables_may_cut_is_unknown(tmp_path: Path, clock: Clock) -> None:
    looks = [(made, f"iter = {made}/300, loss = {3 - made / 50:.4f}\n") for made in range(10, 121, 10)]
    for cut, totals in ((None, {None, 300}), (300, {None, 300}), (120, {None})):
        paths = RunPaths(tmp_path / str(cut))
        paths.folder.mkdir()
        assert {total for _, total in beside_counted(paths, clock, looks, cut=cut, loops=1)} == totals


def test_a_bar_is_of_all_epochs_if_a_variable_states_its_total(tmp_path: Path, clock: Clock) -> None:
    looks = [(made, bar(made, 300)) for made in range(10, 121, 10)]
    for steps, totals in ((None, {None}), (300, {None, 300}), (200, {None})):
        paths = RunPaths(tmp_path / str(steps))
        paths.folder.mkdir()
        assert {total for _, total in beside_counted(paths, clock, looks, epochs=3, steps=steps)} == totals


@pytest.mark.parametrize(
    ("facts", "is_shown"),
    [
        ({"loops": 1}, True),
        ({"loops": 2}, False),  # it may begin again
        ({"loops": 2, "per_pass": 40}, True),  # it is none of a pass
        ({"loops": 2, "per_pass": 300}, False),
        ({"loops": 0, "per_pass": 40}, True),
        ({"loops": 0}, False),
        ({"loops": 9, "per_pass": 40}, False),
        ({"loops": 9, "steps": 300}, True),  # as a variable of its own says
    ],
)
def test_a_printed_total_is_shown_if_it_is_that_of_all_loops(
    facts: dict[str, Any], is_shown: bool, tmp_path: Path, clock: Clock
) -> None:
    looks = [(made, f"step {made}/300 loss 2.5\n") for made in range(10, 121, 10)]
    shown = beside_counted(RunPaths(tmp_path), clock, looks, **facts)
    assert {total for _, total in shown} == ({None, 300} if is_shown else {None})


def test_a_loss_behind_a_bar_that_ends_no_line_may_be_of_an_evaluation(tmp_path: Path, clock: Clock) -> None:
    text = bar(40, 120) + "epoch 0: {'precision': 0.31, 'loss': 0.32}\n"
    begin = len(HEADER.encode()) + len(bar(40, 120).encode())
    for name, asides, shown in (("evaluates", ((begin, -1),), set()), ("trains", (), {0.32})):
        paths = RunPaths(tmp_path / name)
        paths.folder.mkdir()
        beside_counted(paths, clock, [(41, text), (50, "x\n")], asides=asides)
        assert {line.loss for line in metrics.read(paths)} - {None} == shown


def test_a_bar_of_each_epoch_gives_no_total(tmp_path: Path, clock: Clock) -> None:
    """In the first epoch its count moves as the updates do: the length of the loader says that it is of one pass."""
    looks = [(made, bar(made % 40 or 40, 40) + "\n" * (made % 40 == 0)) for made in range(5, 81, 5)]
    assert {total for _, total in beside_counted(RunPaths(tmp_path), clock, looks, per_pass=40)} == {None}
    (tmp_path / "stated").mkdir()
    shown = beside_counted(
        RunPaths(tmp_path / "stated"), clock, looks, ["train.py", "--epochs", "2"], per_pass=40, loops=2
    )
    assert {total for _, total in shown} == {80}


def test_samples_epochs_and_bars_of_something_else_are_no_updates(tmp_path: Path, clock: Clock) -> None:
    samples = [(10 * n, f"Train Epoch: 1 [{320 * n}/6400 (5%)]\tLoss: 2.5\n") for n in range(1, 8)]
    assert {total for _, total in beside_counted(RunPaths(tmp_path), clock, samples)} == {None}
    assert "32 times as fast" in progress.read(RunPaths(tmp_path)).sources["total_updates"]
    others = [(10 * n, f"| end of epoch {n} | time: 5.2s | valid loss 5.91\n" + bar(n, 16) + "\n") for n in range(1, 8)]
    (tmp_path / "other").mkdir()
    shown = beside_counted(RunPaths(tmp_path / "other"), clock, others)
    assert shown == [(update, None) for update in (*range(10, 71, 10), 70)]


def test_a_count_that_stands_still_is_none_of_updates(tmp_path: Path, clock: Clock) -> None:
    """A bar of samples without its description yet, at the begin of each epoch."""
    looks = [
        (made, (bar(0, 640) if made in (1, 41) else bar(made * 16, 640, "epoch: ")) + "\n")
        for made in (1, 20, 39, 41, 50)
    ]
    assert {total for _, total in beside_counted(RunPaths(tmp_path), clock, looks)} == {None}


def test_bars_before_the_first_optimizer_show_nothing(tmp_path: Path, clock: Clock) -> None:
    looks = [(0, bar(0, 16, "Map: ")), (0, bar(8, 16)), (0, bar(16, 16) + "\n"), (5, "loss 2.5\n"), (9, "loss 2.25\n")]
    shown = beside_counted(RunPaths(tmp_path), clock, looks)
    assert [update for update, _ in shown] == [None, None, None, 5, 9, 9]
    assert [line.loss for line in metrics.read(RunPaths(tmp_path)) if line.kind == "train"] == [None, 2.5, 2.25]


@pytest.mark.parametrize(
    ("facts", "command", "total"),
    [
        ({"per_pass": 10, "epochs": 3}, [], None),  # nothing but a variable says it
        ({"per_pass": 10, "epochs": 2, "loops": 9}, [], 20),  # nor did anything end it earlier
        ({"epochs": 3, "steps": 20, "cut": 20}, [], 20),
        ({"epochs": 3, "steps": 21, "cut": 21}, [], None),
        ({"per_pass": 10}, ["train.py", "--epochs", "3"], 30),
        ({"per_pass": 10, "epochs": 3}, ["train.py", "--epochs", "3"], 30),
        ({"per_pass": 10, "epochs": 4}, ["train.py", "--epochs", "3"], None),
        ({"per_pass": 10, "loops": 9}, ["train.py", "--epochs", "3"], None),  # a loop of something else, or one may end
        ({"per_pass": 10, "loops": 0}, ["train.py", "--epochs", "3"], None),  # those of a library
        ({"per_pass": 10}, ["train.py"], None),
        ({"epochs": 3}, ["train.py", "--epochs", "3"], None),
        ({"per_pass": 10, "cut": 20}, ["train.py", "--epochs", "3"], None),
        ({"per_pass": 10, "cut": 30}, ["train.py", "--epochs", "3"], 30),
        ({"per_pass": 5}, ["train.py", "--epochs", "3"], None),  # more have been made
        # Which of them is not known.
        ({"per_pass": 10}, ["train.py", "--epochs", "3", "--max_steps", "25"], None),
    ],
)
def test_a_loader_and_epochs_give_a_total_that_nobody_prints(
    facts: dict[str, Any], command: list[str], total: int | None, tmp_path: Path, clock: Clock
) -> None:
    looks = [(made, "") for made in range(4, 21, 4)]
    shown = beside_counted(RunPaths(tmp_path), clock, looks, command, **{"loops": 2, **facts})
    assert shown[-1] == (20, total)
    assert command or shown[-2][1] is None


@pytest.mark.parametrize(
    ("state", "durable", "printed", "began"),
    [(64, None, False, 64), (None, 60, True, 60), (None, None, True, 60), (None, 60, False, None)],
    ids=["the optimizer's state", "a checkpoint and a count", "a count", "nothing says it"],
)
def test_a_second_attempt_continues_where_something_says_that_it_does(
    state: int | None, durable: int | None, printed: bool, began: int | None, tmp_path: Path, clock: Clock
) -> None:
    paths = RunPaths(tmp_path)
    earlier = progress.ProgressRecord(attempt=1, update=61, total_updates=100, began_at=0, durable_update=durable)
    progress.write(paths, earlier)
    looks = [(made, f"step {60 + made}/100 loss 2.5\n" if printed else "loss 2.5\n") for made in range(1, 7)]
    beside_counted(paths, clock, looks, attempt=2, state=state)
    record = progress.read(paths)
    if began is None:
        assert record == earlier
    else:
        assert (record.began_at, record.update, record.total_updates) == (began, began + 6, 100)


def test_losses_are_the_last_ones_printed_and_those_of_evaluations_have_their_own_lines(
    tmp_path: Path, clock: Clock
) -> None:
    looks = [
        (10, "loss: 2.5\nloss: 2.25\n"),
        (20, "loss: 2.0 (2.2)\nTest Error: \n Accuracy: 50.0%, Avg loss: 1.5\n"),
        (30, "Train loss 30 1.75 Grad Norm 2.0\n * Acc@1 60.0 loss 1.25\n"),
        (40, "Loss_D: 0.5 Loss_G: 1.5\n"),
    ]
    beside_counted(RunPaths(tmp_path), clock, looks)
    lines = list(metrics.read(RunPaths(tmp_path)))
    assert [line.loss for line in lines if line.kind == "train"] == [None, 2.25, 2.2, None]
    assert {(line.loss, line.accuracy) for line in lines if line.kind == "evaluation"} <= {(None, None)}
    quoted = ["Test Error: Accuracy: 50.0%, Avg loss: 1.5", "* Acc@1 60.0 loss 1.25", "Loss_D: 0.5 Loss_G: 1.5"]
    assert progress.read(RunPaths(tmp_path)).printed == quoted


def test_the_time_of_each_evaluation_is_told_that_behind_the_last_update_too(tmp_path: Path, clock: Clock) -> None:
    tested = "Test set: Average loss: 1.5, Accuracy: 50/100\n"
    looks = [(10, "loss: 2.5\n"), (10, tested), (20, "loss: 2.25\n"), (20, tested)]
    beside_counted(RunPaths(tmp_path), clock, looks)
    lines = [line for line in metrics.read(RunPaths(tmp_path)) if line.kind == "evaluation"]
    assert [(line.update, line.seconds) for line in lines] == [(20, 1.0), (20, 1.0)]


def test_micro_batches_before_the_first_update_are_no_updates(tmp_path: Path, clock: Clock) -> None:
    looks = [(0, bar(1, 40, "Train epoch 0: ", ", loss=2.5")), (0, bar(3, 40, "Train epoch 0: ", ", loss=2.5"))]
    looks += [(made, bar(4 * made, 40, "Train epoch 0: ", ", loss=2.0")) for made in range(1, 5)]
    shown = beside_counted(RunPaths(tmp_path), clock, looks, awaited=Look(is_awaited=True, has_optimizer=True))
    assert shown == [*[(None, None)] * 2, *[(made, None) for made in (1, 2, 3, 4, 4)]]
    # Those of a program that has no optimizer of torch's may be.
    (tmp_path / "by hand").mkdir()
    assert beside_counted(RunPaths(tmp_path / "by hand"), clock, looks[:2])[-1] == (3, None)


def test_each_line_whose_count_is_of_updates_is_a_record_of_its_own(tmp_path: Path, clock: Clock) -> None:
    looks = [
        (20 * n, "".join(f"step {at}/100 loss {3 - at / 100:.2f}\n" for at in range(20 * n - 15, 20 * n, 5)))
        for n in range(1, 6)
    ]
    beside_counted(RunPaths(tmp_path), clock, looks)
    lines = [line for line in metrics.read(RunPaths(tmp_path)) if line.kind == "train"]
    assert [line.update for line in lines if line.loss is not None][-6:] == [65, 70, 75, 85, 90, 95]
    assert all(line.loss == pytest.approx(3 - line.update / 100) for line in lines[-7:-1])
    assert all(line.seconds > 0 for line in lines[-6:])


def test_a_loss_that_may_be_of_an_evaluation_is_not_shown(tmp_path: Path, clock: Clock) -> None:
    """The hook tells between which bytes of the log it may have evaluated; of many between two looks, the last ones."""
    train, unnamed = "Epoch[{0}](5/10): Loss: 2.{0}\n", "Epoch[{0}](2/2): Loss: 9.{0}\n"
    looks, asides, size = [], [], len(HEADER.encode())
    for n in range(1, 7):
        size += len(train.format(n))
        asides.append((size, size + len(unnamed.format(n))))
        size = asides[-1][1]
        looks.append((10 * n, train.format(n) + unnamed.format(n)))
    for name, shown, kept in (("each", looks, 6), ("at once", [(60, "".join(text for _, text in looks))], 3)):
        paths = RunPaths(tmp_path / name)
        paths.logs.mkdir(parents=True)
        beside_counted(paths, clock, shown, asides=tuple(asides[-kept:]), asides_before=6 - kept)
        assert {line.loss for line in metrics.read(paths)} - {None} == (
            {2.1, 2.2, 2.3, 2.4, 2.5, 2.6} if kept == 6 else {2.6}
        )
    (tmp_path / "piped").mkdir()
    beside_counted(RunPaths(tmp_path / "piped"), clock, looks, asides=((-1, -1),))
    assert {line.loss for line in metrics.read(RunPaths(tmp_path / "piped"))} == {None}


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("Training: 2026-11-27 14:00:00,123-[lfw][40]Loss-Flip: 0.38750+-0.01200\n", None),
        ("11/27/2026 14:00:00 - INFO - trainer -   loss = 1.105\n", None),
        ("INFO - train - loss = 1.105\n", None),
        ("- Train metrics: accuracy: 0.3875 ; loss: 1.105\n", None),
        ("train_loss: 0.3875\n", 0.3875),
        ("LOSS train 1.105 ACC train 0.3875\n", 1.105),
        ("loss: 1.105 val_loss: 0.9\n", 1.105),
        ("loss: 1.105\n", None),
    ],
)
def test_where_a_program_may_evaluate_a_loss_is_shown_if_a_word_beside_it_says_that_it_is_of_the_training(
    line: str, loss: float | None, tmp_path: Path, clock: Clock
) -> None:
    """What a logger puts before each line does not name a figure."""
    looks = [(10 * n, line) for n in range(1, 5)]
    beside_counted(RunPaths(tmp_path), clock, looks, asides=((len(HEADER), -1),))
    shown = [line for line in metrics.read(RunPaths(tmp_path)) if line.update > 1 and line.kind == "train"]
    assert {line.loss for line in shown} == {loss}


@pytest.mark.parametrize(
    ("form", "is_shown"),
    [
        ("INFO Epoch {0}: loss 2.5\n", True),  # from 1
        ("INFO Epoch {1}: loss 2.5\n", True),  # from 0
        ("loss 2.5\n", True),
        ("INFO Epoch {0}: loss 2.5\nStop training because you reached max_epochs = 4 with best_epoch = 2\n", True),
        ("epoch {2}: loss 2.5\n", False),  # of each fold
        ("epoch 40: loss 2.5\n", False),
    ],
)
def test_the_epoch_is_the_pass_over_the_loader_unless_another_is_printed(
    form: str, is_shown: bool, tmp_path: Path, clock: Clock
) -> None:
    looks = [(10 * n, form.format(n, n - 1, 1 + (n - 1) % 3)) for n in range(1, 7)]
    beside_counted(RunPaths(tmp_path), clock, looks, per_pass=10)
    record = progress.read(RunPaths(tmp_path))
    assert record.epoch == (6 if is_shown else None)
    assert record.sources.get("epoch") == ("updates, by those of a pass over the loader" if is_shown else None)
    assert {line.epoch for line in metrics.read(RunPaths(tmp_path)) if line.update > 50} == {record.epoch}


def test_an_epoch_that_is_printed_beside_counted_updates_is_not_shown_without_a_loader(
    tmp_path: Path, clock: Clock
) -> None:
    beside_counted(RunPaths(tmp_path), clock, [(10 * n, f"Epoch {n}: loss 2.5\n") for n in range(1, 5)])
    assert progress.read(RunPaths(tmp_path)).epoch is None


def test_the_newest_lines_that_name_figures_are_quoted(tmp_path: Path, clock: Clock) -> None:
    """One of each wording, three at most, without bars and what a terminal acts on."""
    looks = [
        (10, "\x1b[31mEpoch 1\x1b[0m acc: 0.25\nsaving\n"),
        (20, "Epoch 2 acc: 0.5\nppl: 9\n" + bar(20, 40, "Test: ", ", val_acc=0.6")),
        (30, bar(40, 40, "Test: ", ", val_acc=0.7") + "\nEpoch 3 acc: 0.75\nf1 = 0.5\n"),
    ]
    beside_counted(RunPaths(tmp_path), clock, looks)
    assert progress.read(RunPaths(tmp_path)).printed == [
        "Test: 100%|| 40/40 [00:05<08:15, 2.00it/s, val_acc=0.7]",
        "Epoch 3 acc: 0.75",
        "f1 = 0.5",
    ]


def test_a_bar_that_names_an_accuracy_of_tests_behind_the_loss_counts_updates(tmp_path: Path, clock: Clock) -> None:
    log, paths = RunPaths(tmp_path).rank_log(0), RunPaths(tmp_path)
    log.parent.mkdir(parents=True)
    log.write_text(HEADER)
    seen, evaluated = ScriptProgress(paths, 1, [log]), bar(7, 10, "test loss: 0.5 accuracy: 91%: ")
    for at in (0, 20, 40, 60):
        clock.now += 1
        with log.open("a") as stream:
            accuracy = "91.90" if at >= 40 else "  nan"
            stream.write(bar(at, 60, f"loss:   1.09 test_accuracy: {accuracy}%: ") + "\n" + evaluated + "\n")
        seen.look()
    seen.look(is_last=True)
    assert (progress.read(paths).update, progress.read(paths).total_updates) == (60, 60)
    assert {line.loss for line in metrics.read(paths) if line.kind == "train"} == {1.09}
    assert "test_accuracy: 91.90%" in progress.read(paths).printed[0]


def test_a_count_that_begins_again_goes_on_from_the_phase_before(tmp_path: Path, clock: Clock) -> None:
    log, paths = RunPaths(tmp_path).rank_log(0), RunPaths(tmp_path)
    log.parent.mkdir(parents=True)
    log.write_text(HEADER)
    seen, shown = ScriptProgress(paths, 1, [log]), []
    for at in (0, 20, 40, 59, 0, 20, 40, 59):
        clock.now += 1
        with log.open("a") as stream:
            stream.write(f"Step: {at}, Loss: 1.5, Computation time: 0.02\n")
        seen.look()
        shown.append(progress.read(paths).update)
    seen.look(is_last=True)
    assert shown == [0, 20, 40, 59, 60, 80, 100, 119]


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': '2.5', 'grad_norm': '1.5', 'learning_rate': '4e-05', 'epoch': '0.25'}\n",
        "[1,  2000] loss: 2.5\n",
        "[train_no_dev] Loss: 2.5\n",
        bar(5, 20, "1|5|Loss: 2.5: ") + "\n",
        bar(5, 20, "", ", loss (batch)=2.5") + "\n",
        "INFO: 1epoch:train:1-10batch: iter_time=1.2e-04, loss_ctc=30.1, loss=2.5, acc=0.5, train_time=1.2\n",
        "84: 2.5299\n",
        "error: 0.86\n",
    ],
)
def test_lines_without_a_count_give_their_loss_or_none(line: str, tmp_path: Path, clock: Clock) -> None:
    shown = beside_counted(RunPaths(tmp_path), clock, [(10 * n, line) for n in range(1, 5)])
    assert [update for update, _ in shown] == [10, 20, 30, 40, 40]
    losses = {line.loss for line in metrics.read(RunPaths(tmp_path)) if line.kind == "train" and line.update > 1}
    assert losses == ({2.5} if "oss" in line else {None})


def test_a_part_of_the_loss_alone_is_not_the_loss(tmp_path: Path, clock: Clock) -> None:
    table = "| entropy_loss | -0.686 |\n| loss | 2.5 |\n| policy_gradient_loss | -0.02 |\n| value_loss | 52.4 |\ntrain_loss_std: 0.03\n"
    beside_counted(RunPaths(tmp_path), clock, [(10 * n, table) for n in range(1, 5)])
    assert {line.loss for line in metrics.read(RunPaths(tmp_path)) if line.kind == "train"} <= {None, 2.5}


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        ("[Epoch 1] total_loss = 1.1 ---- val_forecast_loss = 0.3, val_total_loss = 1.0", {"loss": 1.1}),
        ("Epoch: 0, Validation Loss: 1.2, Validation Regression Loss 0.4", {}),
        ("epoch 1 train_loss: 1.1 val_nll: 1.3 train_acc: 0.5 lr: 0.1", {"loss": 1.1}),
    ],
)
def test_of_a_line_only_the_loss_of_the_training_is_interpreted(line: str, figures: dict[str, float]) -> None:
    reading = lines.read(line)
    assert reading is not None
    assert (reading.figures, reading.is_telling) == (figures, True)


def test_losses_of_several_names_on_lines_of_their_own_are_parts(tmp_path: Path, clock: Clock) -> None:
    parts = "(Steps: {0}) train/mel_loss = 1.{0}.\n(Steps: {0}) train/stft_loss = 0.{0}.\n"
    whole = parts + "(Steps: {0}) train/total_loss = 2.{0}.\n"
    for name, text, losses in (("parts", parts, set()), ("whole", whole, {2.1, 2.2, 2.3, 2.4})):
        paths = RunPaths(tmp_path / name)
        paths.logs.mkdir(parents=True)
        beside_counted(paths, clock, [(10 * n, text.format(n)) for n in range(1, 5)])
        train = [line for line in metrics.read(paths) if line.kind == "train"]
        assert {line.loss for line in train} - {None} <= losses
        assert bool(losses) == any(line.loss for line in train)
        assert [line.update for line in train] == [1, 10, 20, 30, 40]


def test_a_program_that_prints_its_epochs_alone_shows_them(tmp_path: Path, clock: Clock) -> None:
    """As JAX's examples do; where torch's optimizer is still awaited, an epoch of something else may be meant."""
    for name, counts, shown in (("jax", Look(), 3), ("torch", Look(is_awaited=True), None)):
        paths = RunPaths(tmp_path / name)
        paths.logs.mkdir(parents=True)
        log = paths.rank_log(0)
        log.write_text(HEADER)
        seen = ScriptProgress(paths, 1, [log], counts=partial(Look, *counts))
        for epoch in range(4):
            clock.now += 1
            with log.open("a") as stream:
                stream.write(f"Epoch {epoch} in 0.80 sec\nTraining set accuracy 0.91\nTest set accuracy 0.89\n")
            seen.look()
        seen.look(is_last=True)
        record = progress.read(paths)
        assert (record.epoch, record.update, record.total_updates) == (shown, None, None)
        assert record.sources == ({} if shown is None else {"epoch": "printed: Epoch # in # sec"})
        assert not list(metrics.read(paths))
