"""Thirty more, of other projects, drawn on 27 November 2026: each line as its source prints it, accuracies judged too."""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from account import judge_accuracies, shown, truth
from toy import PAUSE_S, backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm, trange

judge_accuracies()


def transformer_diffusion() -> None:
    logging.basicConfig(level=logging.INFO, format="[\033[34m%(asctime)s\033[0m] %(message)s", datefmt="%H:%M:%S")
    epochs, loader, model, ema = 3, samples(), net(), net()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0)
    truth.update(total=epochs * len(loader), epochs=epochs)
    logging.info(f"DiT Parameters: {sum(p.numel() for p in model.parameters()):,}")
    logging.info(f"Dataset contains {640:,} images (data)")
    model.train()
    ema.eval()
    train_steps, log_steps, running_loss = 0, 0, 0.0
    logging.info(f"Training for {epochs} epochs...")
    for epoch in range(epochs):
        logging.info(f"Beginning epoch {epoch}...")
        for x, y in loader:
            running_loss += update(model, opt, x, y)
            log_steps += 1
            train_steps += 1
            if train_steps % 10 == 0:
                logging.info(
                    f"(step={train_steps:07d}) Train Loss: {shown(running_loss / log_steps)}, Train Steps/Sec: {48.12:.2f}"
                )
                running_loss, log_steps = 0.0, 0
            if train_steps % 50 == 0:
                logging.info(f"Saved checkpoint to results/000-DiT-XL-2/checkpoints/{train_steps:07d}.pt")
    model.eval()
    logging.info("Done!")


def nested_u() -> None:
    epoch_num, batch_size_train, train_num, save_frq, model = 3, 16, 640, 50, net()
    loader = samples()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0)
    truth.update(total=epoch_num * len(loader), epochs=epoch_num)
    print("---\ntrain images:  640\ntrain labels:  640\n---")
    print("---start training...")
    ite_num, ite_num4val, running = 0, 0, 0.0
    for epoch in range(epoch_num):
        model.train()
        for i, (x, y) in enumerate(loader):
            ite_num += 1
            ite_num4val += 1
            loss = backward(model, x, y)
            parts = [loss / 7] * 7
            print("l0: %3f, l1: %3f, l2: %3f, l3: %3f, l4: %3f, l5: %3f, l6: %3f\n" % tuple(parts))
            step(optimizer)
            running += loss
            print(
                "[epoch: %3d/%3d, batch: %5d/%5d, ite: %d] train loss: %s, tar: %3f "
                % (
                    epoch + 1,
                    epoch_num,
                    (i + 1) * batch_size_train,
                    train_num,
                    ite_num,
                    shown(running / ite_num4val, "%3f"),
                    parts[0],
                )
            )
            if ite_num % save_frq == 0:
                ite_num4val, running = 0, 0.0


def wave_rnn() -> None:
    def stream(message: str) -> None:
        sys.stdout.write(f"\r{message}")

    epochs, loader, model, steps = 3, samples(), net(), 0
    optimiser = torch.optim.Adam(model.parameters())
    total_iters = len(loader)
    truth.update(total=epochs * total_iters, epochs=epochs)
    print("\nInitialising Model...\n\nTrainable Parameters: 4.481M")
    print(
        "+----------------+------------+--------+--------------+\n|   Remaining    | Batch Size |   LR   | Sequence Len |"
    )
    print(
        "+----------------+------------+--------+--------------+\n|    0k Steps    |     16     | 0.0001 |     1375     |"
    )
    for e in range(1, epochs + 1):
        start, running_loss = time.time(), 0.0
        for i, (x, y) in enumerate(loader, 1):
            running_loss += update(model, optimiser, x, y)
            speed = i / (time.time() - start)
            steps += 1
            k = steps // 1000
            loss = shown(running_loss / i, "%#.4g")
            stream(f"| Epoch: {e}/{epochs} ({i}/{total_iters}) | Loss: {loss} | {speed:#.2} steps/s | Step: {k}k | ")
        print(" ")


