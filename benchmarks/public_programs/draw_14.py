"""Fourteen more, drawn after what those had shown was mended."""

from __future__ import annotations

import logging
import math
import sys
from types import SimpleNamespace

import torch
from account import judge_accuracies, shown, truth
from toy import evaluated, net, random_batch, run, samples, update
from tqdm import tqdm

judge_accuracies()


def best_is_saved() -> None:
    num_epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters())
    truth.update(total=120, epochs=3)
    best = 0.0
    for epoch in range(1, num_epochs + 1):
        model.train()
        mean = sum(update(model, optimizer, x, y) for x, y in loader) / len(loader)
        acc = shown(33.0 + epoch, "%.2f", "training_accuracy")
        model.eval()
        val, right = evaluated(model, held_out)
        if right > best:
            best = right
            print("\n Saved Best Model")
        print(
            f"Epoch {epoch}/{num_epochs} - Train Loss: {shown(mean)} | Train Acc: {acc}% | Val Loss: {shown(val, of='held_out')} | Val Acc: {shown(100 * right, '%.2f', 'held_out_accuracy')}%"
        )


def schedule_in_silence() -> None:
    epochs, train_loader, model = 3, samples(), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.1)
    truth.update(total=[120, None], epochs=3)
    for _ in range(epochs):
        model.train()
        for x, y in train_loader:
            update(model, optimizer, x, y)
        scheduler.step()


def skeleton() -> None:
    num_epochs, train_loader, val_loader, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    truth.update(total=[120, None], epochs=3)
    for epoch in range(1, num_epochs + 1):
        model.train()
        mean = sum(update(model, optimizer, x, y) for x, y in train_loader) / len(train_loader)
        acc = shown(31.5 + epoch, "%.2f", "training_accuracy")
        print(f"Train Epoch: {epoch} Loss: {shown(mean, '%.6f')} Acc: {acc}%")
        model.eval()
        val, right = evaluated(model, val_loader)
        acc = shown(100 * right, "%.2f", "held_out_accuracy")
        print(f"Validation Loss: {shown(val, '%.6f', 'held_out')} Acc: {acc}%")
    print(f"Best validation accuracy: {100 * right:.2f}%")


def arrows_about_training() -> None:
    loader, held_out, model = samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    truth.update(total=[120, None], epochs=3)
    for epoch in range(3):
        model.train()
        for at, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            if at % 10 == 0:
                acc = shown(31.25 + epoch, "%.6f", "training_accuracy")
                print(
                    f"about train:-------> epoch:{epoch} training:[{at}/{len(loader)}] loss:{shown(loss, '%.6f')} accuracy:{acc}% lr:{0.01}"
                )
        model.eval()
        val, right = evaluated(model, held_out)
        acc = shown(100 * right, "%.6f", "held_out_accuracy")
        print(f"about val:-------> epoch:{epoch} loss:{shown(val, '%.6f', 'held_out')} accuracy:{acc}%")


def links_at_the_end() -> None:
    epochs, model, (x, y) = 100, net(), random_batch(200)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    truth.update(total=[100, None], epochs=100)
    for epoch in tqdm(range(1, epochs + 1)):
        model.train()
        update(model, optimizer, x, y)
    model.eval()
    print(f"Epoch: {epoch:03d}, AUC: {0.81:.4f}, AP: {0.83:.4f}")


def links_each_epoch() -> None:
    model, (x, y) = net(), random_batch(200)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    truth.update(total=[100, None], epochs=100)
    best = final = 0.0
    for epoch in range(1, 101):
        model.train()
        loss = update(model, optimizer, x, y)
        model.eval()
        val, test = 0.6 + epoch / 1000, 0.59 + epoch / 1000
        if val > best:
            best, final = val, test
        print(f"Epoch: {epoch:03d}, Loss: {shown(loss)}, Val: {val:.4f}, Test: {test:.4f}")
    print(f"Final Test: {final:.4f}")


def crystals() -> None:
    args, loader, held_out, model = SimpleNamespace(epoch=3, stop_patience=None), samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    truth.update(total=[120, None], epochs=3)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.100 %(levelname)s: %(message)s", stream=sys.stdout)
    logging.info(f"Parsed arguments:\n{vars(args)}")
    best, best_epoch = 10.0, 0
    for epoch in range(args.epoch):
        model.train()
        mean = sum(update(model, optimizer, x, y) for x, y in loader) / len(loader)
        model.eval()
        val = evaluated(model, held_out)[0]
        logging.info(
            f"Epoch [{epoch + 1:03d}/{args.epoch}] - Train Loss: {shown(mean, '%.5f')}, Valid Loss: {shown(val, '%.5f', 'held_out')}, LR: [0.001]"
        )
        if val < best and epoch < 2:
            best, best_epoch = val, epoch + 1
            logging.info(f"  [SAVE] Best model at epoch {best_epoch}.")
    logging.info(f"Loading the best model of epoch {best_epoch}")


