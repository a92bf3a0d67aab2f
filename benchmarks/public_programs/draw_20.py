"""Twelve programs of libraries themselves, in the Python of TRAINJOB_FRAMEWORKS_VENV: loops and lines are theirs."""

from __future__ import annotations

import math
import tempfile
import time
from typing import Any

import torch
import torch.nn.functional as F
from account import shown, truth
from toy import PAUSE_S, backward, net, random_batch, run, samples
from tqdm import tqdm


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: Any, labels: Any) -> Any:
        out = self.net(x)
        return {"loss": F.cross_entropy(out, labels), "logits": out}


def _train(total: Any, callbacks: Any = (), **more: Any) -> None:
    import transformers

    class Notes(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            truth["updates"] += 1
            time.sleep(PAUSE_S)

        def on_log(self, *_: Any, logs: Any, **__: Any) -> None:
            for name, of in (("loss", "training"), ("train_loss", "training"), ("eval_loss", "held_out")):
                if name in logs:
                    truth[of] += [round(float(logs[name]), digits) for digits in (3, 4, 5, 16)]
                    truth[of].append(float("%.4g" % float(logs[name])))

    rows = [{"x": torch.randn(8), "labels": torch.tensor(at % 3)} for at in range(800)]
    given = {"per_device_train_batch_size": 16, "logging_steps": 10, "report_to": [], "use_cpu": True}
    arguments = transformers.TrainingArguments(tempfile.mkdtemp(), **{"save_strategy": "no", **given, **more})
    truth["total"] = total
    trainer = transformers.Trainer(
        _Model(), arguments, train_dataset=rows[:640], eval_dataset=rows[640:], callbacks=[Notes(), *callbacks]
    )
    trainer.train()
    trainer.evaluate()


def trainer_by_steps() -> None:
    """It ends within its third pass."""
    _train(100, max_steps=100, eval_strategy="steps", eval_steps=30)


def trainer_stopped() -> None:
    """A callback ends it early: 120 are planned."""
    import transformers

    class Stops(transformers.TrainerCallback):
        def on_step_end(self, _args: Any, state: Any, control: Any, **__: Any) -> None:
            control.should_training_stop = state.global_step >= 70

    _train(120, [Stops()], num_train_epochs=3)


def trainer_in_folds() -> None:
    """Three trainings of two epochs each."""
    for _fold in range(3):
        _train(240, num_train_epochs=2, eval_strategy="epoch")


def accelerated_with_a_limit() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    num_train_epochs, max_train_steps, model = 9, 110, net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, samples())
    truth["total"] = max_train_steps
    num_train_epochs = math.ceil(max_train_steps / 20)
    bar = tqdm(range(max_train_steps), disable=not accelerator.is_local_main_process)
    completed_steps = 0
    for _epoch in range(num_train_epochs):
        model.train()
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                bar.update(1)
                completed_steps += 1
                truth["updates"] += 1
                time.sleep(PAUSE_S)
            bar.set_postfix(loss=float(shown(loss.item(), "%.3g")))
            if completed_steps >= max_train_steps:
                break


def _fit(module: Any, total: Any, *loaders: Any, **more: Any) -> None:
    import lightning

    truth["total"] = total
    trainer = lightning.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu", **more)
    trainer.fit(module, *loaders)


def _module(**more: Any) -> Any:
    import lightning

    class Toy(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: Any, _: int) -> Any:
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            shown(loss.item(), "%.3f")
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            super().optimizer_step(*args, **kwargs)
            truth["updates"] += 1
            time.sleep(PAUSE_S)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    return type("Toy", (Toy,), more)()


def lightning_by_steps() -> None:
    _fit(_module(), 100, samples(), max_steps=100)


def lightning_in_parts() -> None:
    """A quarter of the batches of each epoch, and two of them an update."""
    _fit(_module(), 60, samples(1280), max_epochs=6, limit_train_batches=0.25, accumulate_grad_batches=2)


def lightning_gan() -> None:
    import lightning

    class Gan(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.generator, self.discriminator = net(), net()
            self.automatic_optimization = False

        def training_step(self, batch: Any, _: int) -> None:
            for optimizer, one, name in zip(
                self.optimizers(), (self.generator, self.discriminator), ("g_loss", "d_loss"), strict=True
            ):
                loss = F.cross_entropy(one(batch[0]), batch[1])
                self.log(name, loss, prog_bar=True)
                self.manual_backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            truth["updates"] += 1
            time.sleep(PAUSE_S)

        def configure_optimizers(self) -> Any:
            return [torch.optim.Adam(one.parameters(), lr=2e-4) for one in (self.generator, self.discriminator)], []

    _fit(Gan(), 120, samples(), max_epochs=3)


def lightning_stops() -> None:
    """It stops itself in its third epoch of five: 200 are planned."""

    def on_train_epoch_end(self: Any) -> None:
        self.trainer.should_stop = self.current_epoch == 2

    _fit(_module(on_train_epoch_end=on_train_epoch_end), 200, samples(), max_epochs=5)


def fabric_loop() -> None:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(samples())
    truth.update(total=120, epochs=3)
    for epoch in range(3):
        for at, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
            truth["updates"] += 1
            time.sleep(PAUSE_S)
            if at % 10 == 0:
                print(f"epoch: {epoch} [{at * 16}/{640}]\tloss: {shown(loss.item(), '%.6f')}")


def rich_of_epochs() -> None:
    """Each epoch is a task of its own, in one display."""
    from rich.progress import Progress

    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    truth.update(total=120)
    with Progress() as progress:
        for epoch in range(3):
            task = progress.add_task(f"epoch {epoch}", total=40)
            for _ in range(40):
                backward(model, *random_batch())
                optimizer.step()
                truth["updates"] += 1
                time.sleep(PAUSE_S)
                progress.advance(task)


def grown_in_stages() -> None:
    """Each stage has a bar of its own and an optimizer of its own over the same weights."""
    model = net()
    truth.update(total=120)
    for stage, rate in enumerate((1e-2, 1e-3, 1e-4)):
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        bar = tqdm(range(40))
        for _step in bar:
            loss = backward(model, *random_batch())
            optimizer.step()
            truth["updates"] += 1
            time.sleep(PAUSE_S)
            bar.set_description(f"stage {stage} loss {shown(loss, '%.3f')}")


def generated_steps() -> None:
    """A generator makes the updates, and the loop that prints only asks for the next one."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    truth.update(total=120)

    def losses() -> Any:
        while True:
            yield backward(model, *random_batch())
            optimizer.step()
            truth["updates"] += 1
            time.sleep(PAUSE_S)

    for step, loss in enumerate(losses(), 1):
        print(f"step {step}/1000 loss {shown(loss)}")
        if step == 121:
            break


if __name__ == "__main__":
    run(globals())
