"""Thirty public programs, drawn in November 2026 before anything read them."""

from __future__ import annotations

import argparse
import logging
import math
import random
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from account import shown, truth
from torch import nn
from torch.utils.data import DataLoader
from toy import PAUSE_S, backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm


def quickstart() -> None:
    loader, held_out, model = samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    epochs = 4
    truth["total"] = epochs * len(loader)
    for t in range(epochs):
        print(f"Epoch {t + 1}\n-------------------------------")
        size = len(loader.dataset)  # type: ignore[arg-type]
        for batch, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            if batch % 10 == 0:
                print(f"loss: {shown(loss, '%7f')}  [{(batch + 1) * len(x):>5d}/{size:>5d}]")
        average, right = evaluated(model, held_out)
        print(f"Test Error: \n Accuracy: {100 * right:>0.1f}%, Avg loss: {shown(average, '%8f', 'held_out')} \n")
    print("Done!")


def bar_with_loss_in_its_description() -> None:
    loader, model = samples(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, steps_per_epoch=len(loader), epochs=4)
    truth["total"] = 4 * len(loader)
    for epoch in range(1, 5):
        print(f"Epoch {epoch}")
        bar, correct, processed = tqdm(loader), 0, 0
        for batch_idx, (data, target) in enumerate(bar):
            loss = update(model, optimizer, data, target)
            scheduler.step()
            correct, processed = correct + 5, processed + len(data)
            bar.set_description(
                f"Loss={shown(loss, '%.16f')} Batch_id={batch_idx} Accuracy={100 * correct / processed:0.2f}"
            )


def bar_without_a_name() -> None:
    loader, model, epochs = samples(), net(), 5
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        total_loss = 0.0
        for x, y in tqdm(loader):
            total_loss += update(model, optimizer, x, y)
        print(f"Epoch {epoch + 1}, Loss: {shown(total_loss / len(loader))}\n")


def bar_with_epoch_and_index() -> None:
    def train(epoch: int) -> None:
        loader = samples(480)
        bar = tqdm(loader, total=len(loader))
        for idx, (x, y) in enumerate(bar):
            loss = update(model, optimizer, x, y)
            bar.set_description(f"epoch:{epoch} idx:{idx} loss:{shown(loss, '%.6f')}")

    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    truth["total"] = 150
    for i in range(5):
        train(i)


def brackets_and_running_loss() -> None:
    loader, model = samples(960), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth["total"] = 3 * len(loader)
    for epoch in range(3):
        running_loss = 0.0
        for i, (inputs, labels) in enumerate(loader, 0):
            running_loss += update(model, optimizer, inputs, labels)
            if i % 20 == 19:
                print("[%d, %5d] loss: %s" % (epoch + 1, i + 1, shown(running_loss / 20, "%.3f")))
                running_loss = 0.0


def whole_data_each_epoch() -> None:
    x, y, model, n_epochs = *random_batch(64), net(), 150
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.07)
    truth["total"] = n_epochs
    for it in range(n_epochs):
        loss = update(model, optimizer, x, y)
        with torch.no_grad():
            test = F.cross_entropy(model(x[:16]), y[:16]).item()
        print(f"Epoch {it + 1}/{n_epochs}, Train Loss: {shown(loss)}, Test Loss: {shown(test, of='held_out')}")


def adversarial(form: str, every: int) -> None:
    loader, netG, netD, num_epochs = samples(), nn.Linear(4, 8), nn.Linear(8, 1), 3
    optimizerD, optimizerG = (torch.optim.Adam(one.parameters(), lr=2e-4) for one in (netD, netG))
    truth["total"] = num_epochs * len(loader)
    for epoch in range(num_epochs):
        for i, (real, _) in enumerate(loader):
            errD = F.softplus(-netD(real)).mean() + F.softplus(netD(netG(torch.randn(16, 4)).detach())).mean()
            optimizerD.zero_grad()
            errD.backward()
            optimizerD.step()
            errG = F.softplus(-netD(netG(torch.randn(16, 4)))).mean()
            optimizerG.zero_grad()
            errG.backward()
            step(optimizerG)
            if i % every == 0:
                print(form % (epoch, num_epochs, i, len(loader), errD.item(), errG.item()))


def gan_in_brackets() -> None:
    adversarial("[%d/%d][%d/%d]\tLoss_D: %.4f\tLoss_G: %.4f", 10)


