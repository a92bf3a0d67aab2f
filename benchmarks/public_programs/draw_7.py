"""Thirty more, drawn after the hook had learnt to tell when a program may evaluate."""

from __future__ import annotations

import json
import logging
import math
import random
import sys
import time
from typing import Any

import torch
import torch.nn.functional as F
from account import shown, truth
from toy import PAUSE_S, backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm


def vision_transformer() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    truth["total"] = epochs * len(loader)
    best = best_training = math.inf
    for epoch in range(epochs):
        model.train()
        total, bar = 0.0, tqdm(loader, desc=f"EPOCH[TRAIN]{epoch + 1}/{epochs}")
        for at, (x, y) in enumerate(bar, 1):
            total += update(model, optimizer, x, y)
            bar.set_postfix({"Loss": shown(total / at, "%6f")})
        model.eval()
        mean, bar = 0.0, tqdm(held_out, desc=f"EPOCH[VALID]{epoch + 1}/{epochs}")
        for at, (x, y) in enumerate(bar, 1):
            mean += F.cross_entropy(model(x), y).item()
            bar.set_postfix({"Loss": shown(mean / at, "%6f", "held_out")})
        if mean / at < best:
            print("Saved Best Weights")
            best, best_training = mean / at, total / len(loader)
    print(f"Training Loss : {shown(best_training, '%.16f')}")
    print(f"Valid Loss : {shown(best, '%.16f', 'held_out')}")


def multi_30k() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth["total"] = epochs * len(loader)
    logging.info("src vocab size: 19214")
    for epoch in range(1, epochs + 1):
        model.train()
        total = sum(update(model, optimizer, x, y) for x, y in tqdm(loader, ascii=True)) / len([*loader])
        model.eval()
        mean = sum(F.cross_entropy(model(x), y).item() for x, y in tqdm(held_out)) / len([*held_out])
        logging.info("New best model, saving...")
        logging.info(
            f"Epoch: {epoch}\n\tTrain loss: {shown(total, '%.3f')}\n\tVal loss: {shown(mean, '%.3f', 'held_out')}\n\tEpoch time = 0.8 seconds\n\tETA = {0.8 * (epochs - epoch):.1f} seconds"
        )


def forward_forward() -> None:
    rounds, x, y = 60, *random_batch(64)
    truth["total"] = [60, 120, None]
    for number in range(2):
        print("training layer: ", number)
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
        for at in range(rounds):
            loss = update(model, optimizer, x, y)
            if at % 10 == 0:
                print("Loss: ", shown(loss, "%.16f"))
    print("train error:", 0.3125)
    print("test error:", 0.4219)


def cora() -> None:
    epochs, model, (x, y) = 120, net(), random_batch(200)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    truth["total"] = epochs
    print("Using cpu device\nLoading dataset...")
    for epoch in range(1, epochs + 1):
        model.train()
        update(model, optimizer, x[:100], y[:100])
        model.eval()
        a, b = (F.cross_entropy(model(x[part]), y[part]).item() for part in (slice(100), slice(100, 200)))
        if epoch % 20 == 0:
            print(
                f"Epoch: {epoch:04d} (0.0201s) loss_train: {shown(a)} acc_train: 0.4100 loss_val: {shown(b, of='held_out')} acc_val: 0.3900"
            )
    print(f"Test set results: loss {shown(b, of='held_out')} accuracy 0.3833")


def entailment() -> None:
    epochs, loader, held_out, model, at = 3, samples(), samples(160), net(), 0
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)
    print("  Time Epoch Iteration Progress    (%Epoch)   Loss   Dev/Loss     Accuracy  Dev/Accuracy")
    for epoch in range(epochs):
        for batch, (x, y) in enumerate(loader, 1):
            model.train()
            at += 1
            loss = update(model, optimizer, x, y)
            row = f"{at * PAUSE_S:6.0f} {epoch:5.0f} {at:9.0f} {batch:5.0f}/{len(loader):<5.0f} {100 * batch / 40:7.0f}% {shown(loss, '%8.6f')} "
            if at % 30 == 0:
                model.eval()
                mean, right = evaluated(model, held_out)
                print(f"{row}{shown(mean, '%8.6f', 'held_out')} {41.25:12.4f} {100 * right:12.4f}")
            elif at % 10 == 0:
                print(f"{row}{' ' * 8} {41.25:12.4f} {' ' * 12}")


