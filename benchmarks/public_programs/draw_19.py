"""Thirty programs of projects that no draw before had: loops and lines by their source, which was read first."""

from __future__ import annotations

import itertools
import logging
import math
import sys
import time
from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from account import shown, truth
from toy import PAUSE_S, backward, evaluated, net, random_batch, run, samples, step, update
from torch import nn
from tqdm import tqdm, trange


class _Meter:
    def __init__(self) -> None:
        self.val = self.avg = self.sum = self.count = 0.0

    def update(self, val: float, n: int = 1) -> None:
        self.val, self.sum, self.count = val, self.sum + val * n, self.count + n
        self.avg = self.sum / self.count


def _exact(value: float, of: str = "training") -> float:
    shown(value, "%.17g", of)
    return value


def wide_residual() -> None:
    args, model, train_loader, val_loader = (
        SimpleNamespace(epochs=3, start_epoch=0, print_freq=10),
        net(),
        samples(),
        samples(160),
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    truth.update(total=120, epochs=3)
    print("Number of model parameters: 36479194")
    best_prec1 = 0.0
    for epoch in range(args.start_epoch, args.epochs):
        losses = _Meter()
        model.train()
        for i, (x, y) in enumerate(train_loader):
            losses.update(update(model, optimizer, x, y))
            if i % args.print_freq == 0:
                print(
                    f"Epoch: [{epoch}][{i}/{len(train_loader)}]\tTime {0.021:.3f} ({0.022:.3f})\t"
                    f"Loss {shown(losses.val)} ({shown(losses.avg)})\tPrec@1 {31.25:.3f} ({33.1:.3f})"
                )
        test = _Meter()
        model.eval()
        for i, (x, y) in enumerate(val_loader):
            test.update(F.cross_entropy(model(x), y).item())
            if i % args.print_freq == 0:
                print(
                    f"Test: [{i}/{len(val_loader)}]\tTime {0.021:.3f} ({0.022:.3f})\tLoss {shown(test.val, of='held_out')} "
                    f"({shown(test.avg, of='held_out')})\tPrec@1 {31.25:.3f} ({33.1:.3f})"
                )
        print(f" * Prec@1 {33.75:.3f}")
        best_prec1 = max(best_prec1, 33.75)
    print("Best accuracy: ", best_prec1)


def convolved_texts() -> None:
    args, model, train_iter, dev_iter = (
        SimpleNamespace(epochs=3, log_interval=1, test_interval=50, save_interval=50),
        net(),
        samples(),
        samples(160),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth.update(total=120, epochs=3)
    print("\nParameters:\n\tBATCH_SIZE=16\n\tEPOCHS=3\n\tLOG_INTERVAL=1")
    steps = 0
    model.train()
    for _epoch in range(1, args.epochs + 1):
        for feature, target in train_iter:
            loss = update(model, optimizer, feature, target)
            steps += 1
            if steps % args.log_interval == 0:
                sys.stdout.write(f"\rBatch[{steps}] - loss: {shown(loss, '%.6f')}  acc: {43.75:.4f}%({7}/{16})")
            if steps % args.test_interval == 0:
                model.eval()
                avg_loss, _ = evaluated(model, dev_iter)
                model.train()
                print(f"\nEvaluation - loss: {shown(avg_loss, '%.6f', 'held_out')}  acc: {41.25:.4f}%({66}/{160}) \n")


def fast_attacks() -> None:
    args, model, train_loader = SimpleNamespace(epochs=3, early_stop=False), net(), samples()
    opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    lr_steps = args.epochs * len(train_loader)
    scheduler = torch.optim.lr_scheduler.CyclicLR(
        opt, base_lr=0.0, max_lr=0.2, step_size_up=lr_steps / 2, step_size_down=lr_steps / 2
    )
    truth.update(total=120, epochs=3)
    logging.basicConfig(format="[%(asctime)s] - %(message)s", datefmt="%Y/%m/%d %H:%M:%S", level=logging.INFO)
    logger = logging.getLogger("fgsm")
    logger.info(args)
    logger.info("Epoch \t Seconds \t LR \t \t Train Loss \t Train Acc")
    for epoch in range(args.epochs):
        start_epoch_time, train_loss, train_n = time.time(), 0.0, 0
        for X, y in train_loader:
            backward(model, X, y)
            train_loss += update(model, opt, X, y) * y.size(0)
            train_n += y.size(0)
            scheduler.step()
        if args.early_stop and train_loss < 0:
            break
        lr = scheduler.get_last_lr()[0]
        mean = float(shown(train_loss / train_n))
        logger.info("%d \t %.1f \t \t %.4f \t %.4f \t %.4f", epoch, time.time() - start_epoch_time, lr, mean, 0.4)
    logger.info("Total train time: %.4f minutes", 0.1)
    model.eval()
    test_loss, test_acc = evaluated(model, samples(160))
    logger.info("Test Loss \t Test Acc \t PGD Loss \t PGD Acc")
    logger.info("%.4f \t \t %.4f \t %.4f \t %.4f", test_loss, test_acc, test_loss, test_acc)


def domains() -> None:
    n_epoch, my_net, dataloader_source, dataloader_target = 3, net(), samples(), samples(800)
    optimizer = torch.optim.Adam(my_net.parameters(), lr=1e-3)
    truth.update(total=120, epochs=3)
    for epoch in range(n_epoch):
        len_dataloader = min(len(dataloader_source), len(dataloader_target))
        data_source_iter, data_target_iter = iter(dataloader_source), iter(dataloader_target)
        i = 0
        while i < len_dataloader:
            s_img, s_label = next(data_source_iter)
            err_s_label = backward(my_net, s_img, s_label)
            t_img, t_label = next(data_target_iter)
            err_t_domain = backward(my_net, t_img, t_label)
            step(optimizer)
            i += 1
            print(
                "epoch: %d, [iter: %d / all %d], err_s_label: %f, err_s_domain: %f, err_t_domain: %f"
                % (epoch, i, len_dataloader, err_s_label, err_s_label / 2, err_t_domain)
            )
        for name in ("mnist", "mnist_m"):
            my_net.eval()
            for one, _ in samples(160):
                my_net(one)
            print("epoch: %d, accuracy of the %s dataset: %f" % (epoch, name, 0.5))
    print("done")


class _Categories:
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Any:
        for _ in range(self.count):
            yield torch.randint(0, 640, (16,))


def prototypes() -> None:
    args, model = SimpleNamespace(max_epoch=3, save_epoch=20, shot=1, query=15, train_way=30, test_way=5), net()
    data = samples().dataset
    train_loader, val_loader = (
        torch.utils.data.DataLoader(data, batch_sampler=_Categories(count)) for count in (40, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)
    truth.update(total=120, epochs=3)
    print(vars(args))
    for epoch in range(1, args.max_epoch + 1):
        model.train()
        for i, (x, y) in enumerate(train_loader, 1):
            loss = F.cross_entropy(model(x), y)
            print(f"epoch {epoch}, train {i}/{len(train_loader)}, loss={shown(loss.item())} acc={0.4:.4f}")
            optimizer.zero_grad()
            loss.backward()
            step(optimizer)
        lr_scheduler.step()
        model.eval()
        vl = _Meter()
        for x, y in val_loader:
            vl.update(F.cross_entropy(model(x), y).item())
        print(f"epoch {epoch}, val, loss={shown(vl.avg, of='held_out')} acc={0.41:.4f}")
        print(f"ETA:{1}s/{3}s")


def pictures_from_words() -> None:
    EPOCHS, distr_dalle, distr_dl, args = 3, net(), samples(), SimpleNamespace(flops_profiler=False)
    distr_opt = torch.optim.Adam(distr_dalle.parameters(), lr=3e-4)
    truth.update(total=120, epochs=3)
    print("Dataset loaded with 640 samples\nUsing PyTorch Distributed")
    for epoch in range(EPOCHS):
        for i, (text, images) in enumerate(distr_dl):
            if i == 201 and args.flops_profiler:
                raise StopIteration("Profiler has finished running. Stopping training early.")
            avg_loss = update(distr_dalle, distr_opt, text, images)
            if i % 10 == 0:
                print(epoch, i, f"loss - {_exact(avg_loss)}")
            if i % 10 == 9:
                print(epoch, i, f"sample_per_sec - {781.25}")


def planned() -> None:
    args = SimpleNamespace(episodes=3, collect_interval=40, max_episode_length=100, action_repeat=2, test_interval=2)
    transition_model, encoder = net(), net()
    optimiser = torch.optim.Adam([*transition_model.parameters(), *encoder.parameters()], lr=1e-3)
    truth.update(total=120)
    print(" " * 26 + "Options")
    for k, v in vars(args).items():
        print(" " * 26 + k + ": " + str(v))
    for episode in tqdm(range(1, args.episodes + 1), total=args.episodes, initial=1):
        losses = []
        for _s in tqdm(range(args.collect_interval)):
            x, y = random_batch()
            losses.append(backward(transition_model, x, y))
            backward(encoder, x, y)
            step(optimiser)
        with torch.no_grad():
            pbar = tqdm(range(args.max_episode_length // args.action_repeat))
            for t in pbar:
                encoder(random_batch()[0])
                if t == 30:
                    pbar.close()
                    break
        if episode % args.test_interval == 0:
            transition_model.eval()
            for _t in tqdm(range(args.max_episode_length // args.action_repeat)):
                transition_model(random_batch()[0])
            transition_model.train()


class _SacAgent:
    def __init__(self) -> None:
        self.actor, self.critic, self.log_alpha = net(), net(), nn.Parameter(torch.zeros(1))
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-4)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-4)
        self.log_alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=1e-4)
        self.actor_update_frequency = 2

    def update(self, replay_iter: Any, at: int) -> dict[str, float]:
        x, y = next(replay_iter)
        metrics = {"critic_loss": backward(self.critic, x, y)}
        step(self.critic_optimizer)
        if at % self.actor_update_frequency == 0:
            metrics["actor_loss"] = backward(self.actor, x, y)
            self.actor_optimizer.step()
            self.log_alpha_optimizer.zero_grad()
            self.log_alpha.square().sum().backward()
            self.log_alpha_optimizer.step()
        return metrics


def soft_pieces() -> None:
    cfg = SimpleNamespace(num_train_steps=240, num_seed_steps=120, eval_every_steps=80, num_eval_episodes=2)
    agent, replay_iter, episode = _SacAgent(), iter(lambda: random_batch(), 0), 0
    truth.update(total=121)
    print("workspace: /tmp/exp/2026.11.28/031500_sac")
    for at in range(cfg.num_train_steps + 1):
        if at and at % 40 == 0:
            episode += 1
            if at > cfg.num_seed_steps:
                print(f"| train | F: {at} | S: {at} | E: {episode} | L: {40} | R: {17.25 + at:.4f} | FPS: {38.1:.4f}")
        if at % cfg.eval_every_steps == 0:
            print(f"| eval  | F: {at} | S: {at} | E: {episode} | R: {19.5 + at:.4f} | T: 0:00:05")
        if at >= cfg.num_seed_steps:
            agent.update(replay_iter, at)


def click_rates() -> None:
    epochs, initial_epoch, verbose, model = 3, 0, 1, net()
    train_loader, stop_training = samples(), False
    optim = torch.optim.Adagrad(model.parameters(), lr=0.01)
    sample_num, steps_per_epoch = 640, (640 - 1) // 16 + 1
    truth.update(total=120, epochs=3)
    print("cpu", end="\n")
    print(f"Train on {sample_num} samples, validate on {160} samples, {steps_per_epoch} steps per epoch")
    for epoch in range(initial_epoch, epochs):
        total_loss_epoch = 0.0
        with tqdm(enumerate(train_loader), disable=verbose != 1) as t:
            for _index, (x_train, y_train) in t:
                total_loss_epoch += update(model, optim, x_train, y_train) * 16
        t.close()
        model.eval()
        for one, _ in samples(160):
            model(one)
        print(f"Epoch {epoch + 1}/{epochs}")
        eval_str = f"{1}s - loss: {shown(total_loss_epoch / sample_num, '% .4f')}"
        for name, value in {"binary_crossentropy": 0.61, "auc": 0.72}.items():
            eval_str += " - " + name + f": {value: .4f}"
        for name, value in {"binary_crossentropy": 0.62, "auc": 0.71}.items():
            eval_str += " - " + "val_" + name + f": {value: .4f}"
        print(eval_str)
        if stop_training:
            break


def words_and_pictures() -> None:
    epochs, model, train_loader, valid_loader = 3, net(), samples(), samples(160)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    lr_scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", patience=1, factor=0.8)
    truth.update(total=120, epochs=3)

    def train_epoch() -> _Meter:
        loss_meter = _Meter()
        tqdm_object = tqdm(train_loader, total=len(train_loader))
        for x, y in tqdm_object:
            loss_meter.update(update(model, optimizer, x, y), 16)
            shown(loss_meter.avg, "%.3g")
            tqdm_object.set_postfix(train_loss=loss_meter.avg, lr=optimizer.param_groups[0]["lr"])
        return loss_meter

    def valid_epoch() -> _Meter:
        loss_meter = _Meter()
        tqdm_object = tqdm(valid_loader, total=len(valid_loader))
        for x, y in tqdm_object:
            loss_meter.update(F.cross_entropy(model(x), y).item(), 16)
            shown(loss_meter.avg, "%.3g", "held_out")
            tqdm_object.set_postfix(valid_loss=loss_meter.avg)
        return loss_meter

    best_loss = float("inf")
    for epoch in range(epochs):
        print(f"Epoch: {epoch + 1}")
        model.train()
        train_epoch()
        model.eval()
        with torch.no_grad():
            valid_loss = valid_epoch()
        if valid_loss.avg < best_loss:
            best_loss = valid_loss.avg
            print("Saved Best Model!")
        lr_scheduler.step(valid_loss.avg)


def deep_voice() -> None:
    hparams, model, data_loader = SimpleNamespace(nepochs=3, checkpoint_interval=50), net(), samples()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    truth.update(total=120, epochs=3)
    print("Training whole model\nTraining seq2seq model")
    global_step = global_epoch = 0
    while global_epoch < hparams.nepochs:
        running_loss = 0.0
        for _step, (x, y) in tqdm(enumerate(data_loader)):
            if global_step > 0 and global_step % hparams.checkpoint_interval == 0:
                print("Save intermediate states at step {}".format(global_step))  # noqa: UP032 - as there
                print("Saved checkpoint:", f"checkpoints/checkpoint_step{global_step:09d}.pth")
            running_loss += update(model, optimizer, x, y)
            global_step += 1
        print(f"Loss: {_exact(running_loss / len(data_loader))}")
        global_epoch += 1
    print("Finished")


def described_images() -> None:
    """It ends at `max_epochs`, which its own loader counts."""
    opt = SimpleNamespace(max_epochs=3, save_checkpoint_every=60, losses_log_every=25, batch_size=16, seq_per_img=5)
    model, batches = net(), 40
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-4)
    truth.update(total=120, epochs=3)
    print("DataLoader loading json file:  data/cocotalk.json\nvocab size is  9487")
    iteration = epoch = 0
    while True:
        print("Read data:", 0.0021)
        train_loss = update(model, optimizer, *random_batch())
        mean = shown(train_loss, "%.3f")
        print(f"iter {iteration} (epoch {epoch}), train_loss = {mean}, time/batch = {0.021:.3f}")
        iteration += 1
        if iteration % batches == 0:
            epoch += 1
        if iteration % opt.save_checkpoint_every == 0:
            model.eval()
            for ix in range(5):
                x, y = random_batch()
                loss = F.cross_entropy(model(x), y).item()
                print(f"image {ix}: a man riding a wave on a surfboard")
                print(f"evaluating validation preformance... {ix}/{5} ({_exact(loss, 'held_out'):f})")
            model.train()
            print("model saved to save/model.pth")
        if epoch >= opt.max_epochs and opt.max_epochs != -1:
            break


def llama_recipes() -> None:
    train_config, gradient_accumulation_steps = SimpleNamespace(num_epochs=3, run_validation=True), 2
    model, train_dataloader, eval_dataloader = net(), samples(), samples(160)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    truth.update(total=60, epochs=3)
    for epoch in range(train_config.num_epochs):
        model.train()
        total_loss = 0.0
        total_length = len(train_dataloader) // gradient_accumulation_steps
        pbar = tqdm(colour="blue", desc=f"Training Epoch: {epoch + 1}", total=total_length, dynamic_ncols=True)
        for at, (x, y) in enumerate(train_dataloader):
            loss = F.cross_entropy(model(x), y) / gradient_accumulation_steps
            total_loss += loss.item()
            loss.backward()
            if (at + 1) % gradient_accumulation_steps == 0 or at == len(train_dataloader) - 1:
                step(optimizer)
                pbar.update(1)
            pbar.set_description(
                f"Training Epoch: {epoch + 1}/{train_config.num_epochs}, step {at}/{len(train_dataloader)} completed "
                f"(loss: {_exact(loss.item())})"
            )
        pbar.close()
        train_epoch_loss = total_loss / len(train_dataloader)
        print("Max CUDA memory allocated was 15 GB\nMax CUDA memory reserved was 16 GB")
        model.eval()
        eval_loss = 0.0
        for x, y in tqdm(eval_dataloader, colour="green", desc="evaluating Epoch", dynamic_ncols=True):
            with torch.no_grad():
                eval_loss += F.cross_entropy(model(x), y).item()
        eval_epoch_loss = _exact(eval_loss / len(eval_dataloader), "held_out")
        eval_ppl = math.exp(eval_epoch_loss)
        print(f" {eval_ppl=} {eval_epoch_loss=}")
        print(f"best eval loss on epoch {epoch + 1} is {eval_epoch_loss}")
        print(
            f"Epoch {epoch + 1}: train_perplexity={math.exp(train_epoch_loss):.4f}, "
            f"train_epoch_loss={shown(train_epoch_loss)}, epoch time {1.25}s"
        )


def face_passes() -> None:
    epochs, resnet, train_loader, val_loader = 3, net(), samples(), samples(160)
    optimizer = torch.optim.Adam(resnet.parameters(), lr=0.001)
    truth.update(total=120, epochs=3)

    def pass_epoch(loader: Any) -> None:
        mode, of = ("Train", "training") if resnet.training else ("Valid", "held_out")
        loss = 0.0
        for i, (x, y) in enumerate(loader):
            loss += update(resnet, optimizer, x, y) if resnet.training else F.cross_entropy(resnet(x), y).item()
            track_str = f"\r{mode} | {i + 1:5d}/{len(loader):<5d}| "
            loss_str = f"loss: {shown(loss / (i + 1), '%9.4f', of)} | "
            metric_str = " | ".join(f"{k}: {v:9.4f}" for k, v in {"fps": 812.5, "acc": 0.43}.items())
            print(track_str + loss_str + metric_str + "   ", end="")
        print("")

    print("\n\nInitial\n" + "-" * 10)
    resnet.eval()
    pass_epoch(val_loader)
    for epoch in range(epochs):
        print("\nEpoch {}/{}".format(epoch + 1, epochs))  # noqa: UP032 - as there
        print("-" * 10)
        resnet.train()
        pass_epoch(train_loader)
        resnet.eval()
        pass_epoch(val_loader)


def retinas() -> None:
    parser, retinanet, dataloader_train, dataset_val = SimpleNamespace(epochs=3), net(), samples(), samples(160)
    optimizer = torch.optim.Adam(retinanet.parameters(), lr=1e-5)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)
    loss_hist: deque[float] = deque(maxlen=500)
    truth.update(total=120, epochs=3)
    print("CUDA available: False\nNum training images: 640")
    for epoch_num in range(parser.epochs):
        retinanet.train()
        epoch_loss = []
        for iter_num, (x, y) in enumerate(dataloader_train):
            try:
                loss = backward(retinanet, x, y)
                if loss == 0:
                    continue
                step(optimizer)
                loss_hist.append(loss)
                epoch_loss.append(loss)
                print(
                    f"Epoch: {epoch_num} | Iteration: {iter_num} | Classification loss: {loss * 0.75:1.5f} | "
                    f"Regression loss: {loss / 4:1.5f} | Running loss: {sum(loss_hist) / len(loss_hist):1.5f}"
                )
            except RuntimeError as e:
                print(e)
                continue
        print("Evaluating dataset")
        joint = 0.0
        for iter_num, (x, y) in enumerate(dataset_val):
            if iter_num % 5 == 0:
                print(f"{iter_num}/{len(dataset_val)}")
            with torch.no_grad():
                joint += F.cross_entropy(retinanet(x), y).item()
        joint /= len(dataset_val)
        print(
            f"Validation epoch: {epoch_num} | Classification loss: {joint * 0.75:1.5f} | Regression loss: {joint / 4:1.5f}"
            f" | Total loss: {shown(joint, '%1.5f', 'held_out')}"
        )
        scheduler.step(sum(epoch_loss) / len(epoch_loss))


def flappy() -> None:
    opt, model = (
        SimpleNamespace(num_iters=120, initial_epsilon=0.1, final_epsilon=1e-4, replay_memory_size=50000),
        net(),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)
    truth.update(total=120)
    iteration = 0
    while iteration < opt.num_iters:
        epsilon = opt.final_epsilon + (opt.num_iters - iteration) * 0.0999 / opt.num_iters
        if iteration % 17 == 0:
            print("Perform a random action")
        loss = _exact(update(model, optimizer, *random_batch()))
        iteration += 1
        print(
            f"Iteration: {iteration + 1}/{opt.num_iters}, Action: {iteration % 2}, Loss: {loss}, Epsilon {epsilon}, "
            f"Reward: {0.1}, Q-value: {0.0123}"
        )


def sentence_vae() -> None:
    args, model, splits = (
        SimpleNamespace(epochs=3, print_every=10, batch_size=16, k=0.0025, x0=2500),
        net(),
        ["train", "valid"],
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth.update(total=120, epochs=3)
    at = 0
    for epoch in range(args.epochs):
        for split in splits:
            data_loader = samples(640 if split == "train" else 160, shuffle=split == "train")
            tracker: dict[str, list[float]] = defaultdict(list)
            model.train(split == "train")
            for iteration, (x, y) in enumerate(data_loader):
                loss = F.cross_entropy(model(x), y)
                if split == "train":
                    optimizer.zero_grad()
                    loss.backward()
                    step(optimizer)
                    at += 1
                tracker["ELBO"].append(loss.item())
                if iteration % args.print_every == 0 or iteration + 1 == len(data_loader):
                    value = shown(loss.item(), "%9.4f", "training" if split == "train" else "held_out")
                    print(
                        "%s Batch %04d/%i, Loss %s, NLL-Loss %9.4f, KL-Loss %9.4f, KL-Weight %6.3f"
                        % (split.upper(), iteration, len(data_loader) - 1, value, loss.item() * 0.9, 0.12, 0.002)
                    )
            mean = sum(tracker["ELBO"]) / len(tracker["ELBO"])
            print("%s Epoch %02d/%i, Mean ELBO %9.4f" % (split.upper(), epoch, args.epochs, mean))
            if split == "train":
                print("Model saved at %s" % f"bin/2026-Nov-28/E{epoch}.pytorch")


def cycle_logger() -> None:
    opt, nets, dataloader = (
        SimpleNamespace(epoch=0, n_epochs=3, batchSize=16, decay_epoch=2),
        [net() for _ in range(3)],
        samples(),
    )
    optimizer_G, optimizer_D_A, optimizer_D_B = (torch.optim.Adam(one.parameters(), lr=2e-4) for one in nets)
    truth.update(total=120, epochs=3)
    for epoch in range(opt.epoch, opt.n_epochs):
        sums: dict[str, float] = {}
        for i, (x, y) in enumerate(dataloader):
            losses = [backward(one, x, y) for one in nets]
            step(optimizer_G, optimizer_D_A, optimizer_D_B)
            sys.stdout.write("\rEpoch %03d/%03d [%04d/%04d] -- " % (epoch + 1, opt.n_epochs, i + 1, len(dataloader)))
            named = {"loss_G": losses[0], "loss_G_identity": 0.1, "loss_G_GAN": 0.4, "loss_D": losses[1] + losses[2]}
            for n, (loss_name, value) in enumerate(named.items()):
                sums[loss_name] = sums.get(loss_name, 0.0) + value
                sys.stdout.write("%s: %.4f" % (loss_name, sums[loss_name] / (i + 1)))
                sys.stdout.write(" -- " if n + 1 == len(named) else " | ")
            sys.stdout.write("ETA: 0:00:01.250000")
        sys.stdout.write("\n")


def upscaled() -> None:
    NUM_EPOCHS, UPSCALE_FACTOR, netG, netD, train_loader, val_loader = 3, 4, net(), net(), samples(), samples(10, 1)
    optimizerG, optimizerD = torch.optim.Adam(netG.parameters()), torch.optim.Adam(netD.parameters())
    truth.update(total=120, epochs=3)
    print("# generator parameters: 734219\n# discriminator parameters: 5215425")
    for epoch in range(1, NUM_EPOCHS + 1):
        train_bar = tqdm(train_loader)
        sums = {"batch_sizes": 0, "d_loss": 0.0, "g_loss": 0.0}
        netG.train()
        netD.train()
        for data, target in train_bar:
            sums["batch_sizes"] += 16
            d_loss = backward(netD, data, target)
            step(optimizerD)
            g_loss = backward(netG, data, target)
            optimizerG.step()
            sums["g_loss"] += g_loss * 16
            sums["d_loss"] += d_loss * 16
            train_bar.set_description(
                desc="[%d/%d] Loss_D: %.4f Loss_G: %.4f D(x): %.4f D(G(z)): %.4f"
                % (
                    epoch,
                    NUM_EPOCHS,
                    sums["d_loss"] / sums["batch_sizes"],
                    sums["g_loss"] / sums["batch_sizes"],
                    0.6,
                    0.4,
                )
            )
        netG.eval()
        with torch.no_grad():
            val_bar = tqdm(val_loader)
            for val_lr, _ in val_bar:
                netG(val_lr)
                val_bar.set_description(
                    desc="[converting LR images to SR images] PSNR: %.4f dB SSIM: %.4f" % (21.5 + UPSCALE_FACTOR, 0.71)
                )
            for _image in tqdm(range(5), desc="[saving training results]"):
                time.sleep(PAUSE_S)


def residual_noise() -> None:
    """It calls eval() before it prints."""
    opt, model, loader_train = (
        SimpleNamespace(epochs=3, milestone=2, lr=1e-3, noiseL=25, num_of_layers=17),
        net(),
        samples(),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=opt.lr)
    truth.update(total=120, epochs=3)
    print("Loading dataset ...\n\n# of training samples: 640\n")
    for epoch in range(opt.epochs):
        print("learning rate %f" % (opt.lr if epoch < opt.milestone else opt.lr / 10.0))
        for i, (x, y) in enumerate(loader_train, 0):
            model.train()
            loss = update(model, optimizer, x, y)
            model.eval()
            print(
                "[epoch %d][%d/%d] loss: %s PSNR_train: %.4f" % (epoch + 1, i + 1, len(loader_train), shown(loss), 24.1)
            )
        model.eval()
        for _ in range(10):
            model(random_batch(1)[0])
        print("\n[epoch %d] PSNR_val: %.4f" % (epoch + 1, 25.2))


def sinc() -> None:
    N_epochs, N_batches, N_eval_epoch, nets = 4, 30, 2, [net() for _ in range(3)]
    optimizers = [torch.optim.RMSprop(one.parameters(), lr=0.001, alpha=0.95, eps=1e-8) for one in nets]
    optimizer_CNN, optimizer_DNN1, optimizer_DNN2 = optimizers
    truth.update(total=120, epochs=4)
    for epoch in range(N_epochs):
        for one in nets:
            one.train()
        loss_sum = 0.0
        for _ in range(N_batches):
            x, y = random_batch()
            loss_sum += [backward(one, x, y) for one in nets][0]
            step(optimizer_CNN, optimizer_DNN1, optimizer_DNN2)
        loss_tot = float(shown(loss_sum / N_batches, "%f"))
        if epoch % N_eval_epoch == 0:
            for one in nets:
                one.eval()
            loss_dev = float(shown(evaluated(nets[0], samples(160))[0], "%f", "held_out"))
            print(
                "epoch %i, loss_tr=%f err_tr=%f loss_te=%f err_te=%f err_te_snt=%f"
                % (epoch, loss_tot, 0.61, loss_dev, 0.63, 0.31)
            )
        else:
            print("epoch %i, loss_tr=%f err_tr=%f" % (epoch, loss_tot, 0.6))


def celebrities() -> None:
    """Its loop ends at `max_epoch`, and a bar of each epoch has the loss behind it."""
    args, model = SimpleNamespace(max_epoch=3, test_interval=2, nPerSpeaker=2), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth.update(total=120, epochs=3)
    for it in range(1, args.max_epoch + 1):
        loader = samples()
        model.train()
        counter, loss = 0, 0.0
        with tqdm(iter(loader), unit="batch", total=len(loader)) as tepoch:
            for x, y in tepoch:
                loss += update(model, optimizer, x, y)
                counter += 1
                shown(loss / counter, "%.3g")
                tepoch.set_postfix(loss=loss / counter)
        print(f"\n 2026-11-28 03:15:00 Epoch {it:d}, TEER/TAcc {41.25:2.2f}, TLOSS {loss / counter:f}, LR {0.001:f}")
        if it % args.test_interval == 0:
            model.eval()
            with tqdm(samples(20, 1), unit="utt", desc="Extracting") as tests:
                for x, _ in tests:
                    model(x)
            with tqdm(range(30), unit="trial", desc="Scoring") as trials:
                for _ in trials:
                    pass
            print(f"\n 2026-11-28 03:15:01 Epoch {it:d}, VEER {21.2:2.4f}, MinDCF {0.91:2.5f}")


def clusters() -> None:
    args, model = SimpleNamespace(epochs=12, cluster_number=10, learning_rate=0.01), net()
    cells = list(range(args.cluster_number))
    truth.update(total=120)
    print("Training started.\n")
    epochs = trange(args.epochs, desc="Train Loss")
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    model.train()
    for _epoch in epochs:
        seen, accumulated = 0, 0.0
        for _cluster in cells:
            accumulated += update(model, optimizer, *random_batch()) * 16
            seen += 16
        average = round(accumulated / seen, 4)
        shown(average, "%g")
        epochs.set_description("Train Loss: %g" % average)
    model.eval()
    print(f"\nF-1 score: {0.8125:.4f}")


def hyperbolic() -> None:
    """It may end early, and does not."""
    args, model = SimpleNamespace(epochs=120, log_freq=5, eval_freq=10, patience=100, min_epochs=100), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=120, gamma=0.5)
    truth.update(total=120)
    logging.basicConfig(level=logging.INFO, handlers=[logging.StreamHandler()])
    logging.info("Using: cpu")
    logging.info("Total number of parameters: 23023")
    x, y = random_batch(64)
    counter = 0
    for epoch in range(args.epochs):
        model.train()
        loss = update(model, optimizer, x, y)
        lr_scheduler.step()
        head = f"Epoch: {epoch + 1:04d}"
        if (epoch + 1) % args.log_freq == 0:
            mean = shown(loss)
            logging.info(f"{head} lr: 0.01 train_loss: {mean} train_acc: 0.8100 train_f1: 0.8100 time: 0.0210s")
        if (epoch + 1) % args.eval_freq == 0:
            model.eval()
            mean = shown(F.cross_entropy(model(x), y).item(), of="held_out")
            logging.info(f"{head} val_loss: {mean} val_acc: 0.7900 val_f1: 0.7900")
            counter += 1
            if counter == args.patience and epoch > args.min_epochs:
                logging.info("Early stopping")
                break
    logging.info("Optimization Finished!\nTotal time elapsed: 3.1000s")
    logging.info("Test set results: test_loss: 0.6123 test_acc: 0.8000 test_f1: 0.8000")


class _Pointers:
    def __init__(self) -> None:
        self.model = net()
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=0.15, initial_accumulator_value=0.1)

    def train_one_batch(self, batch: Any) -> float:
        self.optimizer.zero_grad()
        loss = backward(self.model, *batch)
        step(self.optimizer)
        return loss

    def trainIters(self, n_iters: int) -> None:
        at, running_avg_loss = 0, 0.0
        while at < n_iters:
            loss = self.train_one_batch(random_batch())
            running_avg_loss = running_avg_loss * 0.99 + loss * 0.01
            at += 1
            print_interval = 10
            if at % print_interval == 0:
                print("steps %d, seconds for %d batch: %.2f , loss: %s" % (at, print_interval, 0.25, shown(loss, "%f")))


def pointers() -> None:
    config = SimpleNamespace(max_iterations=120, batch_size=8, max_dec_steps=100, max_enc_steps=400, beam_size=4)
    truth.update(total=120)
    print("max_size of vocab was specified as 50000; we now have 50000 words. Stopping reading.")
    _Pointers().trainIters(config.max_iterations)


def second_styles() -> None:
    """Each fourth iteration steps the generator again, which is the optimizer that steps most often."""
    args, generator, discriminator = SimpleNamespace(iter=96, d_reg_every=16, g_reg_every=4, batch=16), net(), net()
    g_optim, d_optim = (torch.optim.Adam(one.parameters(), lr=0.002) for one in (generator, discriminator))
    g_ema = net()
    g_ema.eval()
    truth.update(total=120)
    pbar = trange(args.iter, initial=0, dynamic_ncols=True, smoothing=0.01)
    for i in pbar:
        x, y = random_batch()
        d_loss = backward(discriminator, x, y)
        d_optim.step()
        if i % args.d_reg_every == 0:
            backward(discriminator, x, y)
            d_optim.step()
        g_loss = backward(generator, x, y)
        step(g_optim)
        if i % args.g_reg_every == 0:
            backward(generator, x, y)
            step(g_optim)
        pbar.set_description(
            f"d: {d_loss:.4f}; g: {g_loss:.4f}; r1: {0.01:.4f}; path: {0.02:.4f}; mean path: {0.01:.4f}; augment: {0:.4f}"
        )
        if i % 50 == 0:
            g_ema.eval()


def attentive_translation() -> None:
    iteration_, print_freq, save_freq, nets = 120, 60, 60, [net() for _ in range(6)]
    G_optim = torch.optim.Adam(itertools.chain(nets[0].parameters(), nets[1].parameters()), lr=1e-4)
    D_optim = torch.optim.Adam(itertools.chain(*(one.parameters() for one in nets[2:])), lr=1e-4)
    trainA, trainB = samples(160), samples(320)
    trainA_iter, trainB_iter = iter(trainA), iter(trainB)
    truth.update(total=120)
    print("training start !")
    start_time = time.time()
    for at in range(1, iteration_ + 1):
        try:
            real_A, label = next(trainA_iter)
        except StopIteration:
            trainA_iter = iter(trainA)
            real_A, label = next(trainA_iter)
        try:
            real_B, _ = next(trainB_iter)
        except StopIteration:
            trainB_iter = iter(trainB)
            real_B, _ = next(trainB_iter)
        d_loss = sum(backward(one, real_A, label) for one in nets[2:])
        D_optim.step()
        g_loss = sum(backward(one, real_B, label) for one in nets[:2])
        step(G_optim)
        print(
            "[%5d/%5d] time: %4.4f d_loss: %.8f, g_loss: %.8f"
            % (at, iteration_, time.time() - start_time, d_loss, g_loss)
        )
        if at % print_freq == 0:
            for one in nets:
                one.eval()
            for x, _ in samples(80):
                nets[0](x)
            for one in nets:
                one.train()
    print(" [*] Training finished!")


def labels() -> None:
    """It accumulates two batches; a bar of its own counts batches."""
    args, model, train_data, valid_data = (
        SimpleNamespace(epochs=3, gradient_accumulation_steps=2),
        net(),
        samples(),
        samples(160),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    logger = logging.getLogger("bert")
    logger.addHandler(logging.StreamHandler())
    logger.setLevel(logging.INFO)
    truth.update(total=60, epochs=3)

    def pbar(desc: str, at: int, total: int, info: dict[str, str]) -> None:
        now = at + 1
        bar = "=" * (now * 60 // total - 1) + (">" if now < total else "=")
        text = f"\r[{desc}] {now}/{total} [{bar:.<60s}] {20.1:.1f}ms/step"
        sys.stdout.write(text + "  " + "-".join(f" {key}: {value} " for key, value in info.items()))
        if now == total:
            print("")

    print("model summary info: ")
    for epoch in range(1, 1 + args.epochs):
        logger.info(f"Epoch {epoch}/{args.epochs}")
        model.train()
        tr_loss = _Meter()
        for at, (x, y) in enumerate(train_data):
            loss = backward(model, x, y, 0.5) / 2
            if (at + 1) % args.gradient_accumulation_steps == 0:
                step(optimizer)
            tr_loss.update(loss)
            pbar("Training", at, len(train_data), {"loss": shown(loss)})
        print("\n------------- train result --------------")
        for at, (x, _y) in enumerate(valid_data):
            model.eval()
            model(x)
            pbar("Evaluating", at, len(valid_data), {})
        print("------------- valid result --------------")
        valid_loss = shown(evaluated(model, valid_data)[0], of="held_out")
        logger.info(
            f"\nEpoch: {epoch} -  loss: {shown(tr_loss.avg)} - auc: {0.61:.4f} - valid_loss: {valid_loss} - valid_auc: {0.6:.4f} "
        )


def big_gan() -> None:
    """Two steps of D for each of G."""
    config: dict[str, Any] = {"num_epochs": 3, "num_D_steps": 2, "save_every": 30, "test_every": 40, "batch_size": 16}
    G, D, loader = net(), net(), samples(640, 32)
    G_optim, D_optim = (torch.optim.Adam(one.parameters(), lr=5e-5) for one in (G, D))
    state_dict: dict[str, Any] = {"itr": 0, "epoch": 0, "save_num": 0, "config": config}
    truth.update(total=120, epochs=3)
    print("Experiment name is BigGAN_C10\nNumber of params in G: 4319203 D: 4217281\nBeginning training...")

    def train(x: Any, y: Any) -> dict[str, float]:
        for start in range(0, 32, 16):
            d_loss = backward(D, x[start : start + 16], y[start : start + 16])
            step(D_optim)
        g_loss = backward(G, x, y)
        G_optim.step()
        return {"G_loss": g_loss, "D_loss_real": d_loss, "D_loss_fake": d_loss / 2}

    for epoch in range(state_dict["epoch"], config["num_epochs"]):
        state_dict["epoch"] += 1
        for i, (x, y) in enumerate(loader):
            eta = f"(TE/ETA: {0:d}:{i:02d} / {0:d}:{20 - i:02d}) "
            print(f"\r{i + 1:d}/{len(loader):d} ({100 * (i + 1) / len(loader):6.2f}%) ", end=eta)
            state_dict["itr"] += 1
            metrics = train(x, y)
            words = ["itr: %d" % state_dict["itr"], *("%s : %+4.3f" % (key, metrics[key]) for key in metrics)]
            print(", ".join(words), end=" ")
            if not state_dict["itr"] % config["test_every"]:
                print("Switchin G to eval mode...")
                G.eval()
                print("Gathering inception metrics...")
                print("Itr %d: Inception Score is %3.3f +/- %3.3f, FID is %5.4f" % (state_dict["itr"], 3.1, 0.1, 81.2))
                G.train()
        print(epoch, flush=True)


class _Segmenter:
    def __init__(self) -> None:
        self.args, self.model = SimpleNamespace(epochs=3, start_epoch=0, no_val=False), net()
        self.trainloader, self.valloader = samples(drop_last=True, shuffle=True), samples(160)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def training(self, _epoch: int) -> None:
        train_loss = 0.0
        self.model.train()
        tbar = tqdm(self.trainloader)
        for i, (image, target) in enumerate(tbar):
            train_loss += update(self.model, self.optimizer, image, target)
            tbar.set_description(f"Train loss: {shown(train_loss / (i + 1), '%.3f')}")

    def validation(self, _epoch: int) -> None:
        self.model.eval()
        tbar = tqdm(self.valloader, desc="\r")
        for image, _target in tbar:
            self.model(image)
            tbar.set_description("pixAcc: %.3f, mIoU: %.3f" % (0.71, 0.43))


def encoded() -> None:
    truth.update(total=120, epochs=3)
    trainer = _Segmenter()
    print("Starting Epoch:", trainer.args.start_epoch)
    print("Total Epoches:", trainer.args.epochs)
    for epoch in range(trainer.args.start_epoch, trainer.args.epochs):
        trainer.training(epoch)
        if not trainer.args.no_val:
            trainer.validation(epoch)


if __name__ == "__main__":
    run(globals())
