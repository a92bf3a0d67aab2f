"""Twelve more, drawn after that: loops of libraries themselves, and others that print in other ways."""

from __future__ import annotations

import logging
import math
import sys
import tempfile
import time
from typing import Any

import torch
import torch.nn.functional as F
from account import shown, truth
from toy import PAUSE_S, backward, evaluated, net, random_batch, run, samples, step, update


def _lightning(*callbacks: Any) -> None:
    import lightning

    class Toy(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: Any, _: int) -> Any:
            time.sleep(PAUSE_S)
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            truth["updates"] += 1
            shown(loss.item(), "%.3f")
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]), prog_bar=True)

        def on_validation_epoch_end(self) -> None:
            shown(float(self.trainer.callback_metrics["val_loss"]), "%.3f", "held_out")

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    truth["total"] = [120, None]
    trainer = lightning.Trainer(
        max_epochs=3, logger=False, enable_checkpointing=False, accelerator="cpu", callbacks=[*callbacks]
    )
    trainer.fit(Toy(), samples(), samples(160))


def lightning_bars() -> None:
    _lightning()


def lightning_rich() -> None:
    from lightning.pytorch.callbacks import RichProgressBar

    _lightning(RichProgressBar())


def _trainer(**more: Any) -> None:
    import transformers

    class Toy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Any, labels: Any) -> Any:
            out = self.net(x)
            return {"loss": F.cross_entropy(out, labels), "logits": out}

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
    arguments = transformers.TrainingArguments(
        *(tempfile.mkdtemp(),),
        per_device_train_batch_size=4,
        num_train_epochs=3,
        logging_steps=10,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        **more,
    )
    truth["total"] = [math.ceil(640 / 4 / arguments.gradient_accumulation_steps) * 3, None]
    trainer = transformers.Trainer(
        Toy(), arguments, train_dataset=rows[:640], eval_dataset=rows[640:], callbacks=[Notes()]
    )
    trainer.train()


def trainer_that_accumulates() -> None:
    _trainer(gradient_accumulation_steps=4, eval_strategy="epoch")


def trainer_without_bars() -> None:
    _trainer(gradient_accumulation_steps=4, eval_strategy="steps", eval_steps=25, disable_tqdm=True)


def accelerated() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    epochs, model = 3, net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader, held_out = accelerator.prepare(model, optimizer, samples(), samples(160))
    truth["total"] = epochs * 20
    for epoch in range(epochs):
        model.train()
        for at, (x, y) in enumerate(loader):
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            time.sleep(PAUSE_S)
            truth["updates"] += accelerator.sync_gradients
        model.eval()
        print(f"epoch {epoch}:", {"accuracy": evaluated(model, held_out)[1], "f1": 0.4123})


def logged_by_rich() -> None:
    from rich.logging import RichHandler
    from rich.progress import track

    logging.basicConfig(level=logging.INFO, format="%(message)s", datefmt="[%X]", handlers=[RichHandler()])
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * 40
    for epoch in range(epochs):
        model.train()
        for x, y in track(loader, description=f"Training {epoch}"):
            loss = update(model, optimizer, x, y)
        logging.info(f"Epoch {epoch}: loss {shown(loss)}")
        model.eval()
        for x, y in track(held_out, description="Evaluating"):
            model(x)
        logging.info(f"loss {shown(evaluated(model, held_out)[0], of='held_out')}")


def progress_of_two_tasks() -> None:
    from rich.progress import Progress

    epochs, loader, model = 3, samples(), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * 40
    with Progress() as progress:
        outer, inner = progress.add_task("Epochs", total=epochs), progress.add_task("Batches", total=40)
        for _ in range(epochs):
            progress.reset(inner)
            for x, y in loader:
                update(model, optimizer, x, y)
                progress.advance(inner)
            progress.advance(outer)