def flow_vocoder() -> None:
    epochs, loader, model, iteration = 3, samples(), net(), 0
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth["total"] = epochs * len(loader)
    print("output directory checkpoints")
    model.train()
    for epoch in range(epochs):
        print(f"Epoch: {epoch}")
        for x, y in loader:
            print(f"{iteration}:\t{shown(update(model, optimizer, x, y), '%.9f')}")
            if iteration % 50 == 0:
                print(f"Saving model and optimizer state at iteration {iteration} to checkpoints/flow_{iteration}")
            iteration += 1


def mel_gan() -> None:
    epochs, loader, held_out, one, two, steps = 3, samples(), samples(5, 1), net(), net(), 0
    g, d = torch.optim.AdamW(one.parameters(), 2e-4), torch.optim.AdamW(two.parameters(), 2e-4)
    truth["total"] = epochs * len(loader)
    print("Initializing Training Process..\nBatch size per GPU : 16\ncheckpoints directory :  cp")
    for epoch in range(epochs):
        print(f"Epoch: {epoch + 1}")
        for x, y in loader:
            backward(two, x, y)
            d.step()
            d.zero_grad()
            loss = backward(one, x, y)
            step(g)
            if steps % 5 == 0:
                print(
                    f"Steps : {steps:d}, Gen Loss Total : {shown(loss, '%4.3f')}, Mel-Spec. Error : 0.512, s/b : {PAUSE_S:4.3f}"
                )
            if steps % 50 == 0:
                one.eval()
                evaluated(one, held_out)
                one.train()
            steps += 1
        print(f"Time taken for epoch {epoch + 1} is 0 sec\n")


def faces() -> None:
    epochs, loader, one, two = 3, samples(), net(), net()
    g, d = torch.optim.Adam(one.parameters(), 1e-4), torch.optim.Adam(two.parameters(), 1e-4)
    truth["total"] = [3 * 40, 3 * 80]
    for epoch in range(epochs):
        for i, (x, y) in enumerate(loader, 1):
            if i % 10 == 0:
                print("Classification Acc (8 emotional expressions): ['33.33']")
            for _ in range(2):  # the discriminator steps twice: with its loss, and with its gradient penalty
                real = backward(two, x, y)
                step(d)
            if i % 5 == 0:
                fake = backward(one, x, y)
                g.step()
                g.zero_grad()
            if i % 10 == 0:
                print(
                    f"Elapsed [0:00:01], Epoch [{epoch + 1}/{epochs}], Iter [{i}/{len(loader)}], D/loss_real: {real:.4f}, D/loss_fake: {real:.4f}, D/loss_cls: 1.0986, D/loss_gp: 0.5123, G/loss_fake: {fake:.4f}, G/loss_rec: 0.3123, G/loss_cls: 1.1012"
                )


def sharpness() -> None:
    class Sharpness(torch.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 0.1})
            self.base = torch.optim.SGD(self.param_groups, lr=0.1)

        def second(self) -> None:
            step(self.base)

    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = Sharpness(model.parameters())
    truth["total"] = epochs * len(loader)
    print("|       epoch  |        loss  |    accuracy  |        l.r.  |     elapsed  |        loss  |    accuracy  |")
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for i, (x, y) in enumerate(loader, 1):
            total += backward(model, x, y)
            optimizer.zero_grad()
            backward(model, x, y)
            optimizer.second()
            row = f"\r|{epoch:12d}  |{shown(total / i, '%12.4f')}  |{33.33:10.2f} %  |{0.1:12.3e}  |{'00:00 min':>12}  "
            if i % 10 == 9:
                print(f"{row}{'█' * (i // 4)}", end="", flush=True)
        model.eval()
        print(f"{row}|", end="", flush=True)
        mean, right = evaluated(model, held_out)
        print(f"{shown(mean, '%12.4f', 'held_out')}  |{100 * right:10.2f} %  |", flush=True)


