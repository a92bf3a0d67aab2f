"""Thirty more, drawn after that (those of JAX and Keras are in without_torch.py)."""

from __future__ import annotations

import datetime
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
from tqdm.auto import tqdm


def torchvision_segmentation() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    truth["total"] = epochs * len(loader)
    start = time.time()
    for epoch in range(epochs):
        total, header = 0.0, f"Epoch: [{epoch}]"
        for i, (x, y) in enumerate(loader):
            if i % 10 == 0 and i:
                eta = datetime.timedelta(seconds=len(loader) - i)
                of = f"loss: {shown(total / i)} ({shown(total / i)})"
                print(f"{header}  [{i:2d}/{len(loader)}]  eta: {eta}  lr: 0.010000  {of}  time: 0.02  data: 0.00")
            total += update(model, optimizer, x, y)
        print(f"{header} Total time: {datetime.timedelta(seconds=int(time.time() - start))}")
        for i, _ in enumerate(held_out):
            if i % 5 == 0:
                print(f"Test:  [{i:2d}/{len(held_out)}]  eta: 0:00:01    time: 0.0210  data: 0.0010")
        print("Test: Total time: 0:00:00")
        right = 100 * evaluated(model, held_out)[1]
        print(
            f"global correct: {right:.1f}\naverage row correct: ['{right:.1f}', '33.0']\nIoU: ['20.1', '30.3']\nmean IoU: 25.2"
        )
    print(f"Training time {datetime.timedelta(seconds=int(time.time() - start))}")


def torchvision_detection() -> None:
    epochs, loader, model = 3, samples(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        total = 0.0
        for i, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            total += loss
            if i % 10 == 0:
                mean = total / (i + 1)
                parts = (
                    f"loss_classifier: {mean / 2:.4f} ({mean / 2:.4f})  loss_box_reg: {mean / 4:.4f} ({mean / 4:.4f})"
                )
                print(
                    f"Epoch: [{epoch}]  [{i:2d}/{len(loader)}]  eta: 0:00:10  lr: 0.000{i}  loss: {shown(loss)} ({shown(mean)})  "
                    f"{parts}  loss_objectness: 0.0100 (0.0110)  loss_rpn_box_reg: 0.0040 (0.0050)  time: 0.0210  data: 0.0011"
                )
        print(f"Epoch: [{epoch}] Total time: 0:00:01 (0.0225 s / it)\ncreating index...\nindex created!")
        for i in range(0, 10, 5):
            print(
                f"Test:  [{i:2d}/10]  eta: 0:00:01  model_time: 0.0112 (0.0120)  evaluator_time: 0.0010 (0.0012)  time: 0.0210"
            )
        print("Averaged stats: model_time: 0.0112 (0.0120)  evaluator_time: 0.0010 (0.0012)\nIoU metric: bbox")
        print(" Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.123")


def glue_without_trainer() -> None:
    logging.basicConfig(
        format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO
    )
    say = logging.getLogger("__main__").info
    for split, count in (("train", 640), ("validation", 160)):
        for _ in tqdm(range(0, count, 100), desc=f"Running tokenizer on dataset ({split})", unit=" examples"):
            time.sleep(0.01)
    epochs, accumulation, loader, held_out, model = 3, 2, samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    most = epochs * math.ceil(len(loader) / accumulation)
    truth["total"] = most
    say("***** Running training *****")
    say("  Num examples = 640\n  Num Epochs = %d\n  Instantaneous batch size per device = 16", epochs)
    say("  Total train batch size (w. parallel, distributed & accumulation) = 32")
    say(f"  Gradient Accumulation steps = {accumulation}")
    say(f"  Total optimization steps = {most}")
    bar = tqdm(range(most))
    for epoch in range(epochs):
        for at, (x, y) in enumerate(loader):
            backward(model, x, y, 1 / accumulation)
            if at % accumulation == 0 or at == len(loader) - 1:
                step(optimizer)
                bar.update(1)
                if truth["updates"] >= most:
                    break
        say(f"epoch {epoch}: {{'accuracy': {evaluated(model, held_out)[1]}, 'f1': 0.8}}")


def text_to_image() -> None:
    most, accumulation, loader, model = 60, 4, samples(), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    truth["total"] = most
    bar, train_loss = tqdm(range(most), initial=0, desc="Steps"), 0.0
    for _epoch in range(math.ceil(most * accumulation / len(loader))):
        for at, (x, y) in enumerate(loader):
            loss = backward(model, x, y, 1 / accumulation)
            train_loss += loss / accumulation
            if (at + 1) % accumulation == 0:
                step(optimizer)
                bar.update(1)
                train_loss = 0.0
            bar.set_postfix(step_loss=float(shown(loss, "%.3g")), lr=1e-4)
            time.sleep(0.003)
            if truth["updates"] >= most:
                return


def ppo() -> None:
    steps, batch, minibatches, update_epochs, total = 128, 128, 4, 4, 128 * 10
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4, eps=1e-5)
    truth["total"] = total // batch * minibatches * update_epochs
    at, start = 0, time.time()
    for _iteration in range(1, total // batch + 1):
        for _ in range(steps):
            at += 1
            if random.random() < 0.03:
                print(f"global_step={at}, episodic_return=[{random.randrange(10, 200)}.]")
        for _ in range(update_epochs):
            for _ in range(minibatches):
                update(model, optimizer, *random_batch(32))
        print("SPS:", int(at / (time.time() - start)))


def dqn() -> None:
    total, learning_starts, train_frequency, model = 3000, 500, 10, net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4)
    truth["total"] = sum(at % train_frequency == 0 for at in range(learning_starts + 1, total))
    start = time.time()
    for global_step in range(total):
        if random.random() < 0.02:
            print(f"global_step={global_step}, episodic_return={random.randrange(10, 200)}.0")
        if global_step > learning_starts and global_step % train_frequency == 0:
            backward(model, *random_batch(32))
            if global_step % 100 == 0:
                print("SPS:", int(global_step / (time.time() - start)))
            step(optimizer)