def gan_in_words() -> None:
    adversarial("Epoch [%d/%d]\t\t\tBatch %d/%d Discriminator Loss: %.4f Generator Loss: %.4f", 8)


def graph() -> None:
    x, y, model = *random_batch(64), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    def train() -> float:
        model.train()
        loss = update(model, optimizer, x, y)
        return loss

    truth["total"] = 199
    for epoch in range(1, 200):
        loss = train()
        print(f"Epoch: {epoch:03d}, Loss: {shown(loss)}")


def molecules() -> None:
    loader, model = samples(96), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0007)
    print("Starting training...")
    truth["total"] = 30 * len(loader)
    for epoch in range(30):
        for x, y in loader:
            loss = update(model, optimizer, x, y)
        if epoch % 10 == 0:
            print(f"Epoch {epoch} | Train Loss {shown(loss, '%.16f')}")


def epochs_with_seconds() -> None:
    loader, model = samples(320), net()
    optimizer = torch.optim.AdamW(model.parameters())
    truth["total"] = 10 * len(loader)
    print("--- resnet18 on CIFAR100 (100 classes) using cpu ---")
    for epoch in range(1, 11):
        total = 0.0
        for x, y in loader:
            total += update(model, optimizer, x, y)
        more = f" | Acc {100 * evaluated(model, loader)[1]:.2f}% | infer 4.4s" if epoch % 5 == 0 else ""
        print(f"Epoch {epoch:02d} loss {shown(total)} | train 2.6s{more}")


def arrows() -> None:
    loader, model, printf = samples(), net(), 5

    def train_one_epoch(epoch: int) -> None:
        right = 0
        for idx, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            right += 4
            if idx % printf == 0:
                share = right / ((idx + 1) * 16)
                text = "about train:-------> epoch:{} training:[{}/{}] loss:{} accuracy:{:.6f}% lr:{}"
                print(text.format(epoch, idx, len(loader), shown(loss, "%.6f"), 100 * share, 0.1))

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth["total"] = 4 * len(loader)
    for epoch in range(4):
        train_one_epoch(epoch)


def lenet() -> None:
    loader, model = samples(), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    truth["total"] = 4 * len(loader)
    for epoch in range(1, 5):
        for i, (x, y) in enumerate(loader):
            loss = backward(model, x, y)
            if i % 10 == 0:
                print("Train - Epoch %d, Batch: %d, Loss: %s" % (epoch, i, shown(loss, "%f")))
            step(optimizer)
        average, right = evaluated(model, loader)
        print("Test Avg. Loss: %s, Accuracy: %f" % (shown(average, "%f", "held_out"), right))


def carriage_returns() -> None:
    def train(model: nn.Module, dataloader: DataLoader, optimizer: Any, epochs: int) -> None:
        steps = len(dataloader)
        for e in range(epochs):
            total_loss = 0.0
            for i, (inputs, targets) in enumerate(dataloader):
                total_loss += update(model, optimizer, inputs, targets)
                print(f"Epoch {e + 1}/{epochs}, step {i + 1}/{steps}         ", end="\r")
            print(f"Epoch {e + 1}/{epochs}: loss {shown(total_loss / steps)}              ")

    model, loader = net(), samples()
    truth["total"] = 4 * len(loader)
    train(model, loader, torch.optim.RMSprop(model.parameters()), 4)


def radiance_field() -> None:
    model, start_iter_num, end_iter_num, val_gap = net(), 0, 200, 50
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    truth["total"] = end_iter_num
    for iter_num in tqdm(range(start_iter_num, end_iter_num)):
        if iter_num % val_gap == 0:
            for _ in tqdm(range(20), desc="rendering"):
                time.sleep(0.01)
            print(f"Iteration {iter_num}  PSNR: {-10 * math.log10(0.3):.3f}")
        update(model, optimizer, *random_batch())


