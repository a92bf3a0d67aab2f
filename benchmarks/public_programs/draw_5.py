"""Twelve more, drawn after what those twenty had shown was mended."""

from __future__ import annotations

import logging
import math
import random
import sys

import torch
import torch.nn.functional as F
from account import shown, truth
from toy import backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm


def cifar_hundred() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        for i, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            print(f"Training Epoch: {epoch} [{(i + 1) * 16}/640]\tLoss: {shown(loss)}\tLR: {0.1:0.6f}")
        print(f"epoch {epoch} training time consumed: {1.0:.2f}s\nEvaluating Network.....")
        mean, right = evaluated(model, held_out)
        print(
            f"Test set: Epoch: {epoch}, Average loss: {shown(mean / 16, of='held_out')}, Accuracy: {right:.4f}, Time consumed:0.10s\n"
        )


def classification_bars() -> None:
    epochs, loader, model = 3, samples(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        print(f"\nEpoch: [{epoch + 1} | {epochs}] LR: {0.1:f}")
        total = 0.0
        for i, (x, y) in enumerate(loader, 1):
            total += update(model, optimizer, x, y)
            of = f"Loss: {shown(total / i)} | top1:  33.3333 | top5:  100.0000"
            sys.stdout.write(
                f"\rProcessing |{'#' * (i * 32 // 40):32}| ({i}/{len(loader)}) Data: 0.001s | Batch: 0.020s | Total: 0:00:01 | ETA: 0:00:01 | {of}"
            )
        sys.stdout.write("\n")


def py_gcn() -> None:
    epochs, x, y, model = 100, *random_batch(64), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    truth["total"] = epochs
    for epoch in range(epochs):
        loss = update(model, optimizer, x, y)
        with torch.no_grad():
            val = F.cross_entropy(model(x[:16]), y[:16]).item()
        print(
            f"Epoch: {epoch + 1:04d} loss_train: {shown(loss)} acc_train: 0.3438 loss_val: {shown(val, of='held_out')} acc_val: 0.3125 time: 0.0201s"
        )
    print("Optimization Finished!\nTotal time elapsed: 2.0100s")
    print(f"Test set results: loss= {shown(val, of='held_out')} accuracy= 0.3125")


def temporal_convolutions() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    truth["total"] = epochs * len(loader)
    for ep in range(1, epochs + 1):
        total = 0.0
        for at, (x, y) in enumerate(loader):
            total += update(model, optimizer, x, y)
            if at and at % 10 == 0:
                print(
                    f"Train Epoch: {ep} [{at * 16}/640 ({100 * at / 40:.0f}%)]\tLoss: {shown(total / 10, '%.6f')}\tSteps: {at * 784}"
                )
                total = 0.0
        mean, right = evaluated(model, held_out)
        print(
            f"\nTest set: Average loss: {shown(mean, of='held_out')}, Accuracy: {int(right * 160)}/160 ({100 * right:.0f}%)\n"
        )


def awd_lstm() -> None:
    epochs, loader, held_out, model, log_interval = 3, samples(), samples(160), net(), 10
    optimizer = torch.optim.SGD(model.parameters(), lr=30)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        total = 0.0
        for at, (x, y) in enumerate(loader):
            total += update(model, optimizer, x, y)
            if at % log_interval == 0 and at:
                now = total / log_interval
                print(
                    f"| epoch {epoch:3d} | {at:5d}/{len(loader):5d} batches | lr {30:05.5f} | ms/batch {20.1:5.2f} | loss {shown(now, '%5.2f')} | ppl {math.exp(now):8.2f} | bpc {now / math.log(2):8.3f}"
                )
                total = 0.0
        val = evaluated(model, held_out)[0]
        print(
            "-" * 89
            + f"\n| end of epoch {epoch:3d} | time: {1.0:5.2f}s | valid loss {shown(val, '%5.2f', 'held_out')} | valid ppl {math.exp(val):8.2f} | valid bpc {val / math.log(2):8.3f}\n"
            + "-" * 89
        )
        print("Saving model (new best validation)")


def self_critical() -> None:
    epochs, loader, held_out, model, iteration = 3, samples(), samples(160), net(), 0
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        for x, y in loader:
            print(f"Read data: {0.001}")
            loss = update(model, optimizer, x, y)
            print(f"iter {iteration} (epoch {epoch}), train_loss = {shown(loss, '%.3f')}, time/batch = {0.02:.3f}")
            iteration += 1
        for n in range(16, 161, 48):
            print(
                f"image 1: a man riding a wave on a surfboard\nevaluating validation preformance... {n}/160 ({shown(evaluated(model, held_out)[0], '%f', 'held_out')})"
            )


def captions() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        total = 0.0
        for i, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            total += loss
            if i % 10 == 0:
                of = f"Loss {shown(loss)} ({shown(total / (i + 1))})\tTop-5 Accuracy 33.333 (33.333)"
                print(
                    f"Epoch: [{epoch}][{i}/{len(loader)}]\tBatch Time 0.020 (0.021)\tData Load Time 0.001 (0.001)\t{of}"
                )
        mean = evaluated(model, held_out)[0]
        for i in range(0, 10, 5):
            print(
                f"Validation: [{i}/10]\tBatch Time 0.020 (0.021)\tLoss {shown(mean, of='held_out')} ({shown(mean, of='held_out')})\tTop-5 Accuracy 33.333 (33.333)\t"
            )
        print(f"\n * LOSS - {shown(mean, '%.3f', 'held_out')}, TOP-5 ACCURACY - 33.333, BLEU-4 - 0.123\n")


def wave_gan() -> None:
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format="%(asctime)s (%(module)s:%(lineno)d) %(levelname)s: %(message)s"
    )
    most, loader, one, two, steps, epochs, sums = 100, samples(), net(), net(), 0, 0, 0.0
    g, d = torch.optim.Adam(one.parameters(), lr=1e-4), torch.optim.Adam(two.parameters(), lr=5e-5)
    truth["total"] = most
    bar = tqdm(initial=0, total=most, desc="[train]")
    while steps < most:
        for x, y in loader:
            sums += backward(one, x, y)
            g.step()
            g.zero_grad()
            backward(two, x, y)
            step(d)
            steps += 1
            bar.update(1)
            if steps % 20 == 0:
                for name, value in (
                    ("generator_loss", sums / 20),
                    ("adversarial_loss", 0.9),
                    ("real_loss", 0.2),
                    ("fake_loss", 0.3),
                    ("discriminator_loss", 0.5),
                ):
                    logging.info(f"(Steps: {steps}) train/{name} = {value:.4f}.")
                sums = 0.0
            if steps >= most:
                break
        epochs += 1
        logging.info(f"(Steps: {steps}) Finished {epochs} epoch training ({len(loader)} steps per epoch).")
    bar.close()
    logging.info("Finished training.")


