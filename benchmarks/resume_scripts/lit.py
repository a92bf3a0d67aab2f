"""A script with Lightning that resumes, or has the fault that `--fault` names."""

import argparse
import os
import signal
import time
from pathlib import Path

import lightning
import torch
from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="")
parser.add_argument("--right", default="")
parser.add_argument("--unseeded", action="store_true")
options = parser.parse_args()
fault = options.fault
is_sharded = fault == "rank-0-only"
SAMPLES, BATCH, EPOCHS = 96, 8, 4
run = Path(os.environ.get("TRAINJOB_RUN_DIR", "."))
if not options.unseeded:
    lightning.seed_everything(1)
generator = torch.Generator().manual_seed(3)
data = TensorDataset(
    torch.randn(SAMPLES, 16, generator=generator), torch.randint(0, 4, (SAMPLES,), generator=generator)
)


class Shuffled(Sampler):
    """Lightning continues with the batch after the last one, and the loader has to begin there."""

    def __init__(self):
        self.epoch = self.start = 0

    def set_epoch(self, epoch):
        self.epoch = max(0, epoch - first_epoch) if fault == "sampler-epoch" else epoch

    def __iter__(self):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(100 + self.epoch)).tolist()
        begin, self.start = self.start, 0
        return iter(order[begin * BATCH :])

    def __len__(self):
        return SAMPLES


first_epoch = 0
sampler = Shuffled()


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
        self.ema = nn.Linear(32, 4)

    def configure_model(self):
        if is_sharded:
            from torch.distributed.fsdp import fully_shard

            for module in (self.layers, self.ema):
                fully_shard(module)

    def training_step(self, batch, _index):
        x, y = batch
        return nn.functional.cross_entropy(self.layers(x), y)

    def optimizer_step(self, *words, **options):
        # Callbacks save before the module's own on_train_batch_end: the average must be up to date by then.
        super().optimizer_step(*words, **options)
        with torch.no_grad():
            for kept, weight in zip(self.ema.parameters(), self.layers[3].parameters(), strict=False):
                kept.lerp_(weight, 0.1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.layers.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, EPOCHS * SAMPLES // BATCH)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint):
        checkpoint["rng"] = torch.get_rng_state()
        checkpoint["batch"] = self.trainer.fit_loop.epoch_loop.batch_progress.current.ready % (SAMPLES // BATCH)

    def on_load_checkpoint(self, checkpoint):
        global first_epoch
        first_epoch = checkpoint["epoch"]
        self.rng = None if fault == "rng" else checkpoint["rng"]
        sampler.start = 0 if fault == "position" else checkpoint["batch"]
        if fault == "workers":  # they fetch before Lightning tells the sampler its epoch
            sampler.epoch = first_epoch
        if fault == "ema":
            for name, weight in self.state_dict().items():
                if name.startswith("ema"):
                    checkpoint["state_dict"][name] = weight.clone()
        if fault == "optimizer":
            for state in checkpoint["optimizer_states"]:
                state["state"] = {}
        if fault == "scheduler":
            for state in checkpoint["lr_schedulers"]:
                state.update(last_epoch=0, _step_count=1)
        if fault == "scaler":
            del checkpoint["MixedPrecision"]
        if fault == "step-counter":
            steps = checkpoint["loops"]["fit_loop"]["epoch_loop.automatic_optimization.optim_progress"]
            steps["optimizer"]["step"]["total"] = {"ready": 0, "completed": 0}

    def on_train_batch_start(self, *_):
        if getattr(self, "rng", None) is not None:
            torch.set_rng_state(self.rng)
            self.rng = None


class StopOnSignal(lightning.Callback):
    asked = False

    def on_fit_start(self, *_):
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self.ask)

    def ask(self, _number, _frame):
        self.asked = True

    def look(self, trainer):
        if trainer.strategy.reduce_boolean_decision(self.asked, all=False):
            trainer.save_checkpoint("checkpoints/last.ckpt")
            (run / "requeue").write_text(f"{trainer.global_step}\n")
            trainer.should_stop = True
            raise SystemExit(0)

    def on_train_batch_end(self, trainer, *_):
        time.sleep(0.01)
        if fault == "between-epochs":
            return
        # From the end of an epoch, Lightning has workers fetch that epoch once more, which would be a second fault.
        ends_epoch = fault == "workers" and trainer.is_last_batch
        if trainer.global_step % 4 == 0 and not ends_epoch:
            trainer.save_checkpoint("checkpoints/last.ckpt")
        # Some look every few updates only: in between, the loader has to live.
        if fault != "workers" or (trainer.global_step % 4 == 0 and not ends_epoch):
            self.look(trainer)

    def on_train_epoch_end(self, trainer, *_):
        if fault == "between-epochs":
            trainer.save_checkpoint("checkpoints/last.ckpt")
            self.look(trainer)


class Torn(TorchCheckpointIO):
    def save_checkpoint(self, checkpoint, path, storage_options=None):
        Path(path).parent.mkdir(exist_ok=True)
        torch.save(checkpoint, path)


class SavedOnRank0(ModelParallelStrategy):
    """Each rank has its part of the model, and saves and loads it as if it were all of it."""

    lightning_restore_optimizer = True

    def save_checkpoint(self, checkpoint, filepath, storage_options=None):
        if self.is_global_zero:
            self.checkpoint_io.save_checkpoint(checkpoint, filepath)

    def load_checkpoint(self, checkpoint_path, weights_only=None):
        return torch.load(checkpoint_path, weights_only=False)

    def lightning_module_state_dict(self):
        return self.model.state_dict()

    def load_model_state_dict(self, checkpoint, strict=True):
        self.model.load_state_dict(checkpoint["state_dict"])

    def optimizer_state(self, optimizer):
        return optimizer.state_dict()

    def load_optimizer_state_dict(self, checkpoint):
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            optimizer.load_state_dict(state)


last = Path("checkpoints/last.ckpt")
plugins = []
if fault == "torn":
    plugins.append(Torn())
if fault == "scaler":
    # precision="16-mixed" makes one on GPUs only.
    plugins.append(MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=7)))
# Each iterator of a loader draws a number: not from the generator that dropout draws from.
own = torch.Generator().manual_seed(5)
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=-1 if fault == "step-counter" else EPOCHS,
    max_steps=EPOCHS * SAMPLES // BATCH,
    devices=2 if is_sharded else 1,
    strategy=SavedOnRank0(data_parallel_size=2, tensor_parallel_size=1) if is_sharded else "auto",
    callbacks=[StopOnSignal()],
    plugins=plugins,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    use_distributed_sampler=False,
)
trainer.fit(
    Net(),
    DataLoader(data, BATCH, sampler=sampler, generator=own, num_workers=2 if fault == "workers" else 0),
    ckpt_path=str(last) if last.exists() else None,
    weights_only=False,
)
trainer.save_checkpoint("checkpoints/end.ckpt")