def head_then_all() -> None:
    """The head is trained alone first, then all of the model."""
    loader, held_out, model = samples(), samples(160), net()
    truth["total"] = [40, 80, 120, None]
    for name, epochs, weights in (("head", 1, model[2].parameters()), ("all", 2, model.parameters())):
        optimizer = torch.optim.Adam(weights, lr=1e-3)
        print(f"--- {name}")
        for epoch in range(epochs):
            model.train()
            total = 0.0
            for at, (x, y) in enumerate(loader, 1):
                total += update(model, optimizer, x, y)
                if at % 10 == 0:
                    print(f"  [{epoch + 1}, {at:5d}] loss: {shown(total / at, '%.3f')}")
            model.eval()
            print(f"  acc: {evaluated(model, held_out)[1]:.3f}")


def test_on_tensors() -> None:
    """It evaluates without a loader and without eval(), and doesn't say so on the second line."""
    epochs, model, (x, y), (a, b) = 60, net(), random_batch(100), random_batch(50)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth["total"] = epochs
    for epoch in range(epochs):
        loss = update(model, optimizer, x, y)
        with torch.no_grad():
            other = F.cross_entropy(model(a), b).item()
        if epoch % 10 == 0:
            print(
                f"Epoch: {epoch} | Loss: {shown(loss, '%.5f')}, Acc: 41.00% | Test loss: {shown(other, '%.5f', 'held_out')}, Test acc: 38.00%"
            )


def folds() -> None:
    """Five-fold cross-validation: each fold trains a new model."""
    epochs = 2
    truth["total"] = [80, 240, None]
    for fold in range(3):
        print(f"FOLD {fold}\n--------------------------------")
        model, loader, held_out = net(), samples(), samples(160)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        for epoch in range(epochs):
            print(f"Starting epoch {epoch + 1}")
            recent = 0.0
            for i, (x, y) in enumerate(loader):
                recent += update(model, optimizer, x, y)
                if i % 20 == 19:
                    print(f"Loss after mini-batch {i + 1:5d}: {shown(recent / 20, '%.3f')}")
                    recent = 0.0
        print("Training process has finished. Saving trained model.\nStarting testing")
        print(f"Accuracy for fold {fold}: {int(100 * evaluated(model, held_out)[1])} %")


def alternating() -> None:
    """Weights and architecture are updated in turn, from two loaders."""
    epochs, loader, other, one, two = 3, samples(), samples(), net(), net()
    w, a = torch.optim.SGD(one.parameters(), lr=0.025), torch.optim.Adam(two.parameters(), lr=3e-4)
    truth["total"] = epochs * 40
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%m/%d %I:%M:%S %p"
    )
    for epoch in range(epochs):
        logging.info("epoch %d lr %e", epoch, 0.025)
        total = 0.0
        for at, ((x, y), (p, q)) in enumerate(zip(loader, other)):
            backward(two, p, q)
            a.step()
            a.zero_grad()
            total += backward(one, x, y)
            step(w)
            if at % 10 == 0:
                logging.info("train %03d %s %f %f", at, shown(total / (at + 1), "%e"), 33.3, 100.0)
        one.eval()
        mean = evaluated(one, samples(160))[0]
        logging.info("valid %03d %s %f %f", 0, shown(mean, "%e", "held_out"), 33.3, 100.0)
        logging.info("valid_acc %f", 33.3)


def profiled() -> None:
    """It measures its steps, and prints numbers of other things beside them."""
    steps, model = 120, net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    truth["total"] = steps
    for at in range(steps):
        loss = update(model, optimizer, *random_batch())
        if at % 10 == 0:
            print(
                f"[rank 0] step={at}/{steps} loss={shown(loss)} tok/s=25448 mem=0.1GB mfu=1.2% grad_norm=1.01 batch 8/16"
            )
            print(f"[data] epoch 0 files 3/12 buffer 512/1024 loss_mask 0.81 test 3/5")


if __name__ == "__main__":
    run(globals())