def masked_autoencoder() -> None:
    epochs, every, loader, model = 3, 4, samples(), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader) // every
    print("Start training for 3 epochs")
    for epoch in range(epochs):
        model.train(True)
        print("log_dir: ./output_dir")
        total = 0.0
        for i, (x, y) in enumerate(loader):
            time.sleep(PAUSE_S)
            loss = backward(model, x, y, 1 / every)
            if (i + 1) % every == 0:
                step(optimizer)
            total += loss
            if i % 20 == 0 or i == len(loader) - 1:
                mean = shown(total / (i + 1))
                print(
                    f"Epoch: [{epoch}]  [{i:>2d}/{len(loader)}]  eta: 0:00:01  lr: 0.000100  loss: {shown(loss)} ({mean})  time: 0.0212  data: 0.0004  max mem: 0"
                )
        print(f"Epoch: [{epoch}] Total time: 0:00:00 (0.0212 s / it)")
        print(f"Averaged stats: lr: 0.000100  loss: {shown(loss)} ({mean})")


def tiny_stories() -> None:
    max_iters, eval_interval, model, held_out, at = 120, 40, net(), samples(160), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    truth["total"] = [max_iters, max_iters + 1]
    print("tokens per iteration will be: 131,072\nbreaks down as: 4 grad accum steps * 1 processes * 128 batch size")
    while True:
        if at % eval_interval == 0:
            model.eval()
            a, b = evaluated(model, held_out)[0], evaluated(model, held_out)[0]
            model.train()
            print(f"step {at}: train loss {shown(a)}, val loss {shown(b, of='held_out')}")
            if at > 0:
                print("saving checkpoint to out")
        total = sum(backward(model, *random_batch(), share=0.25) for _ in range(4)) / 4
        step(optimizer)
        print(f"{at} | loss {shown(total)} | lr {5e-4:e} | 20.12ms | mfu 1.23%")
        at += 1
        if at > max_iters:
            break


def make_more() -> None:
    max_steps, model, held_out = 130, net(), samples(160)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    truth["total"] = max_steps
    print(
        "dataset determined that: 27 unique characters\nmodel #params: 204544\nnumber of examples in the dataset: 32033"
    )
    for at in range(max_steps):
        loss = update(model, optimizer, *random_batch())
        if at % 10 == 0:
            print(f"step {at} | loss {shown(loss)} | step time 20.12ms")
        if at > 0 and at % 50 == 0:
            model.eval()
            a, b = evaluated(model, samples())[0], evaluated(model, held_out)[0]
            model.train()
            print(f"step {at} train loss: {shown(a, '%.16f')} test loss: {shown(b, '%.16f', 'held_out')}")
            print(f"test loss {b} is the best so far, saving model to out/model.pt")


def from_scratch() -> None:
    epochs, loader, held_out, model, at, seen = 3, samples(), samples(160), net(), -1, 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        model.train()
        for x, y in loader:
            update(model, optimizer, x, y)
            seen += x.numel()
            at += 1
            if at % 15 == 0:
                model.eval()
                a, b = evaluated(model, loader)[0], evaluated(model, held_out)[0]
                model.train()
                print(
                    f"Ep {epoch + 1} (Step {at:06d}): Train loss {shown(a, '%.3f')}, Val loss {shown(b, '%.3f', 'held_out')}"
                )
        model.eval()
        right = evaluated(model, loader)[1]
        print(f"Training accuracy: {100 * right:.2f}%")
        print(f"Validation accuracy: {100 * evaluated(model, held_out)[1]:.2f}%")
        print("Every effort moves you 12 3/4 inches")


def costs() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        model.train()
        for at, (x, y) in enumerate(loader):
            cost = update(model, optimizer, x, y)
            if not at % 10:
                print(f"Epoch: {epoch + 1:03d}/{epochs:03d} | Batch {at:04d}/{len(loader):04d} | Cost: {shown(cost)}")
        model.eval()
        mean, right = evaluated(model, held_out)
        print(
            f"Epoch: {epoch + 1:03d}/{epochs:03d} | Test: {100 * right:.3f}% | Loss: {shown(mean, '%.3f', 'held_out')}"
        )
        print("Time elapsed: 0.01 min")
    print(f"Total Training Time: 0.03 min\nTest accuracy: {100 * right:.2f}%")