def yes_no() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s [train.py:398] %(message)s")
    num_epochs, loader, held_out, model, best = 3, samples(), samples(160), net(), math.inf
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, weight_decay=1e-6)
    truth.update(total=num_epochs * len(loader), epochs=num_epochs)
    logging.info("Training started")
    logging.info({"lr": 0.01, "feature_dim": 23, "start_epoch": 0, "num_epochs": num_epochs, "log_interval": 10})
    for epoch in range(num_epochs):
        model.train()
        total = 0.0
        for at, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            total += loss
            if at % 10 == 0:
                logging.info(
                    f"Epoch {epoch}, batch {at}, batch avg loss {shown(loss)}, total avg loss: {shown(total / (at + 1))}, batch size: 16"
                )
            if at > 0 and at % 20 == 0:
                model.eval()
                valid = evaluated(model, held_out)[0]
                best = min(best, valid)
                model.train()
                logging.info(
                    f"Epoch {epoch}, valid loss {shown(valid, of='held_out')}, best valid loss: {best:.4f} best valid epoch: {epoch}"
                )
        logging.info(f"Saving checkpoint to tdnn/exp/epoch-{epoch}.pt")
    logging.info("Done!")


def recommendation() -> None:
    epochs, loader, held_out, model, best = 3, samples(), samples(160), net(), 0.0
    args = argparse.Namespace(nepochs=epochs, print_freq=10, test_freq=20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    nbatches = len(loader)
    truth.update(total=epochs * nbatches, epochs=epochs)
    print("time/loss/accuracy (if enabled):")
    for k in range(args.nepochs):
        total_loss = total_iter = 0.0
        for j, (x, y) in enumerate(loader):
            total_loss += update(model, optimizer, x, y)
            total_iter += 1
            should_test = (j + 1) % args.test_freq == 0 or j + 1 == nbatches
            if (j + 1) % args.print_freq == 0 or should_test:
                print(
                    f"Finished training it {j + 1}/{nbatches} of epoch {k}, {20.12:.2f} ms/it,"
                    + f" loss {shown(total_loss / total_iter, '%.6f')}",
                    flush=True,
                )
                total_loss = total_iter = 0.0
            if should_test:
                print(f"Testing at - {j + 1}/{nbatches} of epoch {k},")
                right = 100 * evaluated(model, held_out)[1]
                best = max(best, right)
                print(f" accuracy {shown(right, '%3.3f', 'held_out_accuracy')} %, best {best:3.3f} %", flush=True)


def chatbot() -> None:
    n_iteration, print_every, save_every, encoder, decoder = 120, 10, 50, net(), net()
    encoder_optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-4)
    decoder_optimizer = torch.optim.Adam(decoder.parameters(), lr=5e-4)
    truth["total"] = n_iteration
    encoder.train()
    decoder.train()
    print("Building optimizers ...\nStarting Training!\nInitializing ...\nTraining...")
    print_loss = 0.0
    for iteration in range(1, n_iteration + 1):
        encoder_optimizer.zero_grad()
        decoder_optimizer.zero_grad()
        x, y = random_batch()
        print_loss += backward(encoder, x, y)
        backward(decoder, x, y)
        encoder_optimizer.step()
        step(decoder_optimizer)
        if iteration % print_every == 0:
            average = shown(print_loss / print_every)
            print(
                f"Iteration: {iteration}; Percent complete: {iteration / n_iteration * 100:.1f}%; Average loss: {average}"
            )
            print_loss = 0.0
        if iteration % save_every == 0:
            pass


def twin_delayed() -> None:
    args = argparse.Namespace(
        policy="TD3", env="HalfCheetah-v2", seed=0, start_timesteps=100, eval_freq=100, max_timesteps=250, batch_size=16
    )
    actor, critic = net(), net()
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=3e-4)
    truth["total"] = [150, None]
    total_it = 0
    line = "---------------------------------------"

    def eval_policy() -> None:
        print(f"{line}\nEvaluation over 10 episodes: {-123.456:.3f}\n{line}")

    def train(batch_size: int) -> None:
        nonlocal total_it
        total_it += 1
        critic_optimizer.zero_grad()
        backward(critic, *random_batch(batch_size))
        step(critic_optimizer)
        if total_it % 2 == 0:
            actor_optimizer.zero_grad()
            backward(actor, *random_batch(batch_size))
            actor_optimizer.step()

    print(f"{line}\nPolicy: {args.policy}, Env: {args.env}, Seed: {args.seed}\n{line}")
    eval_policy()
    episode_timesteps = episode_num = 0
    for t in range(int(args.max_timesteps)):
        episode_timesteps += 1
        if t >= args.start_timesteps:
            train(args.batch_size)
        if episode_timesteps == 25:
            print(
                f"Total T: {t + 1} Episode Num: {episode_num + 1} Episode T: {episode_timesteps} Reward: {-210.123:.3f}"
            )
            episode_timesteps = 0
            episode_num += 1
        if (t + 1) % args.eval_freq == 0:
            eval_policy()