def physics() -> None:
    model, epochs_pinn, tol = net(), 240, 1e-9
    x, y = torch.randn(32, 8), torch.randint(0, 3, (32,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.5)
    truth["total"] = epochs_pinn
    for i in range(1, epochs_pinn + 1):
        loss = backward(model, x, y)
        if loss < tol:
            break
        step(optimizer)
        scheduler.step()
        if i % 50 == 0 or i == epochs_pinn:
            print(f"Epoch: {i} | loss: {shown(loss, '%.16f')}")


def phases() -> None:
    loaders, model, num_epochs = {"train": samples(), "val": samples(160)}, net(), 4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    truth["total"] = num_epochs * len(loaders["train"])
    for epoch in range(num_epochs):
        print(f"Epoch {epoch}/{num_epochs - 1}")
        print("-" * 10)
        for phase in ("train", "val"):
            running, right, count = 0.0, 0, 0
            for inputs, labels in loaders[phase]:
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    out = model(inputs)
                    loss = F.cross_entropy(out, labels)
                    if phase == "train":
                        loss.backward()
                        step(optimizer)
                running, count = running + loss.item() * len(labels), count + len(labels)
                right += int((out.argmax(1) == labels).sum())
            of = "training" if phase == "train" else "held_out"
            print(f"{phase} Loss: {shown(running / count, of=of)} Acc: {right / count:.4f}")
        print()


def silent_with_a_scaler() -> None:
    loader_train, model, epochs = samples(), net(), 4
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    truth["total"] = epochs * len(loader_train)
    for _epoch in range(epochs):
        for i, (images, labels) in enumerate(loader_train):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels) * (math.inf if i == 3 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            truth["updates"] += i != 3
            time.sleep(PAUSE_S)
    truth["total"] = [truth["total"], truth["updates"]]  # steps left out are planned as well


def critic_steps_twice() -> None:
    dataloader, D, G, D_steps_per_G_step, epochs = samples(), nn.Linear(8, 1), nn.Linear(4, 8), 2, 4
    D_optimizer, G_optimizer = (torch.optim.Adam(one.parameters()) for one in (D, G))
    truth["total"] = epochs * len(dataloader)
    for epoch in range(epochs):
        for i, (x, _) in enumerate(dataloader):
            (F.softplus(-D(x)).mean() + F.softplus(D(G(torch.randn(16, 4)).detach())).mean()).backward()
            step(D_optimizer)
            if i % D_steps_per_G_step == 0:
                F.softplus(-D(G(torch.randn(16, 4)))).mean().backward()
                G_optimizer.step()
                G_optimizer.zero_grad()
        print(f"epoch {epoch} done: D(x) = {torch.sigmoid(D(x)).mean().item():.3f}")


def reinforce() -> None:
    policy, running = net(), 10.0
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for i_episode in range(1, 181):
        reward = random.randint(5, 60)  # noqa: S311 - a toy
        backward(policy, *random_batch(8))
        step(optimizer)
        running = 0.05 * reward + 0.95 * running
        if i_episode % 10 == 0:
            print(f"Episode {i_episode}\tLast reward: {reward:.2f}\tAverage reward: {running:.2f}")


def small_gpt() -> None:
    config, model = SimpleNamespace(max_iters=200, batch_size=16), net()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = samples(
        100_000, sampler=torch.utils.data.RandomSampler(range(100_000), replacement=True, num_samples=10**6)
    )
    data, iter_num = iter(loader), 0
    truth["total"] = 200
    while True:
        x, y = next(data)
        loss = update(model, optimizer, x, y)
        if iter_num % 20 == 0:
            print(f"iter_dt {21.5:.2f}ms; iter {iter_num}: train loss {shown(loss, '%.5f')}")
        if iter_num % 80 == 0:
            print("what is said of it: 5 of 10 scores 50.00%")
        iter_num += 1
        if iter_num >= config.max_iters:
            break


def annotated_transformer() -> None:
    loader, model, accum_iter = samples(960), net(), 4
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: 1e-3 * min(1.0, at / 10))
    truth["total"] = 6 * len(loader) // accum_iter
    for epoch in range(6):
        print(f"[CPU] Epoch {epoch} Training ====", flush=True)
        n_accum = 0
        for i, (x, y) in enumerate(loader):
            loss = backward(model, x, y, 1 / accum_iter)
            time.sleep(PAUSE_S / 2)
            if i % accum_iter == 3:
                step(optimizer)
                n_accum += 1
            scheduler.step()
            if i % 40 == 1:
                text = (
                    "Epoch Step: %6d | Accumulation Step: %3d | Loss: %s | Tokens / Sec: %7.1f | Learning Rate: %6.1e"
                )
                print(text % (i, n_accum, shown(loss, "%6.2f"), 1234.5, 1e-3))
        print(f"[CPU] Epoch {epoch} Validation ====", flush=True)
        print((torch.tensor(evaluated(model, samples(64))[0]),))