def indoors() -> None:
    num_epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters())
    truth.update(total=120, epochs=3)
    print(f"Number of training batches: {len(loader)}\nNumber of validation batches: {len(held_out)}")
    train, val = evaluated(model, loader)[0], evaluated(model, held_out)[0]
    print(f"Baseline Train Loss: {shown(train, of='held_out')}, Baseline Val Loss: {shown(val, of='held_out')}")
    for epoch in range(num_epochs):
        model.train()
        mean = sum(update(model, optimizer, x, y) for x, y in loader) / len(loader)
        model.eval()
        val = evaluated(model, held_out)[0]
        print(f"Epoch [{epoch + 1}/{num_epochs}], Train Loss: {shown(mean)}, Val Loss: {shown(val, of='held_out')}")


def translation_tutorial() -> None:
    NUM_EPOCHS, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0001)
    truth.update(total=[120, None], epochs=3)
    for epoch in range(1, NUM_EPOCHS + 1):
        model.train()
        mean = sum(update(model, optimizer, x, y) for x, y in loader) / len(loader)
        model.eval()
        val = evaluated(model, held_out)[0]
        print(
            f"Epoch: {epoch}, Train loss: {shown(mean, '%.3f')}, Val loss: {shown(val, '%.3f', 'held_out')}, Epoch time = {0.912:.3f}s"
        )


def bars_of_both() -> None:
    n_epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0001)
    truth.update(total=120, epochs=3)
    for epoch in range(n_epochs):
        model.train()
        bar, losses = tqdm(enumerate(loader), total=len(loader), desc=f"Training epoch {epoch + 1}/{n_epochs}"), []
        for _, (x, y) in bar:
            losses.append(update(model, optimizer, x, y))
            bar.set_postfix(loss=shown(losses[-1], "%.16f"))
        model.eval()
        bar = tqdm(enumerate(held_out), total=len(held_out), desc=f"Validating epoch {epoch + 1}/{n_epochs}")
        for _, (x, y) in bar:
            with torch.no_grad():
                loss = torch.nn.functional.cross_entropy(model(x), y).item()
            bar.set_postfix(loss=shown(loss, "%.16f", "held_out"))


def anomalies() -> None:
    n_epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth.update(total=[120, None], epochs=3)
    print(f"Init total train loss: {evaluated(model, loader)[0]:5f}")
    for epoch in range(n_epochs):
        model.train()
        mean = sum(update(model, optimizer, x, y) for x, y in loader) / len(loader)
        model.eval()
        val = evaluated(model, held_out)[0]
        print(
            f"[Epoch {epoch + 1}] forecast_loss = {mean / 3:.5f}, recon_loss = {mean / 1.5:.5f}, total_loss = {shown(mean, '%.5f')} ---- val_forecast_loss = {val / 3:.5f}, val_recon_loss = {val / 1.5:.5f}, val_total_loss = {shown(val, '%.5f', 'held_out')} [0.9s]"
        )
    print("-- Training done in 3s.")


def shares_of_steps() -> None:
    epoch, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters())
    truth.update(total=[120, None], epochs=3)
    for at in range(epoch):
        model.train()
        total = 0.0
        for i, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            total += loss
            print("step :", round((i / len(loader)) * 100, 2), "% , loss :", float(shown(loss, "%.16f")))
        model.eval()
        mean, val = total / len(loader), evaluated(model, held_out)[0]
        print(f"Epoch: {at + 1} | Time: 0m 1s")
        print(f"\tTrain Loss: {shown(mean, '%.3f')} | Train PPL: {math.exp(mean):7.3f}")
        print(
            f"\tVal Loss: {shown(val, '%.3f', 'held_out')} |  Val PPL: {math.exp(val):7.3f}\n\tBLEU Score: {0.123:.3f}"
        )


def similarities() -> None:
    loader, model = samples(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06)
    truth.update(total=[120, None], epochs=3)
    print("Starting Training")
    for epoch in range(3):
        mean = sum(update(model, optimizer, x, y) for x, y in loader) / len(loader)
        print(f"epoch: {epoch:>02}, loss: {shown(mean, '%.5f')}")


def simply_transformed() -> None:
    args, loader, model = SimpleNamespace(num_train_epochs=3, max_steps=-1), samples(), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-5)
    truth.update(total=120, epochs=3)
    epochs = tqdm(range(args.num_train_epochs), desc="Epoch")
    for epoch in epochs:
        model.train()
        epochs.set_description(f"Epoch {epoch + 1} of {args.num_train_epochs}")
        bar = tqdm(loader, desc=f"Running Epoch {epoch + 1} of {args.num_train_epochs}")
        for x, y in bar:
            loss = update(model, optimizer, x, y)
            bar.set_description(f"Epochs {epoch}/{args.num_train_epochs}. Running Loss: {float(shown(loss)):9.4f}")


if __name__ == "__main__":
    run(globals())