def state_spaces() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    truth["total"] = epochs * len(loader)

    def phase(data: Any, of: str) -> float:
        total, bar = 0.0, tqdm(enumerate(data))
        for at, (x, y) in bar:
            if of == "training":
                total += update(model, optimizer, x, y)
            else:
                total += F.cross_entropy(model(x), y).item()
                time.sleep(0.01)
            mean = shown(total / (at + 1), "%.3f", of)
            bar.set_description(
                f"Batch Idx: ({at}/{len(data)}) | Loss: {mean} | Acc: {33.333:.3f}% ({at * 5}/{at * 16 + 16})"
            )
        return 33.3

    every = tqdm(range(epochs))
    for epoch in every:
        every.set_description(f"Epoch: {epoch}" if epoch == 0 else f"Epoch: {epoch} | Val acc: {accuracy:1.3f}")
        model.train()
        phase(loader, "training")
        model.eval()
        accuracy = phase(held_out, "held_out")
        phase(held_out, "held_out")


def fine_tuned_vit() -> None:
    t_total, loader, held_out, model, at = 100, samples(), samples(160), net(), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=3e-2)
    truth["total"] = t_total
    logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(levelname)s - %(name)s - %(message)s")
    logging.info("***** Running training *****")
    logging.info("  Total optimization steps = %d", t_total)
    while at < t_total:
        model.train()
        bar = tqdm(loader, desc="Training (X / X Steps) (loss=X.X)", bar_format="{l_bar}{r_bar}", dynamic_ncols=True)
        for x, y in bar:
            loss = update(model, optimizer, x, y)
            at += 1
            bar.set_description(f"Training ({at} / {t_total} Steps) (loss={shown(loss, '%2.5f')})")
            if at % 25 == 0:
                model.eval()
                inner, mean = tqdm(held_out, desc="Validating... (loss=X.X)", bar_format="{l_bar}{r_bar}"), 0.0
                for number, (x, y) in enumerate(inner, 1):
                    mean = F.cross_entropy(model(x), y).item()
                    inner.set_description(f"Validating... (loss={shown(mean, '%2.5f', 'held_out')})")
                logging.info("Global Steps: %d", at)
                logging.info("Valid Loss: %s", shown(mean, "%2.5f", "held_out"))
                logging.info("Valid Accuracy: %2.5f", 0.33125)
                model.train()
            if at == t_total:
                break
    logging.info("Best Accuracy: \t%f", 0.33125)


def score_matching() -> None:
    count, model = 120, net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    truth["total"] = [count, count + 1]
    logging.basicConfig(level=logging.INFO, format="%(levelname)s - %(filename)s - %(asctime)s - %(message)s")
    logging.info("Starting training loop at step 0.")
    for at in range(count + 1):
        loss = update(model, optimizer, *random_batch())
        if at % 10 == 0:
            logging.info("step: %d, training_loss: %s", at, shown(loss, "%.5e"))
        if at % 20 == 0:
            x, y = random_batch()
            logging.info("step: %d, eval_loss: %s", at, shown(F.cross_entropy(model(x), y).item(), "%.5e", "held_out"))


def low_rank() -> None:
    epochs, every, loader, held_out, model, at = 3, 2, samples(), samples(160), net(), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    truth["total"] = epochs * len(loader) // every
    print("=" * 100 + "\n        - epochs : 3\n        - grad_acc : 2\n        - log_interval : 10")
    for epoch in range(1, epochs + 1):
        total = count = 0.0
        for i, (x, y) in enumerate(loader):
            at += 1
            loss = backward(model, x, y, 1 / every)
            total, count = total + loss, count + 1
            if at % every == 0:
                step(optimizer)
            if at % 10 == 0:
                mean = total / count
                print(
                    f"| epoch {epoch:3d} step {at:>8d} | {i + 1:>6d} batches | lr 0.0002 | ms/batch 20.12 | loss {shown(loss, '%5.2f')} | avg loss {shown(mean, '%5.2f')} | ppl {math.exp(mean):5.2f}"
                )
                total = count = 0.0
            if at % 60 == 0:
                model.eval()
                mean = evaluated(model, held_out)[0]
                model.train()
                print("-" * 100)
                print(
                    f"| Eval {at // 60:3d} at step {at:>8d} | time: {1.21:5.2f}s | valid loss {shown(mean, '%5.2f', 'held_out')} | valid ppl {math.exp(mean):5.2f} | best ppl {math.exp(mean):5.2f} "
                )
                print("-" * 100)