def baselines() -> None:
    per_rollout, epochs, batches, model = 64, 4, 4, net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    iterations, updates = 10, 0
    truth["total"] = iterations * epochs * batches
    print("Using cpu device\nWrapping the env with a `Monitor` wrapper")
    for iteration in range(1, iterations + 1):
        rows = {"rollout/": "", "   ep_len_mean": "22.1", "   ep_rew_mean": "22.1", "time/": "", "   fps": "812"}
        rows.update(
            {
                "   iterations": str(iteration),
                "   time_elapsed": "1",
                "   total_timesteps": str(iteration * per_rollout),
            }
        )
        if iteration > 1:
            rows.update(
                {"train/": "", "   approx_kl": "0.0085", "   clip_fraction": "0.101", "   entropy_loss": "-0.686"}
            )
            rows.update({"   learning_rate": "0.0003", "   loss": shown(loss, "%.3g"), "   n_updates": str(updates)})
            rows.update({"   policy_gradient_loss": "-0.0161", "   value_loss": "52.4"})
        print("-" * 40)
        for name, value in rows.items():
            print(f"| {name:24}| {value:11}|")
        print("-" * 40)
        for _ in range(epochs * batches):
            loss = update(model, optimizer, *random_batch(32))
        updates += epochs


def yolo() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    truth["total"] = epochs * len(loader)
    print(
        f"Image sizes 64 train, 64 val\nUsing 0 dataloader workers\nLogging results to runs/train/exp\nStarting training for {epochs} epochs..."
    )
    for epoch in range(epochs):
        print(("\n" + "%11s" * 7) % ("Epoch", "GPU_mem", "box_loss", "obj_loss", "cls_loss", "Instances", "Size"))
        bar, mean = tqdm(enumerate(loader), total=len(loader), bar_format="{l_bar}{bar:10}{r_bar}{bar:-10b}"), 0.0
        for i, (x, y) in bar:
            mean = (mean * i + update(model, optimizer, x, y)) / (i + 1)
            bar.set_description(
                ("%11s" * 2 + "%11.4g" * 5) % (f"{epoch}/{epochs - 1}", "0G", mean, mean / 2, mean / 4, 31, 64)
            )
        names = ("Class", "Images", "Instances", "P", "R", "mAP50", "mAP50-95")
        for _ in tqdm(held_out, desc=("%22s" + "%11s" * 6) % names, bar_format="{l_bar}{bar:10}{r_bar}{bar:-10b}"):
            time.sleep(0.005)
        print(("%22s" + "%11i" * 2 + "%11.3g" * 4) % ("all", 160, 929, 0.577, 0.414, 0.46, 0.279))
    print(f"\n{epochs} epochs completed in 0.001 hours.")