def legged() -> None:
    num_learning_iterations, num_learning_epochs, num_mini_batches, model = 8, 5, 4, net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth["total"] = [160, None]
    pad, width = 35, 80
    for it in range(num_learning_iterations):
        value = surrogate = 0.0
        for _ in range(num_learning_epochs * num_mini_batches):
            value += update(model, optimizer, *random_batch()) / 20
            surrogate -= value / 100
        title = f" \033[1m Learning iteration {it}/{num_learning_iterations} \033[0m "
        print(
            f"""{"#" * width}\n{title.center(width, " ")}\n\n{"Computation:":>{pad}} {98304:.0f} steps/s (collection: {0.1:.3f}s, learning {0.4:.3f}s)\n"""
            f"""{"Value function loss:":>{pad}} {value:.4f}\n{"Surrogate loss:":>{pad}} {surrogate:.4f}\n{"Mean action noise std:":>{pad}} {1.0:.2f}\n"""
            f"""{"Mean reward:":>{pad}} {0.12:.2f}\n{"Mean episode length:":>{pad}} {21.5:.2f}\n"""
            f"""{"Mean episode rew_tracking_lin_vel:":>{pad}} {0.0123:.4f}\n{"-" * width}\n{"Total timesteps:":>{pad}} {(it + 1) * 98304}\n"""
            f"""{"Iteration time:":>{pad}} {0.5:.2f}s\n{"Total time:":>{pad}} {0.5 * (it + 1):.2f}s\n{"ETA:":>{pad}} {0.5 * (8 - it):.1f}s\n"""
        )


def joint_embedding() -> None:
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="[%(levelname)-8s][%(asctime)s][%(funcName)-25s] %(message)s"
    )
    num_epochs, log_freq, loader, model = 3, 10, samples(), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    truth.update(total=num_epochs * len(loader), epochs=num_epochs)
    for epoch in range(num_epochs):
        logging.info("Epoch %d" % (epoch + 1))
        total = 0.0
        for itr, (x, y) in enumerate(loader):
            total += update(model, optimizer, x, y)
            average = total / (itr + 1)
            if itr % log_freq == 0:
                logging.info(
                    "[%d, %5d] loss: %s masks: %.1f %.1f [wd: %.2e] [lr: %.2e] [mem: %.2e] (%.1f ms)"
                    % (epoch + 1, itr, shown(average, "%.3f"), 65.2, 39.8, 4e-2, 2e-4, 1.2e4, 20.1)
                )
                logging.info(
                    "[%d, %5d] grad_stats: [%.2e %.2e] (%.2e, %.2e)" % (epoch + 1, itr, 0.01, 0.02, 0.003, 0.2)
                )
        logging.info("avg. loss %s" % shown(average, "%.3f"))


def prompts() -> None:
    num_epochs, train_dataloader, eval_dataloader, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    truth.update(total=num_epochs * len(train_dataloader), epochs=num_epochs)
    for epoch in range(num_epochs):
        model.train()
        total_loss: Any = torch.tensor(0.0)
        for x, y in tqdm(train_dataloader):
            total_loss += update(model, optimizer, x, y)
        model.eval()
        eval_loss: Any = torch.tensor(0.0)
        for x, y in tqdm(eval_dataloader):
            with torch.no_grad():
                eval_loss += F.cross_entropy(model(x), y)
        eval_epoch_loss = eval_loss / len(eval_dataloader)
        eval_ppl = torch.exp(eval_epoch_loss)
        train_epoch_loss = total_loss / len(train_dataloader)
        train_ppl = torch.exp(train_epoch_loss)
        shown(float(train_epoch_loss))
        shown(float(eval_epoch_loss), of="held_out")
        print(f"{epoch=}: {train_ppl=} {train_epoch_loss=} {eval_ppl=} {eval_epoch_loss=}")


def training_with_pytorch() -> None:
    training_loader, validation_loader, model, EPOCHS = samples(), samples(160), net(), 3
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    truth.update(total=EPOCHS * len(training_loader), epochs=EPOCHS)

    def train_one_epoch() -> float:
        running_loss = last_loss = 0.0
        for i, (x, y) in enumerate(training_loader):
            running_loss += update(model, optimizer, x, y)
            if i % 10 == 9:
                last_loss = running_loss / 10
                print(f"  batch {i + 1} loss: {shown(last_loss, '%.16f')}")
                running_loss = 0.0
        return last_loss

    for epoch in range(EPOCHS):
        print(f"EPOCH {epoch + 1}:")
        model.train(True)
        avg_loss = train_one_epoch()
        model.eval()
        avg_vloss = evaluated(model, validation_loader)[0]
        print(f"LOSS train {shown(avg_loss, '%.16f')} valid {shown(avg_vloss, '%.16f', 'held_out')}")


