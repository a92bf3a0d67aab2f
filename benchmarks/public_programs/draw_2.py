"""Twelve more, drawn after what the first thirty had shown was mended."""

from __future__ import annotations

import argparse
import logging
import math
import time
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from account import shown, truth
from toy import PAUSE_S, backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm


def steps_over_phases() -> None:
    loaders, model, step_at = {"train": samples(), "valid": samples(160)}, net(), 0
    optimizer = torch.optim.Adam(model.parameters())
    truth["total"] = 4 * 40
    for epoch in range(1, 5):
        for phase in ("train", "valid"):
            print(f"epoch {epoch}, phase {phase}, total step {step_at}")
            if phase == "valid":
                loss, right = evaluated(model, loaders[phase])
                print(f"epoch {epoch} | val_accuracy: {right:.4f}")
                print(f"epoch {epoch} | val_loss: {shown(loss, '%.16f', 'held_out')}")
                continue
            for x, y in loaders[phase]:
                loss = update(model, optimizer, x, y)
                step_at += 1
                if step_at % 10 == 0:
                    print(f"epoch {epoch}, phase {phase}, step {step_at}, loss_train, {shown(loss, '%.3f')}")


def indented_summaries() -> None:
    train_loader, val_loader, model, num_epochs = samples(), samples(160), net(), 4
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth["total"] = num_epochs * len(train_loader)
    for epoch in range(num_epochs):
        total = 0.0
        for x, y in train_loader:
            total += update(model, optimizer, x, y)
        loss, right = evaluated(model, val_loader)
        print(f"Epoch {epoch + 1}/{num_epochs}\n  Train Loss: {shown(total / len(train_loader))}")
        print(f"  Val Loss:   {shown(loss, of='held_out')}\n  Val Dice:   {right:.4f}\n  LR:         0.000100")
        print(f"  \u2192 Saved best model (Dice: {right:.4f})\n")


def tokens() -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    print("Using device: cpu\nloaded 338025 tokens\n1 epoch = 2640 batches")
    truth["total"] = 150
    for i in range(150):
        loss = update(model, optimizer, *random_batch())
        print(f"step {i}, loss: {shown(loss, '%.16f')}")


def two_losses_and_their_sum() -> None:
    args = argparse.Namespace(epoch=3, print_freq=6)
    loader, model = samples(480), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    truth["total"] = args.epoch * len(loader)
    for epoch in range(1, args.epoch + 1):
        print(f"Epoch {epoch}/{args.epoch}")
        total = 0.0
        for i, (x, y) in enumerate(loader, 1):
            loss = update(model, optimizer, x, y)
            total += loss
            if i % args.print_freq == 1:
                parts = f"CrossEntropyLoss {loss / 2:.4f} ({total / i / 2:.4f})\tCenterLoss {loss / 2:.4f} ({total / i / 2:.4f})"
                sums = f"Loss {shown(loss)} ({shown(total / i)})\tceAcc@1 33.33 ( 33.33)"
                print(f"Epoch: [{epoch}][{i:>2d}/{len(loader)}]\t{parts}\t{sums}")
    print(f"\nTest (Rank):\nACC@1:    {100 * evaluated(model, samples(96))[1]:.4f}%    ACC@5:    100.0000%")


def blocks_with_optimizers() -> None:
    opt = SimpleNamespace(num_epochs=3, start_epoch=0)
    train_loader, blocks = samples(), [net(), net(), net()]
    optimizer = [torch.optim.Adam(one.parameters(), lr=2e-4) for one in blocks]
    total_step = len(train_loader)
    truth["total"] = opt.num_epochs * total_step
    for epoch in range(opt.start_epoch, opt.num_epochs + opt.start_epoch):
        for at, (x, y) in enumerate(train_loader):
            if at % 10 == 0:
                place = f"Epoch [{epoch + 1}/{opt.num_epochs + opt.start_epoch}], Step [{at}/{total_step}]"
                print(f"{place}, Training Block: 3, Time (s): 0.1")
            for idx, block in enumerate(blocks):
                loss = backward(block, x, y)
                optimizer[idx].step()
                optimizer[idx].zero_grad()
                if at % 10 == 0:
                    print(f"\t \t Loss: \t \t {shown(loss)}")
            step()


def forecasting() -> None:
    args = argparse.Namespace(train_epochs=4, patience=3)
    train_loader, vali_loader, model = samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth["total"] = args.train_epochs * len(train_loader)
    for epoch in range(args.train_epochs):
        total = 0.0
        for i, (x, y) in enumerate(train_loader):
            loss = backward(model, x, y)
            total += loss
            if (i + 1) % 20 == 0:
                print(f"\titers: {i + 1}, epoch: {epoch + 1} | loss: {shown(loss, '%.7f')}")
                print("\tspeed: 0.0210s/iter; left time: 3.3600s")
            step(optimizer)
        print(f"Epoch: {epoch + 1} cost time: 0.8")
        vali, test = evaluated(model, vali_loader)[0], evaluated(model, train_loader)[0]
        of = f"Vali Loss: {shown(vali, '%.7f', 'held_out')} Test Loss: {shown(test, '%.7f', 'held_out')}"
        print(
            f"Epoch: {epoch + 1}, Steps: {len(train_loader)} | Train Loss: {shown(total / len(train_loader), '%.7f')} {of}"
        )
        print(f"EarlyStopping counter: {epoch} out of {args.patience}")