def detectron() -> None:
    most, model = 120, net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.00025)
    truth["total"] = most
    print("[11/26 12:00:00 d2.engine.train_loop]: Starting training from iteration 0")
    for iteration in range(most):
        loss = update(model, optimizer, *random_batch())
        if (iteration + 1) % 20 == 0:
            of = f"total_loss: {shown(loss, '%.4g')}  loss_cls: {loss / 2:.4g}  loss_box_reg: {loss / 4:.4g}"
            print(
                f"[11/26 12:00:0{iteration // 20} d2.utils.events]:  eta: 0:00:0{9 - iteration // 20}  iter: {iteration}  {of}  "
                f"time: 0.0201  last_time: 0.0203  data_time: 0.0011  last_data_time: 0.0010   lr: 4.9953e-06  max_mem: 2722M"
            )
    print(f"[11/26 12:01:00 d2.engine.hooks]: Overall training speed: {most - 2} iterations in 0:00:02 (0.0200 s / it)")
    print(
        "[11/26 12:01:01 d2.evaluation.evaluator]: Inference done 11/50. Dataloading: 0.0011 s/iter. Total: 0.0201 s/iter. ETA=0:00:01"
    )


def fastai() -> None:
    epochs, loader, held_out, model = 4, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)
    print("epoch     train_loss  valid_loss  accuracy  time    ")
    for epoch in range(epochs):
        smooth = 0.0
        for x, y in loader:
            smooth = 0.9 * smooth + 0.1 * update(model, optimizer, x, y)
        valid, right = evaluated(model, held_out)
        print(f"{epoch:<10}{shown(smooth, '%.6f'):12}{shown(valid, '%.6f', 'held_out'):12}{right:<10.6f}00:01     ")


def ignite() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    truth["total"] = epochs * len(loader)
    bar = tqdm(initial=0, leave=False, total=len(loader), desc=f"ITERATION - loss: {0:.2f}")
    for epoch in range(1, epochs + 1):
        for i, (x, y) in enumerate(loader, 1):
            loss = update(model, optimizer, x, y)
            if i % 10 == 0:
                bar.desc = f"ITERATION - loss: {shown(loss, '%.2f')}"
                bar.update(10)
        bar.refresh()
        for name, over, of in (("Training", loader, "training"), ("Validation", held_out, "held_out")):
            mean, right = evaluated(model, over)
            tqdm.write(f"{name} Results - Epoch: {epoch} Avg accuracy: {right:.2f} Avg loss: {shown(mean, '%.2f', of)}")
        bar.n = bar.last_print_n = 0
    bar.close()


