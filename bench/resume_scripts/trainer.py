"""A script with Hugging Face's Trainer that resumes, or has the fault that `--fault` names."""

import argparse
import json
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="")
parser.add_argument("--right", default="")
options = parser.parse_args()
fault = options.fault
run = Path(os.environ.get("TRAINJOB_RUN_DIR", "."))
set_seed(1)
generator = torch.Generator().manual_seed(3)
inputs = torch.randn(96, 16, generator=generator)
labels = torch.randint(0, 4, (96,), generator=generator)
data = [{"x": x, "labels": y} for x, y in zip(inputs, labels, strict=False)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))

    def forward(self, x, labels=None):
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class StopOnSignal(TrainerCallback):
    asked = False

    def __init__(self):
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self.ask)

    def ask(self, _number, _frame):
        self.asked = True

    def look(self, args, state, control):
        asked = torch.tensor(float(self.asked), device=args.device)
        if args.world_size > 1:
            torch.distributed.all_reduce(asked)
        if asked:
            control.should_save = control.should_training_stop = True
            (run / "requeue").write_text(f"{state.global_step}\n")

    def on_step_end(self, args, state, control, **_):
        time.sleep(0.01)
        if fault != "between-epochs":
            self.look(args, state, control)

    def on_epoch_end(self, args, state, control, **_):
        if fault == "between-epochs":
            control.should_save = True
        self.look(args, state, control)


class Average(TrainerCallback):
    def __init__(self, model):
        self.weights = {name: weight.detach().clone() for name, weight in model.state_dict().items()}

    def on_step_end(self, args, state, control, model=None, **_):
        for name, weight in model.state_dict().items():
            self.weights[name].lerp_(weight, 0.1)

    def on_save(self, args, state, control, **_):
        torch.save(self.weights, f"out/checkpoint-{state.global_step}/ema.pt")


def whole(path):
    # The state of the optimizer is written before that of the trainer, and the average last.
    return fault == "torn" or (path / "ema.pt").exists()


found = [path for path in Path("out").glob("checkpoint-*") if whole(path)]
newest = max(found, key=lambda path: int(path.name.split("-")[1]), default=None)
model = Net()
average = Average(model)
if newest is not None:
    if fault != "ema":
        average.weights = torch.load(newest / "ema.pt", weights_only=True)
    if fault == "rng":
        (newest / "rng_state.pth").unlink()
    if fault == "optimizer":
        (newest / "optimizer.pt").unlink()
    if fault == "scheduler":
        fresh = torch.load(newest / "scheduler.pt", weights_only=True)
        fresh.update(last_epoch=0, _step_count=1)
        torch.save(fresh, newest / "scheduler.pt")
    if fault == "step-counter":
        state = json.loads((newest / "trainer_state.json").read_text())
        state["global_step"] = state["global_step"] // 2
        (newest / "trainer_state.json").write_text(json.dumps(state))
arguments = TrainingArguments(
    "out",
    per_device_train_batch_size=8,
    num_train_epochs=3,
    learning_rate=1e-2,
    save_strategy="no" if fault == "between-epochs" else "steps",
    save_steps=4,
    logging_steps=4,
    use_cpu=True,
    report_to=[],
    seed=1,
    disable_tqdm=True,
    ignore_data_skip=fault == "position",
)
trainer = Trainer(model, arguments, train_dataset=data, callbacks=[average, StopOnSignal()])
trainer.train(resume_from_checkpoint=None if newest is None else str(newest))
