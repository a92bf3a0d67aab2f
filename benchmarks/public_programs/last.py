"""Forty-two more, drawn after what the thirty of drawn.py had shown was mended; as programs.py."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import sys
import time

import torch
import torch.nn.functional as F
from programs import backward, evaluated, net, samples, shown, step, truth
from tqdm import tqdm, trange


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(16, 8), torch.randint(0, 3, (16,))


def gaussian_splatting() -> None:
    iterations, model, ema = 150, net(), 0.0
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, eps=1e-15)
    truth["total"] = iterations
    bar = tqdm(range(0, iterations), desc="Training progress")
    for iteration in range(1, iterations + 1):
        ema = 0.4 * backward(model, *batch()) + 0.6 * ema
        if iteration % 10 == 0:
            bar.set_postfix({"Loss": shown(ema, "%.7f"), "Depth Loss": f"{0.0:.7f}"})
            bar.update(10)
        if iteration == iterations:
            bar.close()
        if iteration in (70, 150):
            for name in ("test", "train"):
                print(f"\n[ITER {iteration}] Evaluating {name}: L1 0.0312 PSNR 21.3")
            print(f"\n[ITER {iteration}] Saving Gaussians")
        step(optimizer)
    print("\nTraining complete.")


def efficient_det() -> None:
    epochs, loader, held_out, model, at = 3, samples(), samples(160), net(), 0
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        bar = tqdm(loader)
        for i, (x, y) in enumerate(bar):
            loss = backward(model, x, y)
            step(optimizer)
            bar.set_description(
                f"Step: {at}. Epoch: {epoch}/{epochs}. Iteration: {i + 1}/{len(loader)}. Cls loss: {loss / 2:.5f}. "
                f"Reg loss: {loss / 2:.5f}. Total loss: {shown(loss, '%.5f')}"
            )
            at += 1
        val = evaluated(model, held_out)[0]
        print(
            f"Val. Epoch: {epoch}/{epochs}. Classification loss: {val / 2:1.5f}. Regression loss: {val / 2:1.5f}. "
            f"Total loss: {shown(val, '%1.5f', 'held_out')}"
        )


def ssd() -> None:
    iterations, model = 120, net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    truth["total"] = iterations
    print("Loading base network...\nInitializing weights...\nLoading the dataset...\nTraining SSD on: VOC0712")
    for iteration in range(iterations):
        loss = backward(model, *batch())
        step(optimizer)
        if iteration % 10 == 0:
            print("timer: %.4f sec." % 0.0201)
            print("iter " + repr(iteration) + " || Loss: %s ||" % shown(loss, "%.4f"), end=" ")
        if iteration and iteration % 50 == 0:
            print("Saving state, iter:", iteration)


def text_recognition() -> None:
    num_iter, val_interval, held_out, model, total, n = 150, 50, samples(160), net(), 0.0, 0
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1)
    truth["total"] = num_iter
    for iteration in range(num_iter):
        total, n = total + backward(model, *batch()), n + 1
        step(optimizer)
        if (iteration + 1) % val_interval == 0 or iteration == 0:
            valid, right = evaluated(model, held_out)
            print(
                f"[{iteration + 1}/{num_iter}] Train loss: {shown(total / n, '%0.5f')}, "
                f"Valid loss: {shown(valid, '%0.5f', 'held_out')}, Elapsed_time: {iteration * 0.02:0.5f}"
            )
            print(f"{'Current_accuracy':17s}: {100 * right:0.3f}, {'Current_norm_ED':17s}: 0.40")
            print(f"{'Best_accuracy':17s}: {100 * right:0.3f}, {'Best_norm_ED':17s}: 0.40")
            print(
                "-" * 80
                + "\nGround Truth              | Prediction                | Confidence Score & T/F\n"
                + "-" * 80
            )
            print("available                 | avalable                  | 0.0123\tFalse\n" + "-" * 80)
            total, n = 0.0, 0
    print("end the training")


def optical_flow() -> None:
    most, model, sums = 120, net(), 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    truth["total"] = most
    print("Parameter Count: 5257536")
    for at in range(most):
        sums += backward(model, *batch())
        step(optimizer)
        if at % 20 == 19:
            # Steps, learning rate, then means of "1px", "3px", "5px", "epe", without names.
            print("[{:6d}, {:10.7f}] ".format(at + 1, 2e-5) + ("{:10.4f}, " * 4).format(0.31, 0.52, 0.61, sums / 20))
            sums = 0.0


def super_resolution_suite() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s: %(message)s")
    total_iter, loader, model, at, epoch = 150, samples(), net(), 0, 0
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth["total"] = total_iter
    logging.info(
        "Training statistics:\n\tNumber of train images: 640\n\tDataset enlarge ratio: 1\n\tBatch size per gpu: 16\n"
        f"\tWorld size (gpu number): 1\n\tRequire iter number per epoch: {len(loader)}\n"
        f"\tTotal epochs: {math.ceil(total_iter / len(loader))}; iters: {total_iter}."
    )
    logging.info("Start training from epoch: 0, iter: 0")
    while at <= total_iter:
        for x, y in loader:
            at += 1
            if at > total_iter:
                break
            loss = backward(model, x, y)
            step(optimizer)
            if at % 20 == 0:
                logging.info(
                    f"[train..][epoch:{epoch:3d}, iter:{at:8,d}, lr:(1.000e-04,)] [eta: 0:00:03, time (data): 0.021 (0.001)] "
                    f"l_pix: {shown(loss, '%.4e')} "
                )
            if at % 50 == 0:
                logging.info(f"Validation Set5\n\t # psnr: 22.1234\tBest: 22.1234 @ {at} iter\n")
        epoch += 1
    logging.info("End of training. Time consumed: 0:00:03")


def graph_attention() -> None:
    epochs, x, y, model = 120, torch.randn(64, 8), torch.randint(0, 3, (64,)), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    truth["total"] = epochs
    print("Training with DGL built-in GATConv module.\n  NumNodes: 2708\n  NumEdges: 10556\nTraining...")
    for epoch in range(epochs):
        loss = backward(model, x, y)
        step(optimizer)
        print(f"Epoch {epoch:05d} | Loss {shown(loss)} | Accuracy 0.3438 ")
    print("Testing...\nTest accuracy 0.8100")


def sentence_pairs() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(message)s", datefmt="%Y-%m-%d %H:%M:%S")
    epochs, loader, model = 3, samples(), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    truth["total"] = epochs * len(loader)
    logging.info("Read STSbenchmark train dataset\nWarmup-steps: 12")
    for epoch in trange(epochs, desc="Epoch"):
        iterator = iter(loader)
        for _ in trange(len(loader), desc="Iteration", smoothing=0.05):
            backward(model, *next(iterator))
            step(optimizer)
        logging.info(f"EmbeddingSimilarityEvaluator: Evaluating the model on sts-dev dataset after epoch {epoch}:")
        logging.info("Cosine-Similarity :\tPearson: 0.8123\tSpearman: 0.8234")


def upscaling() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    truth["total"] = epochs * len(loader)
    print("===> Loading datasets\n===> Building model")
    for epoch in range(1, epochs + 1):
        total = 0.0
        for iteration, (x, y) in enumerate(loader, 1):
            loss = backward(model, x, y)
            step(optimizer)
            total += loss
            print(f"===> Epoch[{epoch}]({iteration}/{len(loader)}): Loss: {shown(loss)}")
        print(f"===> Epoch {epoch} Complete: Avg. Loss: {shown(total / len(loader))}")
        evaluated(model, held_out)
        print("===> Avg. PSNR: 21.1234 dB")


def llm_c() -> None:
    num_iterations, model, held_out = 120, net(), samples(160)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    truth["total"] = num_iterations
    print(
        "Running pytorch 2.4.0\nusing device: cpu\ntotal desired batch size: 512\n=> calculated gradient accumulation steps: 1"
    )
    for at in range(num_iterations + 1):
        last = at == num_iterations
        if at % 40 == 0 or last:
            print(f"val loss {shown(evaluated(model, held_out)[0], '%.16f', 'held_out')}")
        if last:
            break
        loss = backward(model, *batch())
        step(optimizer)
        print(
            f"step {at + 1:4d}/{num_iterations} | train loss {shown(loss, '%.6f')} | norm 1.0123 | lr 1.00e-04 | (20.12 ms | 25448 tok/s)"
        )
    print("final 100 iters avg: 20.110ms\npeak memory consumption: 0 MiB")


def decision_transformer() -> None:
    max_iters, per_iter, model = 4, 40, net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    truth["total"] = max_iters * per_iter
    print(
        "=" * 50
        + "\nStarting new experiment: hopper medium\n2186 trajectories, 999906 timesteps found\nAverage return: 1422.06"
    )
    for at in range(1, max_iters + 1):
        losses = []
        for _ in range(per_iter):
            losses.append(backward(model, *batch()))
            step(optimizer)
        mean = sum(losses) / per_iter
        print(
            "=" * 80
            + f"\nIteration {at}\ntime/training: 0.81\nevaluation/target_3600_return_mean: 310.2\ntime/total: 1.2"
        )
        print(
            f"time/evaluation: 0.2\ntraining/train_loss_mean: {shown(mean, '%.16f')}\ntraining/train_loss_std: 0.0312"
        )
        print(f"training/action_error: {mean / 2}")


def spinning_up() -> None:
    epochs, per_epoch, pi, v = 5, 10, net(), net()
    one, two = torch.optim.Adam(pi.parameters(), lr=3e-4), torch.optim.Adam(v.parameters(), lr=1e-3)
    truth["total"] = None
    for epoch in range(epochs):
        loss_pi = backward(pi, *batch())
        one.step()
        one.zero_grad()
        # It and the first step of the other optimizer make one update: they step in turn.
        for _ in range(per_epoch):
            loss_v = backward(v, *batch())
            two.step()
            two.zero_grad()
            truth["updates"] += 1
            time.sleep(0.03)
        rows = {"Epoch": epoch, "AverageEpRet": 21.3, "EpLen": 21.3, "TotalEnvInteracts": 4000 * (epoch + 1)}
        rows.update(
            {
                "LossPi": f"{loss_pi:.3g}",
                "LossV": f"{loss_v:.3g}",
                "DeltaLossPi": 0,
                "Entropy": 0.68,
                "KL": 0.001,
                "Time": 1.2,
            }
        )
        print("-" * 39)
        for key, value in rows.items():
            print("| %15s | %15s |" % (key, value))
        print("-" * 39)


def style() -> None:
    epochs, loader, model, log_interval = 3, samples(), net(), 10
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    truth["total"] = epochs * len(loader)
    for e in range(epochs):
        content, count = 0.0, 0
        for batch_id, (x, y) in enumerate(loader):
            count += len(x)
            content += backward(model, x, y)
            step(optimizer)
            if (batch_id + 1) % log_interval == 0:
                mean = content / (batch_id + 1)
                print(
                    f"{time.ctime()}\tEpoch {e + 1}:\t[{count}/640]\tcontent: {mean:.6f}\tstyle: {mean * 2:.6f}\ttotal: {mean * 3:.6f}"
                )


def attention_is_all() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-09)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        print("[ Epoch", epoch, "]")
        total = 0.0
        for x, y in tqdm(loader, mininterval=2, desc="  - (Training)   ", leave=False):
            total += backward(model, x, y)
            step(optimizer)
        for _ in tqdm(held_out, mininterval=2, desc="  - (Validation) ", leave=False):
            time.sleep(0.003)
        for header, ppl in (("Training", total / len(loader)), ("Validation", evaluated(model, held_out)[0])):
            print(
                f"  - {f'({header})':12} ppl: {math.exp(ppl): 8.5f}, accuracy: {33.3:3.3f} %, lr: {1e-4:8.5f}, elapse: {0.013:3.3f} min"
            )
        print("    - [Info] The checkpoint file has been updated.")


def faster_rcnn() -> None:
    epochs, loader, model = 3, samples(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)
    print("640 roidb entries\nLoading pretrained weights from data/pretrained_model/vgg16_caffe.pth")
    for epoch in range(1, epochs + 1):
        temp, n = 0.0, 0
        for at, (x, y) in enumerate(loader):
            loss = backward(model, x, y)
            step(optimizer)
            temp, n = temp + loss, n + 1
            if at % 10 == 0:
                mean = shown(temp / n)
                print(
                    "[session %d][epoch %2d][iter %4d/%4d] loss: %s, lr: %.2e" % (1, epoch, at, len(loader), mean, 1e-3)
                )
                print("\t\t\tfg/bg=(%d/%d), time cost: %f" % (64, 192, 0.2))
                print(
                    "\t\t\trpn_cls: %.4f, rpn_box: %.4f, rcnn_cls: %.4f, rcnn_box %.4f"
                    % (loss / 2, loss / 4, loss / 8, loss / 8)
                )
                temp, n = 0.0, 0
        print(f"save model: models/vgg16/pascal_voc/faster_rcnn_1_{epoch}_{len(loader)}.pth")


def swin() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    truth["total"] = epochs * len(loader)
    head = "[2026-11-26 12:00:00 swin_tiny] (main.py 258): INFO "
    for epoch in range(epochs):
        total = 0.0
        for idx, (x, y) in enumerate(loader):
            loss = backward(model, x, y)
            step(optimizer)
            total += loss
            if idx % 10 == 0:
                of = f"loss {shown(loss)} ({shown(total / (idx + 1))})\tgrad_norm 1.0123 (1.0010)\tloss_scale 65536.0000 (65536.0000)\tmem 0MB"
                print(
                    f"{head}Train: [{epoch}/{epochs}][{idx}/{len(loader)}]\teta 0:00:01 lr 0.000100\t wd 0.0500\ttime 0.0201 (0.0211)\t{of}"
                )
        print(f"{head}EPOCH {epoch} training takes 0:00:01")
        mean, right = evaluated(model, held_out)
        for idx in range(0, len(held_out), 5):
            of = f"Loss {shown(mean, of='held_out')} ({shown(mean, of='held_out')})\tAcc@1 {100 * right:.3f} (33.000)\tAcc@5 100.000 (100.000)\tMem 0MB"
            print(f"{head}Test: [{idx}/{len(held_out)}]\tTime 0.020 (0.021)\t{of}")
        print(f"{head} * Acc@1 {100 * right:.3f} Acc@5 100.000")
        print(
            f"{head}Accuracy of the network on the 160 test images: {100 * right:.1f}%\n{head}Max accuracy: {100 * right:.2f}%"
        )


def enwik() -> None:
    num_batches, accumulate, model, held_out = 100, 4, net(), samples(160)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth["total"] = num_batches
    for i in tqdm(range(num_batches), mininterval=10.0, desc="training"):
        for _ in range(accumulate):
            loss = backward(model, *batch(), 1 / accumulate)
        print(f"training loss: {shown(loss, '%.16f')}")
        step(optimizer)
        if i % 25 == 0:
            print(f"validation loss: {shown(evaluated(model, held_out)[0], '%.16f', 'held_out')}")
        if i % 50 == 0:
            print(
                "in the year 1999 the\n \n\n ****************************************************************************************************"
            )


def style_gan() -> None:
    total_kimg, size, model_g, model_d, nimg = 2, 16, net(), net(), 0
    g, d = torch.optim.Adam(model_g.parameters(), lr=2.5e-3), torch.optim.Adam(model_d.parameters(), lr=2.5e-3)
    truth["total"] = total_kimg * 1000 // size
    print(f"Training for {total_kimg} kimg...\n")
    tick = 0
    while nimg < total_kimg * 1000:
        backward(model_g, *batch())
        g.step()
        g.zero_grad()
        backward(model_d, *batch())
        step(d)
        nimg += size
        if nimg % 400 == 0:
            print(
                f"tick {tick:<5d} kimg {nimg / 1e3:<8.1f} time {'1s':<12s} sec/tick {0.5:<7.1f} sec/kimg {1.2:<7.2f} "
                f"maintenance {0.1:<6.1f} cpumem {0.5:<6.2f} gpumem {0.0:<6.2f} reserved {0.0:<6.2f} augment 0.000"
            )
            tick += 1
    print("Exiting...")


# --- Twelve more, drawn after what those had shown was mended.


def cifar_hundred() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        for i, (x, y) in enumerate(loader):
            loss = backward(model, x, y)
            step(optimizer)
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
            total += backward(model, x, y)
            step(optimizer)
            of = f"Loss: {shown(total / i)} | top1:  33.3333 | top5:  100.0000"
            sys.stdout.write(
                f"\rProcessing |{'#' * (i * 32 // 40):32}| ({i}/{len(loader)}) Data: 0.001s | Batch: 0.020s | Total: 0:00:01 | ETA: 0:00:01 | {of}"
            )
        sys.stdout.write("\n")


def py_gcn() -> None:
    epochs, x, y, model = 100, torch.randn(64, 8), torch.randint(0, 3, (64,)), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    truth["total"] = epochs
    for epoch in range(epochs):
        loss = backward(model, x, y)
        step(optimizer)
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
            total += backward(model, x, y)
            step(optimizer)
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
            total += backward(model, x, y)
            step(optimizer)
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
            loss = backward(model, x, y)
            step(optimizer)
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
            loss = backward(model, x, y)
            step(optimizer)
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
        backward(model, *batch())
        step(optimizer)
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
            backward(critic, *batch())
            one.step()
            one.zero_grad()
            backward(policy, *batch())
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
        backward(model, *batch())
        step(optimizer)
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


# --- And twelve after those.


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
            total += backward(model, x, y)
            step(optimizer)
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
            loss = backward(model, x, y)
            step(optimizer)
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
            loss = backward(model, x, y)
            step(optimizer)
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
            loss = backward(model, x, y)
            step(optimizer)
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
            loss = backward(model, x, y)
            step(optimizer)
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
            loss = backward(model, x, y)
            step(optimizer)
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
        backward(model, *batch())
        step(optimizer)
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
            loss = backward(model, x, y)
            step(optimizer)
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
        loss = backward(model, *batch())
        step(optimizer)
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
            loss = backward(model, x, y)
            step(optimizer)
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
                    total += backward(model, x, y)
                    step(optimizer)
            print(f"[{phase}] Loss: {shown(total / len(data), '%.16f', of)}")


if __name__ == "__main__":
    torch.manual_seed(0)
    random.seed(0)
    globals()[sys.argv[1]]()
    with open(os.environ["TRUTH"], "w") as stream:
        json.dump(truth, stream)