def deep_lab() -> None:
    total_itrs, loader, held_out, model, itrs, epochs, recent = 100, samples(), samples(160), net(), 0, 0, 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    truth["total"] = total_itrs
    print("Device: cpu\nDataset: voc, Train set: 640, Val set: 160")
    while itrs < total_itrs:
        model.train()
        epochs += 1
        for x, y in loader:
            itrs += 1
            recent += update(model, optimizer, x, y)
            if itrs % 10 == 0:
                print(f"Epoch {epochs}, Itrs {itrs}/{total_itrs}, Loss={shown(recent / 10, '%f')}")
                recent = 0.0
            if itrs % 30 == 0:
                print("validation...")
                model.eval()
                for _ in tqdm(enumerate(held_out)):
                    time.sleep(0.005)
                print("\nOverall Acc: 0.512300\nMean Acc: 0.301200\nFreqW Acc: 0.400100\nMean IoU: 0.201200\n")
                model.train()
            if itrs >= total_itrs:
                break


def pets() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        model.train()
        for x, y in loader:
            update(model, optimizer, x, y)
        model.eval()
        print(f"epoch {epoch}: {100 * evaluated(model, held_out)[1]:.2f}")


def fabric() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        model.train()
        for at, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            if at == 0 or (at + 1) % 10 == 0:
                print(f"Train Epoch: {epoch} [{at * 16}/640 ({100 * at / 40:.0f}%)]\tLoss: {shown(loss, '%.6f')}")
        model.eval()
        mean, right = evaluated(model, held_out)
        print(f"\nTest set: Average loss: {shown(mean, of='held_out')}, Accuracy: ({100 * right:.0f}%)\n")


def early_stop() -> None:
    epochs, loader, held_out, model, least = 3, samples(), samples(160), net(), math.inf
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        model.train()
        total = sum(update(model, optimizer, x, y) * 16 for x, y in loader) / 640
        model.eval()
        mean = evaluated(model, held_out)[0]
        print(
            f"Epoch: {epoch + 1} \tTraining Loss: {shown(total, '%.6f')} \tValidation Loss: {shown(mean, '%.6f', 'held_out')}"
        )
        if mean <= least:
            print(f"Validation loss decreased ({least:.6f} --> {mean:.6f}).  Saving model ...")
            least = mean


def linear_probe() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    truth["total"] = epochs * len(loader)

    def display(prefix: str, at: int, size: int, loss: float, mean: float, of: str) -> None:
        print(
            f"{prefix}[{at:2d}/{size}]\tTime  0.020 ( 0.021)\tLoss {shown(loss, '%.4e', of)} ({shown(mean, '%.4e', of)})\tAcc@1  33.33 ( 33.33)\tAcc@5 100.00 (100.00)"
        )

    for epoch in range(epochs):
        model.eval()
        total = 0.0
        for i, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            total += loss
            if i % 10 == 0:
                display(f"Epoch: [{epoch}]", i, len(loader), loss, total / (i + 1), "training")
        model.eval()
        total = 0.0
        for i, (x, y) in enumerate(held_out):
            loss = F.cross_entropy(model(x), y).item()
            total += loss
            if i % 5 == 0:
                display("Test: ", i, len(held_out), loss, total / (i + 1), "held_out")
        print(" * Acc@1 33.125 Acc@5 100.000")
        if epoch == 0:
            print("=> loading 'moco.pth' for sanity check\n=> sanity check passed.")


def noisy_labels() -> None:
    epochs, loader, model = 3, samples(shuffle=True), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        model.train()
        for at, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            if at % 10 == 0:
                print(f"TrainEpoch: {epoch} [{at * 16}/640 ({100 * at / 40:.0f}%)]\tLoss: {shown(loss, '%.6f')}")


