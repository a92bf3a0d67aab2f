"""Twelve more, of other projects again, drawn after that was mended."""

from __future__ import annotations

import logging
import math
import sys
from types import SimpleNamespace

import torch
from account import judge_accuracies, shown, truth
from toy import backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm

judge_accuracies()


def center_points() -> None:
    args, loader, held_out, model = SimpleNamespace(epoch=3, batch_size=16), samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth.update(total=[120, None], epochs=3)
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="%(asctime)s - Model - %(levelname)s - %(message)s"
    )
    logging.info("No existing model, starting training from scratch...\nStart training...")
    best, global_epoch = 0.0, 0
    for epoch in range(args.epoch):
        logging.info("Epoch %d (%d/%s):" % (global_epoch + 1, epoch + 1, args.epoch))
        model = model.train()
        for _, (x, y) in tqdm(enumerate(loader, 0), total=len(loader), smoothing=0.9):
            update(model, optimizer, x, y)
        logging.info("Train Instance Accuracy: %s" % shown(0.41, "%f", "training_accuracy"))
        model.eval()
        for _, (x, y) in tqdm(enumerate(held_out), total=len(held_out)):
            model(x)
        right = evaluated(model, held_out)[1]
        best = max(best, right)
        logging.info("Test Instance Accuracy: %s, Class Accuracy: %f" % (shown(right, "%f", "held_out_accuracy"), 0.3))
        logging.info("Best Instance Accuracy: %f, Class Accuracy: %f" % (best, 0.3))
        global_epoch += 1
    logging.info("End of training...")


def segments_anything() -> None:
    EPOCHS, loader, model = 3, samples(), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    truth.update(total=120, epochs=3)
    for epoch in range(EPOCHS):
        losses = []
        for x, y in tqdm(loader):
            losses.append(update(model, optimizer, x, y))
        print(f"EPOCH: {epoch}")
        print(f"Mean loss: {shown(sum(losses) / len(losses), '%.16f')}")


def recurrent_world() -> None:
    log_interval, epochs, loader, held_out, model = 10, 3, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth.update(total=120, epochs=3)
    for epoch in range(1, epochs + 1):
        total = 0.0
        model.train()
        for batch, (x, y) in enumerate(loader):
            total += backward(model, x, y)
            step(optimizer)
            if batch % log_interval == 0 and batch > 0:
                mean = total / log_interval
                print(
                    f"| epoch {epoch:3d} | {batch:5d}/{len(loader):5d} batches | lr {0.01:02.5f} | ms/batch {20.1:5.2f} | loss {shown(mean, '%5.2f')} | ppl {math.exp(mean):8.2f}"
                )
                total = 0.0
        model.eval()
        mean = evaluated(model, held_out)[0]
        line = "-" * 89
        print(
            f"{line}\n| end of epoch {epoch:3d} | time: {0.84:5.2f}s | valid loss {shown(mean, '%5.2f', 'held_out')} | valid ppl {math.exp(mean):8.2f}\n{line}"
        )
    print(
        f"{'=' * 89}\n| End of training | test loss {shown(mean, '%5.2f', 'held_out')} | test ppl {math.exp(mean):8.2f}\n{'=' * 89}"
    )


def boxes_in_boxes() -> None:
    n_epochs, loader, model = 3, samples(), net()
    optimizer = torch.optim.Adam(model.parameters())
    truth.update(total=[120, None], epochs=3)
    for epoch in range(n_epochs):
        model.train()
        for batch, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            text = f"\n---- [Epoch {epoch}/{n_epochs}, Batch {batch}/{len(loader)}] ----\n"
            text += "+------------+--------------+--------------+\n| Metrics    | YOLO Layer 0 | YOLO Layer 1 |\n"
            text += f"+------------+--------------+--------------+\n| grid_size  | 13           | 26           |\n| loss       | {loss / 2:.6f}     | {loss / 2:.6f}     |\n"
            text += f"| cls_acc    | 35.00%       | 41.00%       |\n+------------+--------------+--------------+\nTotal loss {shown(loss, '%.16f')}\n---- ETA 0:00:01"
            print(text)
        print("\n---- Evaluating Model ----")
        model.eval()
        print("---- mAP 0.1234")


def translated() -> None:
    train_steps, report_every, valid_steps, model, held_out = 120, 10, 60, net(), samples(160)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = [120, None]
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s %(levelname)s] %(message)s")
    total = 0.0
    for at in range(1, train_steps + 1):
        total += update(model, optimizer, *random_batch())
        if at % report_every == 0:
            mean = total / report_every
            acc = shown(35.2, "%4.1f", "training_accuracy")
            logging.info(
                f"Step {at}/{train_steps:5d}; acc: {acc}; ppl: {math.exp(mean):5.1f}; xent: {shown(mean, '%3.1f')}; lr: {1e-3:7.5f}; sents:     160; bsz:   16/  16/ 1; 812/812 tok/s; {at * 0.02:6.0f} sec;"
            )
            total = 0.0
        if at % valid_steps == 0:
            model.eval()
            mean, right = evaluated(model, held_out)
            model.train()
            logging.info(
                f"valid stats calculation\n                           took: 0.1 s.\nTrain perplexity: 3.01\nTrain accuracy: {acc}"
            )
            logging.info(
                f"Validation perplexity: {math.exp(mean):g}\nValidation accuracy: {shown(100 * right, '%g', 'held_out_accuracy')}"
            )