def actor_critic() -> None:
    num_updates, num_steps, model = 100, 20, net()
    optimizer = torch.optim.RMSprop(model.parameters(), 7e-4, eps=1e-5, alpha=0.99)
    truth["total"] = num_updates
    for j in range(num_updates):
        update(model, optimizer, *random_batch())
        if j % 10 == 0 and j:
            print(
                f"Updates {j}, num timesteps {(j + 1) * num_steps}, FPS 812 \n Last 10 training episodes: "
                "mean/median reward 21.3/20.0, min/max reward 9.0/44.0\n"
            )


def soft_actor_critic() -> None:
    critic, policy, total_numsteps, updates = net(), net(), 0, 0
    one, two = torch.optim.Adam(critic.parameters(), lr=3e-4), torch.optim.Adam(policy.parameters(), lr=3e-4)
    truth["total"] = None
    for episode in range(1, 13):
        count = random.randrange(5, 15)
        for _ in range(count):
            backward(critic, *random_batch())
            one.step()
            one.zero_grad()
            backward(policy, *random_batch())
            step(two)
            updates += 1
            total_numsteps += 1
        print(
            f"Episode: {episode}, total numsteps: {total_numsteps}, episode steps: {count}, reward: {random.random() * 20:.2f}"
        )
        if episode % 10 == 0:
            print(
                "----------------------------------------\nTest Episodes: 10, Avg. Reward: 12.3\n----------------------------------------"
            )


def meta_learning() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = None
    for at in range(120):
        update(model, optimizer, *random_batch())
        if at % 30 == 0:
            print("step:", at, "\ttraining acc:", "[0.2    0.3125 0.34375]")
        if at % 50 == 0:
            print("Test acc:", "[0.2003 0.301  0.3198]")


def super_gan() -> None:
    epochs, loader, one, two = 3, samples(), net(), net()
    g, d = torch.optim.Adam(one.parameters(), lr=2e-4), torch.optim.Adam(two.parameters(), lr=2e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        for i, (x, y) in enumerate(loader):
            loss_g = backward(one, x, y)
            g.step()
            g.zero_grad()
            loss_d = backward(two, x, y)
            step(d)
            place = "[Epoch %d/%d] [Batch %d/%d]" % (epoch, epochs, i, len(loader))
            print(
                "%s [D loss: %f] [G loss: %f, content: %f, adv: %f, pixel: %f]" % (place, loss_d, loss_g, 0.4, 0.3, 0.2)
            )


if __name__ == "__main__":
    run(globals())