def contrastive() -> None:
    epochs, loader, model = 4, samples(), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        total_loss, total_num, train_bar = 0.0, 0, tqdm(loader)
        for x, y in train_bar:
            total_loss, total_num = total_loss + 16 * update(model, optimizer, x, y), total_num + 16
            train_bar.set_description(f"Train Epoch: [{epoch}/{epochs}] Loss: {shown(total_loss / total_num)}")
        test_bar = tqdm(loader)
        for _ in test_bar:
            test_bar.set_description(f"Test Epoch: [{epoch}/{epochs}] Acc@1:33.33% Acc@5:100.00%")


def lecture() -> None:
    max_iters, eval_interval, eval_iters, model = 160, 40, 20, net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    held_out = samples(160)
    truth["total"] = max_iters
    print("0.21 M parameters")
    for at in range(max_iters):
        if at % eval_interval == 0 or at == max_iters - 1:
            train, val = evaluated(model, held_out)[0], evaluated(model, held_out)[0]
            print(f"step {at}: train loss {shown(train)}, val loss {shown(val, of='held_out')}")
        update(model, optimizer, *random_batch())


def images_in_a_bar() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    epochs, train_loader, val_loader, model = 3, samples(), samples(160), net()
    n_train, global_step = 640, 0
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-5)
    truth["total"] = epochs * len(train_loader)
    for epoch in range(1, epochs + 1):
        with tqdm(total=n_train, desc=f"Epoch {epoch}/{epochs}", unit="img") as pbar:
            for images, masks in train_loader:
                loss = update(model, optimizer, images, masks)
                pbar.update(images.shape[0])
                global_step += 1
                pbar.set_postfix(**{"loss (batch)": float(shown(loss, "%.3g"))})
                if global_step % 20 == 0:
                    for _ in tqdm(
                        val_loader, total=len(val_loader), desc="Validation round", unit="batch", leave=False
                    ):
                        time.sleep(0.01)
                    logging.info("Validation Dice score: 0.4")
        logging.info(f"Checkpoint {epoch} saved!")


def contrast_with_meters() -> None:
    opt = argparse.Namespace(epochs=3, print_freq=10)
    loader, val_loader, model = samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    truth["total"] = opt.epochs * len(loader)
    for epoch in range(1, opt.epochs + 1):
        total = 0.0
        for idx, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            total += loss
            if (idx + 1) % opt.print_freq == 0:
                of = f"loss {shown(loss, '%.3f')} ({shown(total / (idx + 1), '%.3f')})\tAcc@1 33.333 (33.333)"
                print(f"Train: [{epoch}][{idx + 1}/{len(loader)}]\tBT 0.020 (0.021)\tDT 0.000 (0.001)\t{of}")
        print(f"epoch {epoch}, total time 0.84")
        total = 0.0
        for idx, (x, y) in enumerate(val_loader):
            with torch.no_grad():
                loss = F.cross_entropy(model(x), y).item()
            total += loss
            if idx % opt.print_freq == 0:
                of = f"Loss {shown(loss, of='held_out')} ({shown(total / (idx + 1), of='held_out')})\tAcc@1 33.333 (33.333)"
                print(f"Test: [{idx}/{len(val_loader)}]\tTime 0.020 (0.021)\t{of}")
        print(" * Acc@1 33.333")


def minutes() -> None:
    N_EPOCHS, train_iterator, valid_iterator, model = 4, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters())
    truth["total"] = N_EPOCHS * len(train_iterator)
    for epoch in range(N_EPOCHS):
        total = 0.0
        for x, y in train_iterator:
            total += update(model, optimizer, x, y)
        train, valid = total / len(train_iterator), evaluated(model, valid_iterator)[0]
        print(f"Epoch: {epoch + 1:02} | Time: 0m 1s")
        print(f"\tTrain Loss: {shown(train, '%.3f')} | Train PPL: {math.exp(train):7.3f}")
        print(f"\t Val. Loss: {shown(valid, '%.3f', 'held_out')} |  Val. PPL: {math.exp(valid):7.3f}")


def closures() -> None:
    opt, model = argparse.Namespace(steps=12), net()
    x, y = torch.randn(64, 8), torch.randint(0, 3, (64,))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8, max_iter=8)
    truth["total"] = opt.steps
    for i in range(opt.steps):
        print("STEP: ", i)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            print("loss:", shown(loss.item(), "%.16f"))
            loss.backward()
            time.sleep(PAUSE_S)
            return loss

        optimizer.step(closure)
        truth["updates"] += 1
        with torch.no_grad():
            print("test loss:", shown(F.cross_entropy(model(x[:16]), y[:16]).item(), "%.16f", "held_out"))


if __name__ == "__main__":
    run(globals())