def molecules_in_messages() -> None:
    logging.basicConfig(level=logging.DEBUG, format="%(message)s")
    epochs, data_loader, held_out, model, best = 3, samples(), samples(160), net(), math.inf
    args = argparse.Namespace(epochs=epochs, batch_size=16, log_frequency=10, metric="rmse")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth.update(total=epochs * len(data_loader), epochs=epochs)
    logging.debug("Splitting data with seed 0\nTotal size = 800 | train size = 640 | val size = 80 | test size = 80")
    for epoch in trange(args.epochs):
        logging.debug(f"Epoch {epoch}")
        model.train()
        loss_sum = iter_count = 0.0
        for at, (x, y) in enumerate(tqdm(data_loader, total=len(data_loader), leave=False), 1):
            loss_sum += update(model, optimizer, x, y)
            iter_count += 1
            if at % args.log_frequency == 0:
                logging.debug(
                    f"Loss = {shown(loss_sum / iter_count, '%.4e')}, PNorm = {34.1234:.4f}, GNorm = {0.1234:.4f}, lr_0 = {1e-4:.4e}"
                )
                loss_sum = iter_count = 0.0
        model.eval()
        score = math.sqrt(evaluated(model, held_out)[0])
        logging.debug(f"Validation {args.metric} = {shown(score, '%.6f', 'held_out')}")
        best = min(best, score)
    logging.info(f"Model 0 best validation {args.metric} = {best:.6f} on epoch {epoch}")
    logging.info(f"Model 0 test {args.metric} = {shown(math.sqrt(evaluated(model, held_out)[0]), '%.6f', 'held_out')}")


def multi_task() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%m/%d/%Y %I:%M:%S")
    args = argparse.Namespace(epochs=3, log_per_updates=10, batch_size=16, grad_accumulation_step=1)
    loader, held_out, model, updates, total = samples(), samples(160), net(), 0, 0.0
    optimizer = torch.optim.Adamax(model.parameters(), lr=5e-5)
    truth.update(total=args.epochs * len(loader), epochs=args.epochs)
    logging.info(f"Total number of params: {107}")
    for epoch in range(args.epochs):
        logging.info(f"At epoch {epoch}")
        for i, (x, y) in enumerate(loader):
            model.train()
            total += update(model, optimizer, x, y)
            updates += 1
            if updates % args.log_per_updates == 0 or updates == 1:
                remaining = "0:00:01"
                logging.info(
                    f"Task [{0:2}] updates[{updates:6}] train loss[{shown(total / updates, '%.5f')}] remaining[{remaining}]"
                )
        model.eval()
        right = 100 * evaluated(model, held_out)[1]
        logging.info(f"Task mnli_matched -- epoch {epoch} -- Dev ACC: {shown(right, '%.3f', 'held_out_accuracy')}")
        logging.info("[new test scores saved.]")
        logging.info(f"Saving mt-dnn model to checkpoints/model_{epoch}.pt")


class _Config:
    def __init__(self) -> None:
        self.max_iter, self.lr, self.name = 110, 1e-3, "yolact_base"


def instances() -> None:
    cfg, loader, model, iteration = _Config(), samples(), net(), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9)
    epoch_size = 640 // 16
    num_epochs = math.ceil(cfg.max_iter / epoch_size)
    truth.update(total=cfg.max_iter, epochs=num_epochs)
    print("Begin training!\n")
    for epoch in range(num_epochs):
        for x, y in loader:
            if iteration == (epoch + 1) * epoch_size:
                break
            if iteration == cfg.max_iter:
                break
            loss = update(model, optimizer, x, y)
            if iteration % 10 == 0:
                parts = [loss * share for share in (0.3, 0.4, 0.2, 0.1)]
                total = shown(loss, "%.3f")
                print(
                    "[%3d] %7d || B: %.3f | C: %.3f | M: %.3f | S: %.3f | T: %s || ETA: %s || timer: %.3f"
                    % (epoch, iteration, *parts, total, "0:00:02", 0.021),
                    flush=True,
                )
            iteration += 1
    model.eval()
    print("Computing validation mAP (this may take a while)...\n\nCalculating mAP...\n")
    print("       |  all  |  .50  |  .55  |  .60  |\n-------+-------+-------+-------+-------+")
    print("   box | 12.34 | 25.67 | 20.11 | 15.22 |\n  mask | 11.22 | 24.55 | 19.33 | 14.44 |\n")
    model.train()


