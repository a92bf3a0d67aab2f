"""Twelve more, drawn after that."""

from __future__ import annotations

import math
import random
import time

import torch
import torch.nn.functional as F
from account import shown, truth
from toy import backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm


def spade() -> None:
    epochs, loader, one, two = 3, samples(), net(), net()
    g, d = torch.optim.Adam(one.parameters(), lr=1e-4), torch.optim.Adam(two.parameters(), lr=4e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        for i, (x, y) in enumerate(loader, 1):
            a = backward(one, x, y)
            g.step()
            g.zero_grad()
            b = backward(two, x, y)
            step(d)
            if i % 10 == 0:
                print(
                    f"(epoch: {epoch}, iters: {i * 16}, time: 0.021) GAN: {a:.3f} GAN_Feat: 1.012 VGG: 2.023 D_Fake: {b:.3f} D_real: 0.212 "
                )
        print(
            f"End of epoch {epoch} / {epochs} \t Time Taken: 1 sec\nsaving the latest model (epoch {epoch}, total_steps {epoch * 640})"
        )


def sphere_face() -> None:
    epochs, loader, model = 3, samples(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        total = 0.0
        for i, (x, y) in enumerate(loader, 1):
            total += update(model, optimizer, x, y)
            print(
                f"Te={epoch} Loss={shown(total / i)} | AccT=33.3333% ({i * 5}/{i * 16}) | 2.20000 1.10000 0.100000 1.00",
                end="\r",
                flush=True,
            )
        print("")


def semantic_segmentation() -> None:
    most, model, held_out, i = 120, net(), samples(160), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    truth["total"] = most
    while i < most:
        for x, y in samples():
            i += 1
            loss = update(model, optimizer, x, y)
            if i % 10 == 0:
                print(f"Iter [{i:d}/{most:d}]  Loss: {shown(loss)}  Time/Image: {0.0012:.4f}")
            if i % 50 == 0 or i == most:
                for _ in tqdm(enumerate(held_out)):
                    time.sleep(0.002)
                print(f"INFO:ptsemseg:Iter {i} Loss: {shown(evaluated(model, held_out)[0], of='held_out')}")
                print("Overall Acc: \t 0.5123\nMean Acc : \t 0.3012\nFreqW Acc : \t 0.4001\nMean IoU : \t 0.2012")
            if i == most:
                break


def deep_speech() -> None:
    epochs, loader, model = 3, samples(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=3e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        total = 0.0
        for i, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            total += loss
            print(
                f"Epoch: [{epoch + 1}][{i + 1}/{len(loader)}]\tTime 0.020 (0.021)\tData 0.001 (0.001)\tLoss {shown(loss)} ({shown(total / (i + 1))})\t"
            )
        print(
            f"Training Summary Epoch: [{epoch + 1}]\tTime taken (s): 1\tAverage Loss {shown(total / len(loader), '%.3f')}\t"
        )
        print(f"Validation Summary Epoch: [{epoch + 1}]\tAverage WER 33.300\tAverage CER 12.300\t")


def zero_to_all() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    truth["total"] = epochs * len(loader)
    print(f"Training MNIST Model on cpu\n{'=' * 44}")
    for epoch in range(1, epochs + 1):
        for i, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            if i % 10 == 0:
                print(
                    f"Train Epoch: {epoch} | Batch Status: {i * 16}/640 ({100 * i / 40:.0f}%) | Loss: {shown(loss, '%.6f')}"
                )
        print("Training time: 0m 1s")
        mean, right = evaluated(model, held_out)
        print(
            f"===========================\nTest set: Average loss: {shown(mean, of='held_out')}, Accuracy: {int(right * 160)}/160 ({100 * right:.0f}%)"
        )


def morvan() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        for at, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            if at % 10 == 0:
                print(
                    "Epoch: ",
                    epoch,
                    "| train loss: %s" % shown(loss),
                    "| test accuracy: %.2f" % evaluated(model, held_out)[1],
                )


def show_and_tell() -> None:
    epochs, loader, model = 3, samples(), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        for i, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            if i % 10 == 0:
                print(
                    f"Epoch [{epoch}/{epochs}], Step [{i}/{len(loader)}], Loss: {shown(loss)}, Perplexity: {math.exp(loss):5.4f}"
                )


def deep_rl() -> None:
    model, total = net(), 0
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
    truth["total"] = None
    for at in range(100):
        total += 16
        update(model, optimizer, *random_batch())
        if total % 160 == 0:
            print(f"2026-11-26 12:00:00,000 - root - INFO: steps {total}, {812.3:3.2f} steps/s")
        if at % 7 == 0:
            print(f"2026-11-26 12:00:00,000 - root - INFO: steps {total}, episodic_return_train {20 + random.random()}")


def sequence_to_sequence() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters())
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        recent, every = 0.0, 0.0
        for i, (x, y) in enumerate(loader, 1):
            loss = update(model, optimizer, x, y)
            recent, every = recent + loss, every + loss
            if i % 10 == 0:
                done = ((epoch - 1) * 40 + i) / (epochs * 40) * 100
                print(
                    f"2026-11-26 12:00:00,000 seq2seq.trainer.supervised_trainer INFO     Progress: {int(done)}%, Train NLLLoss: {shown(recent / 10)}"
                )
                recent = 0.0
        mean, right = evaluated(model, held_out)
        print(
            f"2026-11-26 12:00:01,000 seq2seq.trainer.supervised_trainer INFO     Finished epoch {epoch}: Train NLLLoss: {shown(every / 40)}, Dev NLLLoss: {shown(mean, of='held_out')}, Accuracy: {right:.4f}"
        )


def old_mmseg() -> None:
    most, model = 120, net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-5)
    truth["total"] = most
    for at in range(1, most + 1):
        loss = update(model, optimizer, *random_batch())
        if at % 20 == 0:
            print(
                f"2026-11-26 12:00:00,000 - mmseg - INFO - Iter [{at}/{most}]\tlr: 1.000e-04, eta: 0:00:02, time: 0.020, data_time: 0.001, "
                f"memory: 0, decode.loss_ce: {loss / 2:.4f}, decode.acc_seg: 33.3412, aux.loss_ce: {loss / 2:.4f}, aux.acc_seg: 30.1234, loss: {shown(loss)}"
            )


def keywords() -> None:
    epochs, loader, held_out, model, at = 3, samples(), samples(160), net(), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        for x, y in loader:
            loss = update(model, optimizer, x, y)
            at += 1
            print(f"train step #{at} accuracy: {0.3438}, loss: {shown(loss, '%.16f')}")
        print(f"final dev accuracy: {evaluated(model, held_out)[1]}")


def vocoder() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        for phase, data, of in (("train_no_dev", loader, "training"), ("dev", held_out, "held_out")):
            total = 0.0
            for x, y in tqdm(data):
                if phase == "dev":
                    with torch.no_grad():
                        total += F.cross_entropy(model(x), y).item()
                else:
                    total += update(model, optimizer, x, y)
            print(f"[{phase}] Loss: {shown(total / len(data), '%.16f', of)}")


if __name__ == "__main__":
    run(globals())