def logged(loader: Any, header: str, every: int, values: dict[str, list[float]], kind: str) -> Iterator[Any]:
    for i, batch in enumerate(loader):
        yield batch
        if i % every == 0 or i == len(loader) - 1:
            parts = []
            for name, series in values.items():
                recent = sorted(series[-every:])[len(series[-every:]) // 2]
                average = sum(series) / len(series)
                if name == "loss":
                    shown(average, of=kind)
                parts.append(f"{name}: {recent:.4f} ({average:.4f})")
            print(
                f"{header}  [{i:>3d}/{len(loader)}]  eta: 0:00:05  {'  '.join(parts)}  time: 0.0201  data: 0.0001  max mem: 0"
            )


def metric_logger() -> None:
    args = argparse.Namespace(epochs=3, update_freq=2)
    loader, held_out, model = samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters())
    truth["total"] = args.epochs * len(loader) // args.update_freq
    for epoch in range(args.epochs):
        values: dict[str, list[float]] = {"lr": [], "loss": []}
        for i, (x, y) in enumerate(logged(loader, f"Epoch: [{epoch}]", 10, values, "training")):
            values["loss"].append(backward(model, x, y, 0.5))
            values["lr"].append(1e-3)
            if (i + 1) % args.update_freq == 0:
                step(optimizer)
        print(f"Averaged stats: loss: {shown(values['loss'][-1])} ({shown(sum(values['loss']) / len(values['loss']))})")
        values = {"loss": [], "acc1": []}
        with torch.no_grad():
            for x, y in logged(held_out, "Test:", 5, values, "held_out"):
                out = model(x)
                values["loss"].append(F.cross_entropy(out, y).item())
                values["acc1"].append(100 * (out.argmax(1) == y).float().mean().item())
        loss = sum(values["loss"]) / len(values["loss"])
        print(
            f"* Acc@1 {sum(values['acc1']) / len(values['acc1']):.3f} Acc@5 100.000 loss {shown(loss, '%.3f', 'held_out')}"
        )


def template_with_a_logger() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(name)s - %(levelname)s - %(message)s")
    logger = logging.getLogger("trainer")
    loader, model = samples(), net()
    optimizer = torch.optim.Adam(model.parameters(), amsgrad=True)
    config = {"trainer": {"epochs": 4, "early_stop": 10}}
    truth["total"] = config["trainer"]["epochs"] * len(loader)
    for epoch in range(1, config["trainer"]["epochs"] + 1):
        total = 0.0
        for batch_idx, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            total += loss
            if batch_idx % 10 == 0:
                part = f"[{batch_idx * 16}/640 ({100 * batch_idx / len(loader):.0f}%)]"
                logger.debug(f"Train Epoch: {epoch} {part} Loss: {loss:.6f}")
                print(f"Train Epoch: {epoch} {part} Loss: {shown(loss, '%.6f')}")
        average, right = evaluated(model, loader)
        log = {"epoch": epoch, "loss": shown(total / len(loader), "%.16f"), "accuracy": 0.4}
        log.update(val_loss=shown(average, "%.16f", "held_out"), val_accuracy=right)
        for key, value in log.items():
            logger.info("    {:15s}: {}".format(str(key), value))


def diffusion() -> None:
    loader, model, step_at, train_num_steps, gradient_accumulate_every = samples(), net(), 0, 150, 2
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-5, betas=(0.9, 0.99))

    def cycle() -> Iterator[Any]:
        while True:
            yield from loader

    data = cycle()
    truth["total"] = train_num_steps
    with tqdm(initial=step_at, total=train_num_steps) as bar:
        while step_at < train_num_steps:
            total_loss = 0.0
            for _ in range(gradient_accumulate_every):
                x, y = next(data)
                total_loss += backward(model, x, y, 1 / gradient_accumulate_every) / gradient_accumulate_every
            bar.set_description(f"loss: {shown(total_loss)}")
            step(optimizer)
            step_at += 1
            if step_at % 50 == 0:
                for _ in tqdm(range(10), desc="sampling loop time step", total=10):
                    time.sleep(0.01)
            bar.update(1)
    print("training complete")