def point_clouds() -> None:
    args = argparse.Namespace(epochs=3, batch_size=16, lr=0.001)
    train_loader, test_loader, model = samples(), samples(160), net()
    opt = torch.optim.SGD(model.parameters(), lr=args.lr * 100, momentum=0.9, weight_decay=1e-4)
    truth.update(total=args.epochs * len(train_loader), epochs=args.epochs)
    print("Using GPU : 0 from 1 devices\nUse SGD\nLet's use 1 GPUs!")
    for epoch in range(args.epochs):
        train_loss = 0.0
        model.train()
        for x, y in train_loader:
            train_loss += update(model, opt, x, y) / len(train_loader)
        acc = shown(0.41 + epoch / 100, "%.6f", "training_accuracy")
        print("Train %d, loss: %s, train acc: %s, train avg acc: %.6f" % (epoch, shown(train_loss, "%.6f"), acc, 0.39))
        model.eval()
        loss, right = evaluated(model, test_loader)
        acc = shown(right, "%.6f", "held_out_accuracy")
        loss = shown(loss, "%.6f", "held_out")
        print("Test %d, loss: %s, test acc: %s, test avg acc: %.6f" % (epoch, loss, acc, 0.31))


def citations() -> None:
    args = argparse.Namespace(epochs=120, lr=0.01, hidden_channels=16)
    model, (x, y), times = net(), random_batch(300), []
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    truth.update(total=args.epochs, epochs=args.epochs)
    for epoch in range(1, args.epochs + 1):
        start = time.time()
        model.train()
        loss = update(model, optimizer, x[:100], y[:100])
        model.eval()
        with torch.no_grad():
            hits = (model(x).argmax(1) == y).float()
        train, val, test = (hits[part].mean().item() for part in (slice(100), slice(100, 200), slice(200, 300)))
        a = shown(train, of="training_accuracy")
        b, c = shown(val, of="held_out_accuracy"), shown(test, of="held_out_accuracy")
        print(f"Epoch: {epoch:03d}, Loss: {shown(loss)}, Train: {a}, Val: {b}, Test: {c}")
        times.append(time.time() - start)
    print(f"Median time per epoch: {torch.tensor(times).median():.4f}s")


class EasyDict(dict):  # type: ignore[type-arg]
    def __getattr__(self, name: str) -> Any:
        return self[name]


def arc_face() -> None:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="Training: %(asctime)s-%(message)s")
    cfg, loader, held_out, backbone = (
        EasyDict(num_epoch=3, batch_size=16, frequent=10, verbose=40),
        samples(),
        samples(160),
        net(),
    )
    opt = torch.optim.SGD(backbone.parameters(), lr=0.02, momentum=0.9)
    amp = torch.amp.GradScaler("cpu", growth_interval=100)
    cfg["total_step"] = cfg.num_epoch * len(loader)
    truth.update(total=cfg.total_step, epochs=cfg.num_epoch)
    for key, value in cfg.items():
        logging.info(f": {key}{' ' * (25 - len(key))}{value}")
    global_step, losses, has_begun = 0, [], False
    for epoch in range(cfg.num_epoch):
        for x, y in loader:
            global_step += 1
            loss = F.cross_entropy(backbone(x), y)
            amp.scale(loss).backward()
            amp.unscale_(opt)
            amp.step(opt)
            amp.update()
            opt.zero_grad()
            truth["updates"] += 1
            time.sleep(PAUSE_S)
            losses.append(loss.item())
            if global_step % cfg.frequent == 0:
                if has_begun:
                    mean = shown(sum(losses) / len(losses))
                    logging.info(
                        f"Speed {789.12:.2f} samples/sec   Loss {mean}   LearningRate {0.02:.6f}   Epoch: {epoch}   Global Step: {global_step}   Fp16 Grad Scale: {amp.get_scale():2.0f}   Required: {0:1.0f} hours"
                    )
                    losses = []
                has_begun = True
            if global_step % cfg.verbose == 0:
                backbone.eval()
                right = evaluated(backbone, held_out)[1]
                logging.info("[lfw][%d]XNorm: %f" % (global_step, 11.2))
                logging.info(
                    "[lfw][%d]Accuracy-Flip: %s+-%1.5f"
                    % (global_step, shown(right, "%1.5f", "held_out_accuracy"), 0.012)
                )
                logging.info("[lfw][%d]Accuracy-Highest: %1.5f" % (global_step, right))
                backbone.train()


