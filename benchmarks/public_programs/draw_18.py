"""Twelve programs on which the strict totals were tried first: loops and lines by their source."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from account import shown, truth
from toy import PAUSE_S, backward, evaluated, net, random_batch, run, samples, step, update
from torch import nn
from tqdm import tqdm


def five_critics() -> None:
    opt = SimpleNamespace(n_epochs=3, batch_size=16, n_critic=5, sample_interval=1)
    generator, discriminator, mnist_loader = net(), net(), samples()
    optimizer_G = torch.optim.Adam(generator.parameters(), lr=0.0002)
    optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=0.0002)
    truth.update(total=120, epochs=3)
    print(opt)
    for epoch in range(opt.n_epochs):
        data_iter = iter(mnist_loader)
        for i in range(len(data_iter) // opt.n_critic):
            for _ in range(opt.n_critic):
                imgs, labels = next(data_iter)
                d_loss = backward(discriminator, imgs, labels)
                step(optimizer_D)
            g_loss = backward(generator, imgs, labels)
            optimizer_G.step()
            print(
                "[Epoch %d/%d] [Batch %d/%d] [D loss: %f] [G loss: %f]"
                % (epoch, opt.n_epochs, i * opt.n_critic, len(mnist_loader), d_loss, g_loss)
            )


def proximal_in_turns() -> None:
    """Policy and value function in turns of many steps: each step is an update."""
    epochs, train_pi_iters, train_v_iters, target_kl, steps_per_epoch = 3, 30, 20, 0.01, 400
    pi, v = net(), net()
    pi_optimizer, vf_optimizer = (torch.optim.Adam(one.parameters(), lr=3e-4) for one in (pi, v))
    truth.update(total=150, epochs=3)
    print("\n\x1b[32;1mNumber of parameters: \t pi: 99, \t v: 99\n\x1b[0m")
    for epoch in range(epochs):
        for t in range(steps_per_epoch):
            if t == steps_per_epoch - 1:
                print("Warning: trajectory cut off by epoch at %d steps." % 17, flush=True)
        x, y = random_batch()
        for i in range(train_pi_iters):
            loss_pi = backward(pi, x, y)
            if target_kl < 0:
                print("Early stopping at step %d due to reaching max kl." % i)
                break
            step(pi_optimizer)
        for _ in range(train_v_iters):
            loss_v = backward(v, x, y)
            step(vf_optimizer)
        print("-" * 39)
        rows = {"Epoch": epoch, "AverageEpRet": 21.7, "EpLen": 21.7, "TotalEnvInteracts": (epoch + 1) * steps_per_epoch}
        rows.update(LossPi=loss_pi, LossV=loss_v, DeltaLossPi=-0.01, Entropy=0.69, KL=0.01, StopIter=i, Time=1.5)
        for key, value in rows.items():
            print("| %15s | %15s |" % (key, "%8.3g" % value if hasattr(value, "__float__") else value))
        print("-" * 39, flush=True)


class _Layer(nn.Linear):
    def __init__(self, args: Any) -> None:
        super().__init__(8, 8)
        self.opt = torch.optim.Adam(self.parameters(), lr=0.03)
        self.num_epochs, self.log_interval = args.epochs, args.log_interval

    def train(self, x: Any, _y: Any = None) -> Any:  # type: ignore[override]  # as there
        for i in range(self.num_epochs):
            loss = F.relu(nn.Linear.forward(self, x)).square().mean()
            self.opt.zero_grad()
            loss.backward()
            step(self.opt)
            if i % self.log_interval == 0:
                shown(loss.item(), "%.17g")
                print("Loss: ", loss.item())
        return F.relu(nn.Linear.forward(self, x)).detach()


def forward_layers() -> None:
    args = SimpleNamespace(epochs=40, log_interval=10, train_size=640)
    layers = [_Layer(args) for _ in range(3)]
    truth.update(total=120)
    h: Any = random_batch(640)[0]
    for i, layer in enumerate(layers):
        print("training layer: ", i)
        h = layer.train(h)
    print("train error:", 0.0625)
    print("test error:", 0.07)


class _TrainLoop:
    def __init__(self) -> None:
        self.model, self.step, self.lr_anneal_steps, self.resume_step, self.microbatch = net(), 0, 120, 0, 8
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.log_interval, self.save_interval = 10, 60

    def run_loop(self) -> None:
        while not self.lr_anneal_steps or self.step + self.resume_step < self.lr_anneal_steps:
            self.run_step(*random_batch())
            if self.step % self.save_interval == 0:
                print(f"saving model {0}...")
                print(f"saving model {0.9999}...")
            self.step += 1

    def run_step(self, batch: Any, y: Any) -> None:
        for i in range(0, batch.shape[0], self.microbatch):
            loss = backward(self.model, batch[i : i + self.microbatch], y[i : i + self.microbatch])
        step(self.opt)
        if self.step % self.log_interval == 0:
            rows = {"grad_norm": 1.21, "loss": shown(loss, "%.3g"), "loss_q0": 0.9, "loss_q3": 0.2, "mse": 0.12}
            rows.update(samples=(self.step + 1) * 16, step=self.step)
            print("-" * 26)
            for key, value in rows.items():
                print(f"| {key:<10} | {value!s:<9} |")
            print("-" * 26)


def improved_diffusion() -> None:
    truth.update(total=120)
    print("Logging to /tmp/openai-2026-11-28\ncreating model and diffusion...\ncreating data loader...\ntraining...")
    _TrainLoop().run_loop()


def networks_of_numpy() -> None:
    """No optimizer of torch: an epoch and how many of the test are right."""
    epochs, mini_batches, n_test = 3, 40, 10000
    truth.update(updates=None, epochs=3)
    for j in range(epochs):
        for _ in range(mini_batches):
            time.sleep(PAUSE_S)
        print("Epoch {0}: {1} / {2}".format(j, random.randint(9000, 9500), n_test))  # noqa: UP032 - as there


def sage() -> None:
    model, train_dataloader, val_dataloader = net(), samples(), samples(160)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=5e-4)
    truth.update(total=120, epochs=3)
    print("Training in cpu mode.\nTraining...")
    for epoch in range(3):
        model.train()
        total_loss = 0.0
        for it, (x, y) in enumerate(train_dataloader):
            total_loss += update(model, opt, x, y)
        model.eval()
        _, acc = evaluated(model, val_dataloader)
        mean = shown(total_loss / (it + 1))
        print(f"Epoch {epoch:05d} | Loss {mean} | Accuracy {acc:.4f} ")
    print("Testing...")
    for _ in range(3):
        for _ in tqdm(samples(160)):
            pass
    print(f"Test Accuracy {0.7853:.4f}")


class _AverageMeter:
    def __init__(self) -> None:
        self.val = self.avg = self.sum = self.count = 0.0

    def update(self, val: float) -> None:
        self.val, self.sum, self.count = val, self.sum + val, self.count + 1
        self.avg = self.sum / self.count


def deep_speech_meters() -> None:
    args, model, train_loader, test_loader = SimpleNamespace(epochs=3, silent=False), net(), samples(), samples(160)
    optimizer = torch.optim.SGD(model.parameters(), lr=3e-4, momentum=0.9, nesterov=True)
    truth.update(total=120, epochs=3)
    print(model)
    print("Number of parameters: 99")
    losses = _AverageMeter()
    avg_loss = 0.0
    for epoch in range(args.epochs):
        model.train()
        for i, (x, y) in enumerate(train_loader):
            if i == len(train_loader):
                break
            loss_value = update(model, optimizer, x, y)
            avg_loss += loss_value
            losses.update(loss_value)
            shown(losses.val)
            shown(losses.avg)
            print(
                f"Epoch: [{epoch + 1}][{i + 1}/{len(train_loader)}]\tTime {0.02:.3f} ({0.02:.3f})\t"
                f"Data {0.001:.3f} ({0.001:.3f})\tLoss {losses.val:.4f} ({losses.avg:.4f})\t"
            )
        avg_loss /= len(train_loader)
        mean = shown(avg_loss, "%.3f")
        print(f"Training Summary Epoch: [{epoch + 1}]\tTime taken (s): {1:.0f}\tAverage Loss {mean}\t")
        model.eval()
        for _, (x, _y) in tqdm(enumerate(test_loader), total=len(test_loader)):
            model(x)
        print(f"Validation Summary Epoch: [{epoch + 1}]\tAverage WER {71.25:.3f}\tAverage CER {30.1:.3f}\t")


def lazy_regularization() -> None:
    """The regularization of G steps its optimizer again, at each fourth iteration."""
    total_kimg, kimg_per_tick, batch_size = 1.92, 0.64, 16
    G, D = net(), net()
    opt_G, opt_D = (torch.optim.Adam(one.parameters(), lr=0.002) for one in (G, D))
    phases = [("Gmain", G, opt_G, 1), ("Greg", G, opt_G, 4), ("Dmain", D, opt_D, 1), ("Dreg", D, opt_D, 16)]
    truth.update(total=None)
    print(f"Training for {total_kimg} kimg...\n")
    cur_nimg = batch_idx = cur_tick = tick_start_nimg = 0
    while True:
        x, y = random_batch()
        for _name, module, opt, interval in phases:
            if batch_idx % interval != 0:
                continue
            backward(module, x, y)
            opt.step()
            truth["updates"] += module is G
        time.sleep(PAUSE_S)
        cur_nimg += batch_size
        batch_idx += 1
        done = cur_nimg >= total_kimg * 1000
        if (not done) and (cur_tick != 0) and (cur_nimg < tick_start_nimg + kimg_per_tick * 1000):
            continue
        print(
            f"tick {cur_tick:<5d} kimg {cur_nimg / 1e3:<8.1f} time {'1s':<12s} sec/tick {1.2:<7.1f} sec/kimg {1.9:<7.2f} "
            f"maintenance {0.1:<6.1f} cpumem {1.2:<6.2f} gpumem {0:<6.2f} augment {0:.3f}"
        )
        cur_tick += 1
        tick_start_nimg = cur_nimg
        if done:
            break
    print("\nExiting...")


def cycles() -> None:
    opt = SimpleNamespace(epoch_count=1, niter=2, niter_decay=1, batchSize=16, print_freq=160, save_latest_freq=320)
    nets, dataset = [net() for _ in range(4)], samples()
    optimizer_G = torch.optim.Adam([*nets[0].parameters(), *nets[1].parameters()], lr=0.0002)
    optimizer_D_A, optimizer_D_B = (torch.optim.Adam(one.parameters(), lr=0.0002) for one in nets[2:])
    truth.update(total=120, epochs=3)
    print("#training images = %d" % 640)
    total_steps = 0
    for epoch in range(opt.epoch_count, opt.niter + opt.niter_decay + 1):
        epoch_iter = 0
        for x, y in dataset:
            total_steps += opt.batchSize
            epoch_iter += opt.batchSize
            errors = [backward(one, x, y) for one in nets]
            step(optimizer_G, optimizer_D_A, optimizer_D_B)
            if total_steps % opt.print_freq == 0:
                message = "(epoch: %d, iters: %d, time: %.3f) " % (epoch, epoch_iter, 0.012)
                for k, v in zip(("D_A", "G_A", "Cyc_A", "D_B"), errors, strict=True):
                    message += "%s: %.3f " % (k, v)
                print(message)
            if total_steps % opt.save_latest_freq == 0:
                print("saving the latest model (epoch %d, total_steps %d)" % (epoch, total_steps))
        print("saving the model at the end of epoch %d, iters %d" % (epoch, total_steps))
        print("End of epoch %d / %d \t Time Taken: %d sec" % (epoch, opt.niter + opt.niter_decay, 1))


def patient_graph() -> None:
    """An exception ends it before its epochs are over."""
    config: dict[str, Any] = {"num_of_epochs": 10000, "patience_period": 1000, "console_log_freq": 10}
    gat = net()
    optimizer = torch.optim.Adam(gat.parameters(), lr=5e-3)
    truth.update(total=None)
    x, y = random_batch()

    def main_loop(epoch: int, *, is_training: bool) -> None:
        gat.train(is_training)
        if is_training:
            update(gat, optimizer, x, y)
        elif epoch % config["console_log_freq"] == 0:
            print(f"GAT training: time elapsed= {1.25:.2f} [s] | epoch={epoch + 1} | val acc={0.75}")
        if epoch == 119 and not is_training:
            raise ValueError("Stopping the training, the universe has no more patience for this training.")

    for epoch in range(config["num_of_epochs"]):
        main_loop(epoch, is_training=True)
        try:
            main_loop(epoch, is_training=False)
        except ValueError as error:
            print(str(error))
            break
    print(f"Test accuracy = {0.8123}")


def clients() -> None:
    """Each client of a round trains a copy with an optimizer of its own; accuracies and losses after LG-FedAvg."""
    import copy

    args, net_glob, loaders = SimpleNamespace(epochs=5, local_ep=2, local_bs=16), net(), [samples(64) for _ in range(3)]
    truth.update(total=120)
    for iteration in range(args.epochs):
        loss_locals = []
        for loader in loaders:
            client = copy.deepcopy(net_glob).train()
            optimizer = torch.optim.SGD(client.parameters(), lr=0.01, momentum=0.5)
            epoch_loss = []
            for _ in range(args.local_ep):
                batch_loss = [update(client, optimizer, x, y) for x, y in loader]
                epoch_loss.append(sum(batch_loss) / len(batch_loss))
            loss_locals.append(sum(epoch_loss) / len(epoch_loss))
        mean = shown(sum(loss_locals) / len(loss_locals), "%.3f")
        print(f"Round {iteration:3d}, Average loss {mean}")


def stopped_bar() -> None:
    """A bar of 1,000 that stops at 120, after several notebooks of radiance fields."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    truth.update(total=120)
    pbar = tqdm(range(1000))
    for i in pbar:
        loss = update(model, optimizer, *random_batch())
        pbar.set_description(f"Loss: {shown(loss)}")
        if i == 119:
            break


if __name__ == "__main__":
    run(globals())
