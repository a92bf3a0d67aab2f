"""Twenty more, drawn after what those thirty had shown was mended (those of JAX are in without_torch.py)."""

from __future__ import annotations

import logging
import math
import time

import torch
from account import shown, truth
from toy import backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm, trange


def gaussian_splatting() -> None:
    iterations, model, ema = 150, net(), 0.0
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, eps=1e-15)
    truth["total"] = iterations
    bar = tqdm(range(0, iterations), desc="Training progress")
    for iteration in range(1, iterations + 1):
        ema = 0.4 * backward(model, *random_batch()) + 0.6 * ema
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
            loss = update(model, optimizer, x, y)
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
        loss = update(model, optimizer, *random_batch())
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
        total, n = total + update(model, optimizer, *random_batch()), n + 1
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
        sums += update(model, optimizer, *random_batch())
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
            loss = update(model, optimizer, x, y)
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
    epochs, x, y, model = 120, *random_batch(64), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    truth["total"] = epochs
    print("Training with DGL built-in GATConv module.\n  NumNodes: 2708\n  NumEdges: 10556\nTraining...")
    for epoch in range(epochs):
        loss = update(model, optimizer, x, y)
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
            update(model, optimizer, *next(iterator))
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
            loss = update(model, optimizer, x, y)
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
        loss = update(model, optimizer, *random_batch())
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
            losses.append(update(model, optimizer, *random_batch()))
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
        loss_pi = backward(pi, *random_batch())
        one.step()
        one.zero_grad()
        # It and the first step of the other optimizer make one update: they step in turn.
        for _ in range(per_epoch):
            loss_v = backward(v, *random_batch())
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
            content += update(model, optimizer, x, y)
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
            total += update(model, optimizer, x, y)
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
            loss = update(model, optimizer, x, y)
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
            loss = update(model, optimizer, x, y)
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
            loss = backward(model, *random_batch(), 1 / accumulate)
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
        backward(model_g, *random_batch())
        g.step()
        g.zero_grad()
        backward(model_d, *random_batch())
        step(d)
        nimg += size
        if nimg % 400 == 0:
            print(
                f"tick {tick:<5d} kimg {nimg / 1e3:<8.1f} time {'1s':<12s} sec/tick {0.5:<7.1f} sec/kimg {1.2:<7.2f} "
                f"maintenance {0.1:<6.1f} cpumem {0.5:<6.2f} gpumem {0.0:<6.2f} reserved {0.0:<6.2f} augment 0.000"
            )
            tick += 1
    print("Exiting...")


if __name__ == "__main__":
    run(globals())