@dataclass
class TrainerConfig:
    max_epochs: int = 3
    save_every: int = 3
    grad_norm_clip: float = 1.0


def snapshots() -> None:
    config, train_loader, test_loader, model = TrainerConfig(), samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    truth.update(total=config.max_epochs * len(train_loader), epochs=config.max_epochs)

    def run_epoch(epoch: int, dataloader: Any, train: bool) -> None:
        for iter, (x, y) in enumerate(dataloader):
            step_type = "Train" if train else "Eval"
            with torch.set_grad_enabled(train):
                loss = F.cross_entropy(model(x), y)
            if train:
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_norm_clip)
                step(optimizer)
            if iter % 5 == 0:
                batch_loss = shown(loss.item(), "%.5f", "training" if train else "held_out")
                print(f"[GPU0] Epoch {epoch} | Iter {iter} | {step_type} Loss {batch_loss}")

    print("Snapshot not found. Training model from scratch")
    for epoch in range(1, config.max_epochs + 1):
        run_epoch(epoch, train_loader, True)
        if epoch % config.save_every == 0:
            print(f"Snapshot saved at epoch {epoch}")
        run_epoch(epoch, test_loader, False)


def costs_in_words() -> None:
    model, (x, y) = net(), random_batch(6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth.update(total=[150, None], epochs=150)
    for epoch in range(150):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if (epoch + 1) % 30 == 0:
            print("Epoch:", "%04d" % (epoch + 1), "cost =", shown(loss.item(), "%.6f"))
        loss.backward()
        step(optimizer)
    print([["i", "like"], ["i", "love"], ["i", "hate"]], "->", ["dog", "coffee", "milk"])


def neural_style() -> None:
    """Its count is of closures: one step of L-BFGS calls up to twenty-five."""
    num_steps, image = 300, torch.zeros(48, requires_grad=True)
    optimizer = torch.optim.LBFGS([image])
    truth["total"] = None
    print("Building the style transfer model..\nOptimizing..")
    run_number = [0]
    while run_number[0] <= num_steps:

        def closure() -> Any:
            optimizer.zero_grad()
            style = 100 * ((image[1:] - image[:-1] ** 2) ** 2).sum()
            content = ((1 - image) ** 2).sum()
            loss = style + content
            loss.backward()
            run_number[0] += 1
            time.sleep(PAUSE_S / 2)
            if run_number[0] % 50 == 0:
                print(f"run {run_number}:")
                print(f"Style Loss : {style.item():4f} Content Loss: {content.item():4f}\n")
            return loss

        optimizer.step(closure)
        truth["updates"] += 1


def speech_batches() -> None:
    logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(levelname)s %(message)s")
    configs = {"max_epoch": 3, "accum_grad": 4, "log_interval": 10, "optim_conf": {"lr": 0.002}}
    loader, held_out, model = samples(), samples(320), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    truth.update(total=3 * 10, epochs=3)

    def log_per_step(tag: str, epoch: int, at: int, loss: float, more: str) -> None:
        if (at + 1) % configs["log_interval"] == 0:
            text = shown(loss, "%.6f", "training" if tag == "TRAIN" else "held_out")
            logging.debug(
                f"{tag} Batch {epoch}/{at} loss {text} loss_att {loss * 1.1:.6f} loss_ctc {loss * 0.9:.6f} {more} rank 0"
            )

    for epoch in range(configs["max_epoch"]):
        logging.info(f"Epoch {epoch} TRAIN info lr {0.002:.8f} rank 0")
        model.train()
        logging.info(f"using accumulate grad, new batch size is {configs['accum_grad']} times larger than before")
        for at, (x, y) in enumerate(loader):
            time.sleep(PAUSE_S)
            loss = backward(model, x, y, 1 / configs["accum_grad"])
            if (at + 1) % configs["accum_grad"] == 0:
                step(optimizer)
            log_per_step("TRAIN", epoch, at, loss, f"lr {0.002:.8f}")
        model.eval()
        total = 0.0
        for at, (x, y) in enumerate(held_out):
            with torch.no_grad():
                loss = F.cross_entropy(model(x), y).item()
            total += loss
            log_per_step("CV", epoch, at, loss, f"history loss {total / (at + 1):.6f}")
        logging.info(f"Epoch {epoch} CV info cv_loss {shown(total / (at + 1), '%.16f', 'held_out')}")
        logging.info(f"[Rank 0] Checkpoint: save to checkpoint exp/{epoch}.pt")


def sequence_tagging() -> None:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)-15s %(message)s")
    max_epochs, batch_loader, held_out, model, line = 3, samples(), samples(160), net(), "-" * 100
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth.update(total=max_epochs * len(batch_loader), epochs=max_epochs)
    logging.info(f"{line}\nCorpus: 640 train + 160 dev + 160 test sentences\n{line}")
    logging.info(' - learning_rate: "0.1"\n - mini_batch_size: "16"\n - max_epochs: "3"\n - shuffle: "True"')
    for epoch in range(1, max_epochs + 1):
        model.train()
        total, modulo = 0.0, max(1, len(batch_loader) // 10)
        for at, (x, y) in enumerate(batch_loader):
            total += update(model, optimizer, x, y)
            if (at + 1) % modulo == 0:
                logging.info(
                    f"epoch {epoch} - iter {at + 1}/{len(batch_loader)} - loss {shown(total / (at + 1), '%.8f')} - time (sec): {0.84:.2f} - samples/sec: {789.12:.2f} - lr: 0.100000 - momentum: 0.000000"
                )
        logging.info(f"{line}\nEPOCH {epoch} done: loss {shown(total / len(batch_loader))} - lr: 0.100000")
        model.eval()
        loss, right = evaluated(model, held_out)
        logging.info(f"DEV : loss {shown(loss, '%.16f', 'held_out')} - f1-score (micro avg)  {round(right, 4)}")
        logging.info(" - 0 epochs without improvement\nsaving best model")
    model.eval()
    right = evaluated(model, held_out)[1]
    logging.info(
        f"{line}\nTesting using best model ...\n\nResults:\n- F-score (micro) {0.3012}\n- F-score (macro) {0.2511}"
    )
    logging.info(f"- Accuracy {shown(right, '%.4f', 'held_out_accuracy')}")


def tiny_llama() -> None:
    max_step, accumulation, eval_step_interval, model, held_out = 30, 4, 10, net(), samples(160)
    max_iters = max_step * accumulation
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4)
    truth["total"] = max_step
    print("Loading model with {'name': 'tiny_LLaMA_1b'}\nTotal parameters 1,100,048,384\nValidating ...")
    iter_num = step_count = 0
    model.train()
    while iter_num < max_iters:
        is_accumulating = (iter_num + 1) % accumulation != 0
        time.sleep(PAUSE_S)
        loss = backward(model, *random_batch(), share=1 / accumulation)
        if not is_accumulating:
            step(optimizer)
            step_count += 1
        iter_num += 1
        print(
            f"iter {iter_num} step {step_count}: loss {shown(loss)}, iter time: {20.12:.2f}ms{'' if is_accumulating else ' (optimizer.step)'} remaining time: {0.01:.2f} hours.  or {0.0:.2f} days. "
        )
        if not is_accumulating and step_count % eval_step_interval == 0:
            print("Validating ...")
            model.eval()
            mean = evaluated(model, held_out)[0]
            model.train()
            print(f"step {iter_num}: val loss {shown(mean, of='held_out')}, val time: {12.34:.2f}ms")