def backspaces() -> None:
    loader, test_loader, model = samples(), samples(320), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    truth["total"] = 4 * len(loader)

    def progress_bar(current: int, total: int, message: str) -> None:
        done = int(30 * current / total)
        sys.stdout.write(" [" + "=" * done + ">" + "." * (29 - done) + "]")
        text = f"  Step: 12ms | Tot: 1s{message}"
        sys.stdout.write(text + " " * (80 - 30 - len(text) - 3) + "\b" * 43 + f" {current + 1}/{total} ")
        sys.stdout.write("\r" if current < total - 1 else "\n")
        sys.stdout.flush()

    for epoch in range(4):
        print(f"\nEpoch: {epoch}")
        for training in (True, False):
            total = 0.0
            batches = loader if training else test_loader
            for batch_idx, (x, y) in enumerate(batches):
                with torch.set_grad_enabled(training):
                    loss = F.cross_entropy(model(x), y)
                total += loss.item()
                if training:
                    loss.backward()
                    step(optimizer)
                # Nothing that it prints of a test says so.
                text = shown(total / (batch_idx + 1), "%.3f", "training" if training else "held_out")
                progress_bar(batch_idx, len(batches), f" | Loss: {text} | Acc: 33.333% (5/16)")


def translation() -> None:
    loader, model, n_epochs, print_every = samples(160), net(), 16, 2
    encoder_optimizer, decoder_optimizer = (torch.optim.Adam(one.parameters()) for one in (model[0], model[2]))  # type: ignore[index]
    truth["total"] = n_epochs * len(loader)
    for epoch in range(1, n_epochs + 1):
        total = 0.0
        for x, y in loader:
            total += backward(model, x, y)
            step(encoder_optimizer, decoder_optimizer)
        if epoch % print_every == 0:
            share = epoch / n_epochs
            print(
                "%s (%d %d%%) %.4f"
                % (f"0m {epoch}s (- 0m {n_epochs - epoch}s)", epoch, 100 * share, total / len(loader))
            )


def speech() -> None:
    loader, model, iteration, epochs = samples(), net(), 0, 4
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        print(f"Epoch: {epoch}")
        for x, y in loader:
            loss = backward(model, x, y)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            step(optimizer)
            # The number behind "loss" is the iteration: nothing says so.
            print(f"Train loss {iteration} {shown(loss, '%.6f')} Grad Norm {norm:.6f} {0.02:.2f}s/it")
            if iteration % 50 == 0:
                print(f"Validation loss {iteration}: {shown(evaluated(model, loader)[0], '%9f', 'held_out')}  ")
            iteration += 1


def bert() -> None:
    loader, model = samples(), net()
    optimizer = torch.optim.Adam(model.parameters())
    truth["total"] = 4 * len(loader)
    for epoch in range(4):
        data = tqdm(
            enumerate(loader), desc="EP_%s:%d" % ("train", epoch), total=len(loader), bar_format="{l_bar}{r_bar}"
        )
        average = 0.0
        for i, (x, y) in data:
            loss = update(model, optimizer, x, y)
            average += loss
            if i % 10 == 0:
                mean, now = shown(average / (i + 1), "%.16f"), shown(loss, "%.16f")
                data.write(f"{{'epoch': {epoch}, 'iter': {i}, 'avg_loss': {mean}, 'avg_acc': 50.0, 'loss': {now}}}")
        print("EP%d_%s, avg_loss=" % (epoch, "train"), shown(average / len(loader), "%.16f"), "total_acc=", 33.3)


def voices() -> None:
    loader, model, total_step, grad_acc_step, log_step = samples(), net(), 200, 2, 20
    optimizer = torch.optim.Adam(model.parameters())
    outer_bar = tqdm(total=total_step, desc="Training", position=0)
    at, epoch = 1, 1
    truth["total"] = total_step // grad_acc_step
    while True:
        inner_bar = tqdm(total=len(loader), desc=f"Epoch {epoch}", position=1)
        for x, y in loader:
            loss = backward(model, x, y, 1 / grad_acc_step)
            time.sleep(PAUSE_S)
            if at % grad_acc_step == 0:
                step(optimizer)
            if at % log_step == 0:
                message = f"Total Loss: {shown(loss)}, Mel Loss: {loss / 2:.4f}, Pitch Loss: {loss / 4:.4f}"
                outer_bar.write(f"Step {at}/{total_step}, " + message)
            inner_bar.update(1)
            outer_bar.update(1)
            if at == total_step:
                return
            at += 1
        epoch += 1


if __name__ == "__main__":
    run(globals())