def catalyst() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        bar, total = tqdm(total=len(loader), desc=f"{epoch}/{epochs} * Epoch (train)", leave=True, ncols=0), 0.0
        for x, y in loader:
            loss = update(model, optimizer, x, y)
            total += loss
            bar.set_postfix(accuracy="0.333", loss=shown(loss, "%3.3f"), lr="2.000e-02", momentum="0.900")
            bar.update()
        bar.close()
        mean, right = evaluated(model, held_out)
        train = shown(total / len(loader), "%.16f")
        print(f"train ({epoch}/{epochs}) accuracy: 0.333 | loss: {train} | lr: 0.02 | momentum: 0.9 ")
        print(
            f"valid ({epoch}/{epochs}) accuracy: {right} | loss: {shown(mean, '%.16f', 'held_out')} | lr: 0.02 | momentum: 0.9 "
        )
        print(f"* Epoch ({epoch}/{epochs}) ")


def molecules_of_ogb() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth["total"] = epochs * len(loader)
    for epoch in range(1, epochs + 1):
        print(f"=====Epoch {epoch}\nTraining...")
        for x, y in tqdm(loader, desc="Iteration"):
            update(model, optimizer, x, y)
        print("Evaluating...")
        for data in (loader, held_out, held_out):
            for _ in tqdm(data, desc="Iteration"):
                time.sleep(0.002)
        print({"Train": {"rocauc": 0.61}, "Validation": {"rocauc": 0.58}, "Test": {"rocauc": 0.57}})
    print("Finished training!\nBest validation score: 0.58\nTest score: 0.57")


def segmentation_models() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0001)
    truth["total"] = epochs * len(loader)
    for i in range(epochs):
        print(f"\nEpoch: {i}")
        for stage, data in (("train", loader), ("valid", held_out)):
            total = 0.0
            with tqdm(data, desc=stage, file=sys.stdout) as iterator:
                for n, (x, y) in enumerate(iterator, 1):
                    if stage == "train":
                        total += update(model, optimizer, x, y)
                    else:
                        with torch.no_grad():
                            total += F.cross_entropy(model(x), y).item()
                    of = "training" if stage == "train" else "held_out"
                    iterator.set_postfix_str(f"dice_loss - {shown(total / n, '%.4g', of)}, iou_score - 0.3")


def wgan() -> None:
    epochs, n_critic, loader, generator, critic = 3, 5, samples(), net(), net()
    first, second = torch.optim.Adam(generator.parameters(), lr=2e-4), torch.optim.Adam(critic.parameters(), lr=2e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        for i, (x, y) in enumerate(loader):
            d_loss = backward(critic, x, y)
            second.step()
            second.zero_grad()
            truth["updates"] += 1
            time.sleep(PAUSE_S)
            if i % n_critic == 0:
                g_loss = backward(generator, x, y)
                first.step()
                first.zero_grad()
                print(
                    "[Epoch %d/%d] [Batch %d/%d] [D loss: %f] [G loss: %f]"
                    % (epoch, epochs, i, len(loader), d_loss, g_loss)
                )


def cycle_gan() -> None:
    epochs, batch, loader, generators, critics = 3, 16, samples(), net(), net()
    g, d = torch.optim.Adam(generators.parameters(), lr=2e-4), torch.optim.Adam(critics.parameters(), lr=2e-4)
    truth["total"] = epochs * len(loader)
    total_iters = 0
    for epoch in range(1, epochs + 1):
        epoch_iter = 0
        for x, y in loader:
            total_iters, epoch_iter = total_iters + batch, epoch_iter + batch
            one = backward(generators, x, y)
            g.step()
            g.zero_grad()
            two = backward(critics, x, y)
            step(d)
            if total_iters % 160 == 0:
                print(
                    f"(epoch: {epoch}, iters: {epoch_iter}, time: 0.021, data: 0.001) D_A: {two:.3f} G_A: {one:.3f} cycle_A: 0.9 "
                    f"idt_A: 0.4 D_B: {two:.3f} G_B: {one:.3f} cycle_B: 0.8 idt_B: 0.3 "
                )
        print(f"saving the model at the end of epoch {epoch}, iters {total_iters}")
        print("End of epoch %d / %d \t Time Taken: %d sec" % (epoch, epochs, 1))
        print("learning rate 0.0002000 -> 0.0002000")


def lit_gpt() -> None:
    accumulation, most, model = 4, 40, net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4)
    truth["total"] = most
    print("Total parameters: 1,234\nValidating ...\nMeasured TFLOPs: 0.01")
    val: Any = "n/a"
    for at in range(1, most * accumulation + 1):
        loss = backward(model, *random_batch(), 1 / accumulation)
        is_step = at % accumulation == 0
        if is_step:
            step(optimizer)
        if at % 10 == 0:
            of = f"Epoch 1 | iter {at} step {truth['updates']} | loss train: {shown(loss, '%.3f')}, val: {val} |"
            print(f"{of} iter time: 20.11 ms{' (step)' if is_step else ''} remaining time: 0:00:0{4 - at // 40}")
        if is_step and truth["updates"] % 10 == 0:
            val = shown(evaluated(model, samples(160))[0], "%.3f", "held_out")
            print(f"iter {at}: val loss {shown(float(val), '%.4f', 'held_out')}, val time: 10.00 ms")
    print("Training time: 2.00s")