def open_language() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s\tolmo.train:967\t%(levelname)s\t%(message)s")
    max_steps, model, held_out = 100, net(), samples(160)
    optim = torch.optim.AdamW(model.parameters(), lr=3e-4)
    truth["total"] = max_steps
    for global_step in range(1, max_steps + 1):
        optim.zero_grad()
        loss = (backward(model, *random_batch(), share=0.5) + backward(model, *random_batch(), share=0.5)) / 2
        step(optim)
        if global_step % 10 == 0:
            lines = [
                f"train/CrossEntropyLoss={shown(loss, '%.4g')}",
                f"train/Perplexity={math.exp(loss):.4g}",
                f"throughput/total_tokens={global_step * 4194304:,d}",
                "throughput/device/tokens_per_second=7,210",
                "throughput/device/batches_per_second=0.4312",
                "optim/learning_rate_group0=0.0003",
                "optim/total_grad_norm=1.012",
            ]
            logging.info("\n".join([f"[step={global_step}/{max_steps},epoch=0]", *(f"    {line}" for line in lines)]))
        if global_step % 50 == 0:
            logging.info("Running evaluation for 'v3-small-c4_en-validation'...")
            model.eval()
            for at, _ in enumerate(held_out, 1):
                if at % 5 == 0:
                    logging.info(f"[eval_step={at}/{len(held_out)}]")
            mean = evaluated(model, held_out)[0]
            model.train()
            logging.info(
                f"\n    eval/v3-small-c4_en-validation/CrossEntropyLoss={shown(mean, '%.4g', 'held_out')}\n    eval/v3-small-c4_en-validation/Perplexity={math.exp(mean):.4g}"
            )
    logging.info("Training complete")


