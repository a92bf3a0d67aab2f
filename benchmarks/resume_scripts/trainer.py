"""A script with Hugging Face's Trainer that resumes, or has the fault that `--fault` names."""

import argparse
import json
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Sampler
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="")
parser.add_argument("--right", default="")
parser.add_argument("--unseeded", action="store_true")
options = parser.parse_args()
fault = options.fault
is_sharded = fault == "rank-0-only"
run = Path(os.environ.get("TRAINJOB_RUN_DIR", "."))
if not options.unseeded:
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


class Shuffled(Sampler):
    """Counts its own passes, from the first after each start."""

    epoch = 0

    def __iter__(self):
        self.epoch += 1
        return iter(torch.randperm(96, generator=torch.Generator().manual_seed(self.epoch)).tolist())

    def __len__(self):
        return 96


class Trained(Trainer):
    def _get_train_sampler(self, *words):
        return Shuffled() if fault == "sampler-epoch" else super()._get_train_sampler(*words)


class SavedOnRank0(Trainer):
    def _save_checkpoint(self, *_):
        weights, moments = self.model.state_dict(), self.optimizer.state_dict()
        if self.is_world_process_zero():
            target = Path(f"out/checkpoint-{self.state.global_step}")
            target.mkdir(parents=True)
            torch.save(
                {"model": weights, "optimizer": moments, "scheduler": self.lr_scheduler.state_dict()},
                target / "state.pt",
            )
            self.state.save_to_json(str(target / "trainer_state.json"))

    def _load_from_checkpoint(self, path, *_):
        self.model.load_state_dict(torch.load(f"{path}/state.pt", weights_only=False)["model"])

    def _load_optimizer_and_scheduler(self, path):
        if path is not None:
            state = torch.load(f"{path}/state.pt", weights_only=False)
            self.optimizer.load_state_dict(state["optimizer"])
            self.lr_scheduler.load_state_dict(state["scheduler"])


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
        # Some look every few updates only: in between, the loader has to live.
        if fault != "between-epochs" and not (fault == "workers" and state.global_step % 4):
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
    return fault == "torn" or (path / ("trainer_state.json" if is_sharded else "ema.pt")).exists()


found = [path for path in Path("out").glob("checkpoint-*") if whole(path)]
newest = max(found, key=lambda path: int(path.name.split("-")[1]), default=None)
model = Net()
average = Average(model)
if is_sharded:
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("gloo")
    fully_shard(model)
if newest is not None:
    if fault != "ema" and not is_sharded:
        average.weights = torch.load(newest / "ema.pt", weights_only=True)
    if fault == "rng":
        (newest / "rng_state.pth").unlink()
    if fault == "optimizer":
        (newest / "optimizer.pt").unlink()
    if fault == "scaler":
        (newest / "scaler.pt").unlink()
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
    dataloader_num_workers=2 if fault == "workers" else 0,
)
callbacks = [StopOnSignal()] if is_sharded else [average, StopOnSignal()]
trainer = (SavedOnRank0 if is_sharded else Trained)(model, arguments, train_dataset=data, callbacks=callbacks)
# Then Trainer neither wraps nor shards the model.
trainer.is_distributed_loading_by_transformers = is_sharded
if fault == "scaler":
    # fp16=True makes one on GPUs only.
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=7)
trainer.train(resume_from_checkpoint=None if newest is None else str(newest))