def nanochat() -> None:
    num_iterations, model, smooth = 120, net(), 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    truth["total"] = num_iterations
    print(
        f"Parameter counts:\nwte                     : 2,097,152\ntotal                   : 8,650,752\nEstimated FLOPs per token: 5.2e+07"
    )
    print(
        f"Using user-provided number of iterations: {num_iterations}\nTotal number of training tokens: {num_iterations * 512:,}"
    )
    print("Tokens / micro-batch / rank: 16 x 32 = 512\nTotal batch size 512 => gradient accumulation steps: 1")
    for at in range(num_iterations + 1):
        if at % 40 == 0:
            print(f"Step {at:05d} | Validation bpb: {evaluated(model, samples(160))[0]:.6f}")
        if at == num_iterations:
            break
        smooth = 0.9 * smooth + 0.1 * update(model, optimizer, *random_batch())
        loss = shown(smooth / (1 - 0.9 ** (at + 1)), "%.6f")
        print(
            f"step {at:05d}/{num_iterations:05d} ({100 * at / num_iterations:.2f}%) | loss: {loss} | lrm: 1.00 | dt: 20.12ms | "
            "tok/sec: 25,448 | bf16_mfu: 0.10 | epoch: 1 pq: 0 rg: 3 | total time: 0.01m"
        )
    print("Peak memory usage: 0.00MiB\nTotal training time: 0.04m\nMinimum validation bpb: 1.098612")


def modded_nanogpt() -> None:
    train_steps, model = 120, net()
    adam, muon = torch.optim.AdamW(model[0].parameters(), lr=3e-4), torch.optim.SGD(model[2].parameters(), lr=0.02)  # type: ignore[index]
    truth["total"] = train_steps
    for at in range(train_steps + 1):
        if at == train_steps or at % 40 == 0:
            val = shown(evaluated(model, samples(160))[0], "%.4f", "held_out")
            print(f"step:{at}/{train_steps} val_loss:{val} train_time:{at * 20}ms step_avg:20.00ms")
        if at == train_steps:
            break
        backward(model, *random_batch())
        step(adam, muon)
        print(f"step:{at + 1}/{train_steps} train_time:{(at + 1) * 20}ms step_avg:20.00ms")
    print("peak memory allocated: 0 MiB reserved: 0 MiB")


def torchtune() -> None:
    epochs, accumulation, loader, model, global_step = 3, 2, samples(), net(), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    per_epoch = len(loader) // accumulation
    truth["total"] = epochs * per_epoch
    print(
        "INFO:torchtune.utils._logging:Loss is initialized.\nINFO:torchtune.utils._logging:Dataset and Sampler are initialized."
    )
    for epoch in range(epochs):
        bar, running = tqdm(total=per_epoch), 0.0
        for i, (x, y) in enumerate(loader):
            running += backward(model, x, y, 1 / accumulation) / accumulation
            if (i + 1) % accumulation == 0:
                step(optimizer)
                global_step += 1
                bar.update(1)
                bar.set_description(f"{epoch + 1}|{global_step}|Loss: {shown(running, '%.16f')}")
                running = 0.0