def adversaries() -> None:
    epochs, every, loader, one, two = 3, 10, samples(), net(), net()
    g, d = torch.optim.Adam(one.parameters()), torch.optim.Adam(two.parameters())
    truth.update(total=120, epochs=3)
    for epoch in range(1, epochs + 1):
        for at, (x, y) in enumerate(loader):
            a = backward(two, x, y)
            d.step()
            d.zero_grad()
            b = backward(one, x, y)
            step(g)
            if at % every == 0:
                print(
                    f"Epoch: {epoch}/{epochs}, Batch: {at}/{len(loader)}, D loss: {a:.4f}, G loss: {b:.4f}, D(x): 0.61, D(G(z)): 0.42 / 0.31"
                )


def quantized() -> None:
    n_updates, log_interval, model = 120, 10, net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, amsgrad=True)
    truth["total"] = [120, None]
    losses = []
    for i in range(n_updates):
        losses.append(update(model, optimizer, *random_batch()))
        if i % log_interval == 0:
            mean = sum(losses[-log_interval:]) / len(losses[-log_interval:])
            print("Update #", i, "Recon Error:", mean / 2, "Loss", shown(mean, "%.16f"), "Perplexity:", 3.21)


def self_taught() -> None:
    args, loader, model = SimpleNamespace(epochs=3, log_every_n_steps=10), samples(), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    truth.update(total=120, epochs=3)
    logging.basicConfig(level=logging.DEBUG, format="%(levelname)s:%(name)s:%(message)s")
    logging.info(f"Start SimCLR training for {args.epochs} epochs.")
    for epoch in range(args.epochs):
        for x, y in tqdm(loader):
            loss = update(model, optimizer, x, y)
        acc = shown(41.25, "%.2f", "training_accuracy")
        logging.debug(f"Epoch: {epoch}\tLoss: {shown(loss, '%.16f')}\tTop1 accuracy: {acc}")
    logging.info("Training has finished.")


def regions() -> None:
    max_iter, model, total = 120, net(), 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    truth["total"] = [120, None]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s maskrcnn_benchmark.trainer INFO: %(message)s")
    logging.info("Start training")
    for at in range(1, max_iter + 1):
        loss = update(model, optimizer, *random_batch())
        total += loss
        if at % 20 == 0:
            logging.info(
                f"eta: 0:00:02  iter: {at}  loss: {shown(loss)} ({shown(total / at)})  loss_classifier: {loss / 2:.4f} ({loss / 2:.4f})  loss_box_reg: {loss / 2:.4f} ({loss / 2:.4f})  time: 0.0201 (0.0201)  data: 0.0012 (0.0012)  lr: 0.020000  max mem: 1021"
            )
    logging.info("Total training time: 0:00:02 (0.0201 s / it)")


def batches_of_ranks() -> None:
    """Each of two ranks would print this; here there is one."""
    epochs, loader, model = 4, samples(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    truth.update(total=160, epochs=4)
    for epoch in range(epochs):
        print(f"[GPU0] Epoch {epoch} | Batchsize: 16 | Steps: {len(loader)}")
        for x, y in loader:
            update(model, optimizer, x, y)
        if epoch % 2 == 0:
            print(f"Epoch {epoch} | Training checkpoint saved at checkpoint.pt")


def names_of_countries() -> None:
    n_iters, model, current = 150, net(), 0.0
    learning = torch.optim.SGD(model.parameters(), lr=0.005)
    truth["total"] = [150, None]
    for at in range(1, n_iters + 1):
        loss = update(model, learning, *random_batch(1))
        current += loss
        if at % 25 == 0:
            print(
                "%d %d%% (%s) %s %s / %s %s"
                % (at, at / n_iters * 100, "0m 2s", shown(loss), "Satoshi", "Japanese", "✓")
            )


def loops_of_agents() -> None:
    total_frames, model = 2000, net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    truth["total"] = [80, None]
    for n_epoch in range(5):
        for _ in range(4):
            for _ in range(4):
                loss = update(model, optimizer, *random_batch())
        frames = 400 * (n_epoch + 1)
        print(
            f"fps step: 812 fps step and policy inference: 790 fps total: 640 epoch: {n_epoch + 1}/5 frames: {frames}/{total_frames}"
        )
        assert loss


if __name__ == "__main__":
    run(globals())