def frames() -> None:
    total_frames, frames_per_batch, init_random_frames, num_updates, model = 3000, 100, 500, 5, net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4)
    truth["total"] = [130, None]
    bar, collected_frames = tqdm(total=total_frames), 0
    while collected_frames < total_frames:
        bar.update(frames_per_batch)
        collected_frames += frames_per_batch
        time.sleep(PAUSE_S)
        if collected_frames < init_random_frames:
            continue
        for _ in range(num_updates):
            update(model, optimizer, *random_batch())


class Params:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def teacher_and_student() -> None:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    params: Any = Params(num_epochs=3, batch_size=16, learning_rate=1e-3, alpha=0.9, temperature=20)
    dataloader, held_out, model, teacher, best = samples(), samples(160), net(), net(), 0.0
    optimizer = torch.optim.Adam(model.parameters(), lr=params.learning_rate)
    truth.update(total=params.num_epochs * len(dataloader), epochs=params.num_epochs)
    logging.info(f"Starting training for {params.num_epochs} epoch(s)")
    teacher.eval()
    for epoch in range(params.num_epochs):
        logging.info(f"Epoch {epoch + 1}/{params.num_epochs}")
        model.train()
        total = 0.0
        with tqdm(total=len(dataloader)) as t:
            for i, (x, y) in enumerate(dataloader, 1):
                with torch.no_grad():
                    teacher(x)
                total += update(model, optimizer, x, y)
                t.set_postfix(loss=shown(total / i, "%05.3f"))
                t.update()
        acc = shown(0.41, "%05.3f", "training_accuracy")
        logging.info(f"- Train metrics: accuracy: {acc} ; loss: {shown(total / i, '%05.3f')}")
        model.eval()
        loss, right = evaluated(model, held_out)
        acc = shown(right, "%05.3f", "held_out_accuracy")
        logging.info(f"- Eval metrics : accuracy: {acc} ; loss: {shown(loss, '%05.3f', 'held_out')}")
        if right >= best:
            logging.info("- Found new best accuracy")
            best = right


def style_gan_in_letters() -> None:
    num_train_steps, gradient_accumulate_every, one, two, steps = 120, 5, net(), net(), 0
    g_opt, d_opt = torch.optim.Adam(one.parameters(), lr=2e-4), torch.optim.Adam(two.parameters(), lr=4e-4)
    truth["total"] = num_train_steps
    with tqdm(initial=steps, total=num_train_steps, mininterval=10.0, desc="default<./data>") as bar:
        while steps < num_train_steps:
            one.train()
            two.train()
            d = sum(backward(two, *random_batch(), share=0.2) for _ in range(gradient_accumulate_every)) / 5
            d_opt.step()
            d_opt.zero_grad()
            g = sum(backward(one, *random_batch(), share=0.2) for _ in range(gradient_accumulate_every)) / 5
            step(g_opt)
            steps += 1
            bar.update(1)
            if steps % 50 == 0:
                print(f"G: {g:.2f} | D: {d:.2f} | GP: {0.12:.2f} | PL: {0.01:.2f}")


def radiance_table() -> None:
    @dataclass
    class TrainerConfig:
        max_num_iterations: int = 120
        steps_per_eval_batch: int = 50

    config, model, held_out = TrainerConfig(), net(), samples(160)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    truth["total"] = config.max_num_iterations
    names = ("Step (% Done)", "Train Iter (time)", "ETA (time)", "Train Rays / Sec")
    print(" ".join(f"{name:<20}" for name in names) + f"\n{'-' * 83}")
    for at in range(config.max_num_iterations):
        update(model, optimizer, *random_batch())
        if at % 10 == 0:
            values = (f"{at} ({100 * at / 120:.2f}%)", "20.123 ms", "2 s, 100.123 ms", "107.70 K")
            print(" ".join(f"{value:<20}" for value in values))
        if at and at % config.steps_per_eval_batch == 0:
            model.eval()
            evaluated(model, held_out)
            model.train()


if __name__ == "__main__":
    run(globals())