def speechbrain() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)
    print("speechbrain.core - Beginning experiment!\nspeechbrain.core - 1.2k trainable parameters in Model")
    print("speechbrain.utils.epoch_loop - Going into epoch 1")
    for epoch in range(1, epochs + 1):
        average = 0.0
        with tqdm(loader, initial=0, dynamic_ncols=True) as bar:
            for n, (x, y) in enumerate(bar, 1):
                average += (update(model, optimizer, x, y) - average) / n
                bar.set_postfix(train_loss=float(shown(average, "%.3g")))
        for _ in tqdm(held_out, dynamic_ncols=True):
            time.sleep(0.003)
        mean = shown(evaluated(model, held_out)[0], "%.2f", "held_out")
        print(
            f"speechbrain.utils.train_logger - epoch: {epoch}, lr: 1.00e-03 - train loss: {shown(average, '%.2f')} - "
            f"valid loss: {mean}, valid error: 6.67e-01"
        )


def coqui() -> None:
    epochs, loader, held_out, model, global_step = 3, samples(), samples(160), net(), 0
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        print(f"\n\033[4m\033[1m > EPOCH: {epoch}/{epochs}\033[0m", flush=True)
        print("\n\033[1m > TRAINING (2026-11-26 12:00:00) \033[0m")
        total = 0.0
        for at, (x, y) in enumerate(loader, 1):
            loss = update(model, optimizer, x, y)
            total, global_step = total + loss, global_step + 1
            if global_step % 20 == 0:
                print(f"\n\033[1m   --> STEP: {at}/{len(loader)} -- GLOBAL_STEP: {global_step}\033[0m")
                print(f"     | > loss: {shown(loss, '%.5f')}  ({shown(total / at, '%.5f')})")
                print(
                    f"     | > grad_norm: 0.51234  (0.49000)\n     | > current_lr: 0.00100 \n     | > step_time: 0.02010  (0.02040)\n"
                )
        print("\n\033[1m > EVALUATION \033[0m\n")
        for at in range(1, len(held_out) + 1, 5):
            mean = evaluated(model, held_out)[0]
            print(
                f"\033[1m   --> STEP: {at}\033[0m\n     | > loss: {shown(mean, '%.5f', 'held_out')}  ({shown(mean, '%.5f', 'held_out')})"
            )
        print(
            f"\n  \033[1m--> EVAL PERFORMANCE\033[0m\n     | > avg_loader_time: 0.001 (+0.000)\n     | > avg_loss: {shown(mean, '%.5f', 'held_out')} (+0.00000)\n"
        )


def guided_diffusion() -> None:
    steps, model = 120, net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    truth["total"] = None
    print(
        "Logging to /tmp/openai-2026-11-26-12-00-00\ncreating model and diffusion...\ncreating data loader...\ntraining..."
    )
    total = 0.0
    for at in range(steps):
        loss = update(model, optimizer, *random_batch())
        total += loss
        if at % 10 == 0:
            mean = shown(total / (10 if at else 1), "%.3g")
            rows = {
                "grad_norm": "0.512",
                "loss": mean,
                "loss_q0": mean,
                "loss_q1": "0.9",
                "mse": mean,
                "samples": f"{(at + 1) * 16:.3g}",
            }
            rows["step"] = f"{at:.3g}"
            print("-" * 27)
            for key, value in sorted(rows.items()):
                print(f"| {key:12} | {value:8} |")
            print("-" * 27)
            total = 0.0