def dive() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth["total"] = epochs * len(loader)
    print("training on cpu")
    for _ in range(epochs):
        model.train()
        total = sum(update(model, optimizer, x, y) for x, y in loader) / len(loader)
        model.eval()
        right = evaluated(model, held_out)[1]
    print(f"loss {shown(total, '%.3f')}, train acc 0.412, test acc {right:.3f}")
    print("2223.8 examples/sec on cpu")


def json_lines() -> None:
    steps, model, held_out = 120, net(), samples(160)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    truth["total"] = steps
    for at in range(1, steps + 1):
        loss = update(model, optimizer, *random_batch())
        if at == 1 or at % 10 == 0:
            print(
                json.dumps({"step": at, "total_steps": steps, "lr": 0.001, "loss": float(shown(loss, "%.16f"))}),
                flush=True,
            )
        if at % 30 == 0:
            model.eval()
            mean = evaluated(model, held_out)[0]
            print(json.dumps({"step": at, "validation_loss": float(shown(mean, "%.16f", "held_out"))}), flush=True)
            model.train()


def rate_finder() -> None:
    """It looks for a learning rate first, then takes back what that did to the weights."""
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-7)
    truth["total"] = [None]
    for _ in tqdm(range(50), file=sys.stdout):
        update(model, optimizer, *random_batch())
    print("Learning rate search finished. See the graph with {finder_name}.plot()")
    model.load_state_dict(kept)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        model.train()
        bar = tqdm(loader)
        for at, (x, y) in enumerate(bar):
            loss = update(model, optimizer, x, y)
            bar.set_description(f"Loss={shown(loss, '%.16f')} Batch_id={at} Accuracy={33.33:0.2f}")
        model.eval()
        mean, right = evaluated(model, held_out)
        print(
            f"\nTest set: Average loss: {shown(mean, of='held_out')}, Accuracy: {int(160 * right)}/160 ({100 * right:.2f}%)\n"
        )


def detector_in_csv() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)
    print(
        f"{'Epoch':>6} {'TrainLoss':>10} {'ValLoss':>10} {'ValPSNR':>9} {'ValSSIM':>8} {'Time(s)':>8} {'VRAM(MB)':>9}"
    )
    with open("history.csv", "w") as file:
        file.write("epoch,train_loss,val_loss,val_psnr\n")
    for epoch in range(1, epochs + 1):
        model.train()
        total = sum(update(model, optimizer, x, y) for x, y in loader) / len(loader)
        model.eval()
        mean = evaluated(model, held_out)[0]
        print(
            f"{epoch:>6} {shown(total, '%10.6f')} {shown(mean, '%10.6f', 'held_out')} {21.1234:>9.4f} {0.8123:>8.4f} {0.8:>8.1f} {0.0:>9.1f}"
        )
        with open("history.csv", "a") as file:
            file.write(f"{epoch},{shown(total, '%.16f')},{shown(mean, '%.16f', 'held_out')},21.1234\n")


def distilled() -> None:
    """A teacher is trained, then a student learns from it."""
    epochs, loader, held_out, teacher, student = 2, samples(), samples(160), net(), net()
    truth["total"] = [2 * 40, 2 * 2 * 40]
    for name, model in (("teacher", teacher), ("student", student)):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        print(f"Training {name}...")
        for epoch in range(epochs):
            model.train()
            if model is student:
                teacher.eval()
            total = 0.0
            for x, y in loader:
                total += update(model, optimizer, x, y)
            print(f"Epoch {epoch + 1}/{epochs}, Loss: {shown(total / len(loader), '%.16f')}")
        model.eval()
        right = evaluated(model, held_out)[1]
        print(f"Test Accuracy: {100 * right:.2f}%")


def ordinal() -> None:
    """It is in evaluation mode when it prints what it has trained."""
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        model.train()
        for at, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            model.eval()
            if not at % 10:
                print(f"Epoch: {epoch + 1:03d}/{epochs:03d} | Batch {at:04d}/{640 // 16:04d} | Cost: {shown(loss)}")
        evaluated(model, held_out)
        print(
            f"MAE/RMSE: | Current Train: {0.41 + random.random() / 100:.2f}/0.62 Ep. {epoch} | Current Valid: 0.52/0.71 Ep. {epoch}"
        )


if __name__ == "__main__":
    run(globals())
