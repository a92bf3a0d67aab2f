"""Fifteen more, drawn after what those had shown was mended."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from typing import Any

import torch
import torch.nn.functional as F
from account import shown, truth
from toy import PAUSE_S, backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm


def trained(model: Any, optimizer: Any, loader: Any) -> float:
    """Train for an epoch, and return the mean loss."""
    model.train()
    return sum(update(model, optimizer, x, y) for x, y in loader) / len(loader)


def tested(model: Any, loader: Any) -> float:
    model.eval()
    return evaluated(model, loader)[0]


def poses() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        a, b = trained(model, optimizer, loader), tested(model, held_out)
        logging.info(
            "Epoch [%d/%d] train=%s val=%s lr=%.2e (%.1fs)",
            epoch,
            epochs,
            shown(a, "%.5f"),
            shown(b, "%.5f", "held_out"),
            3e-4,
            0.8,
        )


def two_by_two() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        a, b = trained(model, optimizer, loader), tested(model, held_out)
        print(
            f"Epoch {epoch}/{epochs} | Train Loss {shown(a)} Acc {0.4123:.4f} | Val Loss {shown(b, of='held_out')} Acc {0.3875:.4f}"
        )
        print(f"Saved best model @ epoch {epoch} (Val Acc {0.3875:.4f})")


def detector() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        model.train()
        bar, total = tqdm(loader, desc=f"Эпоха {epoch}/{epochs} [train]"), 0.0
        for at, (x, y) in enumerate(bar, 1):
            total += update(model, optimizer, x, y)
            bar.set_postfix(loss=shown(total / at))
        b = tested(model, held_out)
        print(f"[Эпоха {epoch}] train_loss={shown(total / 40)}  val_loss={shown(b, of='held_out')}  lr={1e-3:.2e}")


def peaks() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        a, b = trained(model, optimizer, loader), tested(model, held_out)
        print(
            f"epoch {epoch}/{epochs}  train_loss={shown(a, '%.6f')}  test_loss={shown(b, '%.6f', 'held_out')}  peak_dist[t+1=0.52 t+2=0.61] mean=0.57  PSR_k3@2[t+1=50.00% t+2=40.00%] agg=45.00%  (1s)"
        )


def parts_in_parentheses() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        a, b = trained(model, optimizer, loader), tested(model, held_out)
        print(
            f"[Epoch {epoch:03d}] train_loss={shown(a)}(loc:{a / 2:.4f}, sev:{a / 2:.4f}) val_loss={shown(b, of='held_out')}(loc:{b / 2:.4f}, sev:{b / 2:.4f}) loc_acc=0.333 sev_mae=0.512 lr=1.00e-03 time=0.8s"
        )


def unetr() -> None:
    max_iterations, loader, held_out, model, at = 100, samples(), samples(160), net(), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    truth["total"] = [max_iterations, None]
    while at < max_iterations:
        model.train()
        bar = tqdm(loader, desc="Training (X / X Steps) (loss=X.X)", dynamic_ncols=True)
        for x, y in bar:
            loss = update(model, optimizer, x, y)
            bar.set_description(f"Training ({at} / {max_iterations} Steps) (loss={shown(loss, '%2.5f')})")
            if (at % 30 == 0 and at) or at == max_iterations:
                inner = tqdm(held_out, desc="Validate (X / X Steps) (dice=X.X)", dynamic_ncols=True)
                model.eval()
                for x, y in inner:
                    model(x)
                    time.sleep(0.005)
                    inner.set_description(f"Validate ({at} / 10 Steps)")
                model.train()
                print("Model Was Saved ! Current Best Avg. Dice: 0.3123 Current Avg. Dice: 0.3123")
            at += 1


def phases_in_one_bar() -> None:
    num_epochs, model = 3, net()
    loaders = {"train": samples(), "test": samples(160)}
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    truth["total"] = num_epochs * 40
    for epoch in range(num_epochs):
        for phase, loader in loaders.items():
            model.train(phase == "train")
            total, bar = 0.0, tqdm(enumerate(loader), total=len(loader))
            for at, (x, y) in bar:
                bar.set_description(
                    f"Epoch: {epoch + 1:03d}/{num_epochs:03d} | Batch {at:04d}/{40:04d} | Loss: {shown(total / (at + 1), of='training' if phase == 'train' else 'held_out')}"
                )
                if phase == "train":
                    total += update(model, optimizer, x, y)
                else:
                    total += F.cross_entropy(model(x), y).item()
                    time.sleep(0.01)


def same_function_for_both() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(320), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)

    def run_epoch(data: Any, epoch: int, is_training: bool) -> None:
        model.train(is_training)
        for at, (x, y) in enumerate(data):
            loss = update(model, optimizer, x, y) if is_training else F.cross_entropy(model(x), y).item()
            if at % 5 == 0:
                print(
                    f"Epoch [{epoch}][{at}/{len(data)}] Loss: {shown(loss, of='training' if is_training else 'held_out')}"
                )

    for epoch in range(epochs):
        run_epoch(loader, epoch, True)
        with torch.no_grad():
            run_epoch(held_out, epoch, False)


def rewards() -> None:
    max_steps, model = 120, net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    truth["total"] = [max_steps, None]
    for at in range(max_steps):
        if at % 3 == 0:
            time.sleep(PAUSE_S)
            continue  # nothing is learnt from an answer without a reward
        loss = update(model, optimizer, *random_batch())
        if at % 8 == 0:
            print(json.dumps({"step": at, "reward": 1.0, "loss": float(shown(loss, "%.16f"))}))


def bar_with_both() -> None:
    epochs, loader, held_out, model, a, b = 3, samples(), samples(160), net(), math.nan, math.nan
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)
    form = "{l_bar}{bar:20}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}] [Train Loss: {postfix[0]}, Train Acc: 0.41, Val Loss: {postfix[1]}, Val Acc: 0.39]"
    with tqdm(total=epochs, bar_format=form, postfix=["nan", "nan"]) as bar:
        for _ in range(epochs):
            a, b = trained(model, optimizer, loader), tested(model, held_out)
            bar.postfix = [shown(a), shown(b, of="held_out")]
            bar.update(1)


def accumulated_bar() -> None:
    epochs, every, loader, held_out, model = 3, 4, samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    truth["total"] = epochs * 40 // every
    for epoch in range(epochs):
        model.train()
        with tqdm(loader, unit="batch") as bar:
            for at, (x, y) in enumerate(bar):
                bar.set_description(f"Epoch {epoch}")
                time.sleep(PAUSE_S)
                loss = backward(model, x, y, 1 / every)
                if (at + 1) % every == 0:
                    step(optimizer)
                bar.set_postfix(loss=shown(loss, "%.16f"), accuracy=33.3)
        model.eval()
        print(f"Accuracy of the network on the 160 test images: {100 * evaluated(model, held_out)[1]:.0f} %")


def images_in_a_bar_of_samples() -> None:
    epochs, loader, model = 3, samples(), net()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-5)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        model.train()
        with tqdm(total=640, desc=f"Epoch {epoch}/{epochs}", unit="sample", file=sys.stdout) as bar:
            for x, y in loader:
                bar.set_postfix(**{"loss (batch)": float(shown(update(model, optimizer, x, y), "%.3g"))})
                bar.update(len(x))


def resumed() -> None:
    """It goes on from update 60, with a count of its own."""
    total, loader_of_held_out, model = 120, samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth["total"] = [60, 120, None]
    print("=> loaded checkpoint 'last.pth' (iter 60)")
    for at in range(61, total + 1):
        loss = update(model, optimizer, *random_batch())
        if at % 10 == 0:
            print(f"iter {at}/{total}: loss {shown(loss)}, lr 0.1000, time 20.12ms")
    print(f"val: loss {shown(tested(model, loader_of_held_out), of='held_out')}")


def warm_up() -> None:
    """Its first updates are for the compiler and the clock, and print a loss that belongs to no training."""
    warmup, steps, model, (x, y) = 10, 100, net(), random_batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    truth["total"] = [steps, warmup + steps, None]
    print("Running warmup...")
    for _ in range(warmup):
        update(model, optimizer, x, y)
    print("Running benchmark...")
    for at in range(steps):
        loss = update(model, optimizer, x, y)
        if at % 10 == 9:
            print(f"Iter #{at // 10}: {812.3:.1f} img/sec per CPU, loss {shown(loss)}")
    print("Img/sec per CPU: 812.3 +-1.2")


def sums_of_an_epoch() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        total = 40 * trained(model, optimizer, loader)
        model.eval()
        mean, right = evaluated(model, held_out)
        print(
            f"Epoch {epoch + 1}, Loss: {shown(total, '%.16f')}, Accuracy: {right:.4f}, test loss {shown(mean, of='held_out')}"
        )


if __name__ == "__main__":
    run(globals())