def open_clip() -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s | %(levelname)s | %(message)s", datefmt="%Y-%m-%d,%H:%M:%S"
    )
    epochs, loader, held_out, model, batch = 3, samples(), samples(160), net(), 16
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        logging.info("Start epoch %d", epoch)
        total = 0.0
        for i, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            total, count = total + loss, i + 1
            if i % 10 == 0 or count == len(loader):
                of = f"{shown(loss, '%.5g')} ({shown(total / count, '%.5g')})"
                logging.info(
                    f"Train Epoch: {epoch} [{count * batch:>3}/{len(loader) * batch} ({100 * count / len(loader):.0f}%)] Data (t): 0.001 "
                    f"Batch (t): 0.021, 761.905/s, 761.905/s/gpu LR: 0.000500 Logit Scale: 14.286 Contrastive_loss: {of} Loss: {of}"
                )
        logging.info(
            "Eval Epoch: %d [16 / 160]\tClip Loss: %s\t",
            epoch + 1,
            shown(evaluated(model, held_out)[0], "%.6f", "held_out"),
        )
        mean = shown(evaluated(model, held_out)[0], "%.4f", "held_out")
        logging.info(
            f"Eval Epoch: {epoch + 1} image_to_text_mean_rank: 5.1000\tclip_val_loss: {mean}\tepoch: {epoch + 1}.0000\tnum_samples: 160.0000"
        )


def yolox() -> None:
    epochs, loader, model = 3, samples(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        print(f"2026-11-26 12:00:00 | INFO     | yolox.core.trainer:203 - ---> start train epoch{epoch + 1}")
        for at, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            if (at + 1) % 10 == 0:
                print(
                    f"2026-11-26 12:00:01 | INFO     | yolox.core.trainer:261 - epoch: {epoch + 1}/{epochs}, iter: {at + 1}/{len(loader)}, "
                    f"gpu mem: 0Mb, mem: 3.1Gb, iter_time: 0.021s, data_time: 0.001s, total_loss: {shown(loss, '%.1f')}, iou_loss: {loss / 2:.1f}, "
                    f"l1_loss: 0.0, conf_loss: {loss / 3:.1f}, cls_loss: {loss / 6:.1f}, lr: 1.000e-04, size: 64, ETA: 0:00:02"
                )
        print("2026-11-26 12:00:02 | INFO     | yolox.core.trainer:397 - Save weights to ./YOLOX_outputs/yolox_s")


def pointnet() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth["total"] = epochs * len(loader)
    print("Namespace(batchSize=16, dataset='.', nepoch=3)\nRandom Seed:  4242\n640 160\nclasses 3")
    for epoch in range(epochs):
        for i, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            print("[%d: %d/%d] train loss: %s accuracy: %f" % (epoch, i, len(loader), shown(loss, "%f"), 0.3125))
            if i % 10 == 0:
                a, b = next(iter(held_out))
                with torch.no_grad():
                    test = F.cross_entropy(model(a), b).item()
                print(
                    "[%d: %d/%d] \033[94mtest\033[0m loss: %s accuracy: %f"
                    % (epoch, i, len(loader), shown(test, "%f", "held_out"), 0.25)
                )
    for _ in tqdm(held_out):
        time.sleep(0.01)
    print("final accuracy 0.34375")


def monai() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-5)
    truth["total"] = epochs * len(loader)
    for epoch in range(epochs):
        print(f"{'-' * 10}\nepoch {epoch + 1}/{epochs}")
        total = 0.0
        for at, (x, y) in enumerate(loader, 1):
            loss = update(model, optimizer, x, y)
            total += loss
            print(f"{at}/{len(loader)}, train_loss: {shown(loss)}")
        print(f"epoch {epoch + 1} average loss: {shown(total / len(loader))}")
        right = evaluated(model, held_out)[1]
        print(
            f"saved new best metric model\ncurrent epoch: {epoch + 1} current accuracy: {right:.4f} best accuracy: {right:.4f} at epoch {epoch + 1}"
        )
    print(f"train completed, best_metric: 0.4000 at epoch: {epochs}")


if __name__ == "__main__":
    run(globals())
