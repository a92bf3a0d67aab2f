"""Thirty programs of projects that no draw before had: loops and lines by their source, which was read first."""

from __future__ import annotations

import datetime
import json
import logging
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from account import shown, truth
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from toy import backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm, trange


def _logged(form: str, name: str = "", dates: str | None = None) -> Callable[[str], None]:
    log, handler = logging.getLogger(name), logging.StreamHandler()
    handler.setFormatter(logging.Formatter(form, dates))
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    return log.info


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


class _Config(NamedTuple):
    seed: int = 3431
    batch_size: int = 16
    n_epochs: int = 3
    save_steps: int = 50
    total_steps: int = 100


def plain_bert() -> None:
    """It ends at `total_steps`, before its epochs are over."""
    cfg, model, data_iter = _Config(), net(), samples()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
    truth.update(total=cfg.total_steps, epochs=3)
    global_step = 0
    for e in range(cfg.n_epochs):
        loss_sum = 0.0
        iter_bar = tqdm(data_iter, desc="Iter (loss=X.XXX)")
        for i, (x, y) in enumerate(iter_bar):
            loss = update(model, optimizer, x, y)
            global_step += 1
            loss_sum += loss
            iter_bar.set_description(f"Iter (loss={shown(loss, '%5.3f')})")
            if cfg.total_steps and cfg.total_steps <= global_step:
                return
        print(f"Epoch {e + 1}/{cfg.n_epochs} : Average Loss {shown(loss_sum / (i + 1), '%5.3f')}")


def isomorphism() -> None:
    args, model = SimpleNamespace(epochs=3, iters_per_epoch=40, batch_size=32, fold_idx=0, num_layers=5), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    truth.update(total=120, epochs=3)
    for epoch in range(1, args.epochs + 1):
        model.train()
        total_iters, loss_accum = args.iters_per_epoch, 0.0
        pbar = tqdm(range(total_iters), unit="batch")
        for _ in pbar:
            loss_accum += update(model, optimizer, *random_batch())
            pbar.set_description("epoch: %d" % epoch)
        print("loss training: " + shown(loss_accum / total_iters, "%f"))
        model.eval()
        print(f"accuracy train: {0.7:f} test: {0.65:f}")
        print("\nParameter containing:\ntensor([0., 0., 0., 0.], requires_grad=True)")


def text_lines() -> None:
    opt, net_ = SimpleNamespace(epochs=3, displayInterval=10, batchSize=16, nh=256, n_test_disp=10), net()
    train_loader, test_loader = samples(), samples(160)
    optimizer = torch.optim.Adam(net_.parameters(), lr=0.001)
    truth.update(total=120, epochs=3)
    print("train with gpu: 0")
    for epoch in range(opt.epochs):
        net_.train()
        for i, (x, y) in enumerate(train_loader):
            loss = update(net_, optimizer, x, y)
            if (i + 1) % opt.displayInterval == 0:
                print(
                    f"[{epoch}/{opt.epochs}][{i + 1}/{len(train_loader)}] Loss:{shown(loss / 16, '%f')} "
                    f"Acc:{0:.0f} Time:{0.2:f}s Lr:{0.001:f}"
                )
        net_.eval()
        loss, right = evaluated(net_, test_loader)
        print("  network_output ctc_output ground_truth\n0       --1--2-         12           12")
        print(f"Test loss: {shown(loss, '%f', 'held_out')}, accuray: {right:f}")


def pieces() -> None:
    """The total that it prints is an estimate, by the length of all text."""
    epochs, num_pieces, log_step, batch_size, model = 3, 4, 1, 16, net()
    optimizer = torch.optim.AdamW(model.parameters())
    truth.update(total=120, epochs=3)
    print("using device: cpu\ncalculating total steps")
    for _ in tqdm(range(num_pieces)):
        time.sleep(0.01)
    print("total steps = 123\nstarting training")
    running_loss = 0.0
    for epoch in range(epochs):
        print(f"epoch {epoch + 1}\ntime: {datetime.datetime.now()}")
        for piece_num in range(num_pieces):
            for index in range(160 // batch_size):
                running_loss += update(model, optimizer, *random_batch())
                if (index + 1) % log_step == 0:
                    now, mean = datetime.datetime.now(), running_loss / log_step
                    shown(mean, "%.17g")
                    print(
                        f"now time: {now.hour}:{now.minute}. Step {index + 1} of piece {piece_num} of epoch "
                        f"{epoch + 1}, loss {mean}"
                    )
                    running_loss = 0.0
        print(f"saving model for epoch {epoch + 1}\nepoch {epoch + 1} finished\ntime for one epoch: 0:00:01.123456")
    print("training finished")


def two_bars_of_one_name() -> None:
    Epoch, model, gen, gen_val = 3, net(), samples(drop_last=True), samples(160, drop_last=True)
    epoch_step, epoch_step_val = 640 // 16, 160 // 16
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth.update(total=120, epochs=3)
    for epoch in range(Epoch):
        loss = val_loss = 0.0
        model.train()
        print("Start Train")
        with tqdm(total=epoch_step, desc=f"Epoch {epoch + 1}/{Epoch}", postfix=dict, mininterval=0.3) as pbar:
            for iteration, (x, y) in enumerate(gen):
                if iteration >= epoch_step:
                    break
                loss += update(model, optimizer, x, y)
                shown(loss / (iteration + 1), "%.3g")
                pbar.set_postfix(loss=loss / (iteration + 1), lr=1e-3)
                pbar.update(1)
        print("Finish Train")
        model.eval()
        print("Start Validation")
        with tqdm(total=epoch_step_val, desc=f"Epoch {epoch + 1}/{Epoch}", postfix=dict, mininterval=0.3) as pbar:
            for iteration, (x, y) in enumerate(gen_val):
                if iteration >= epoch_step_val:
                    break
                with torch.no_grad():
                    val_loss += F.cross_entropy(model(x), y).item()
                shown(val_loss / (iteration + 1), "%.3g", "held_out")
                pbar.set_postfix(val_loss=val_loss / (iteration + 1))
                pbar.update(1)
                time.sleep(0.02)
        print(f"Finish Validation\nEpoch:{epoch + 1}/{Epoch}")
        print(
            f"Total Loss: {shown(loss / epoch_step, '%.3f')} || Val Loss: "
            f"{shown(val_loss / epoch_step_val, '%.3f', 'held_out')} "
        )


def super_resolved() -> None:
    args, model, loader, test = SimpleNamespace(epochs=3, print_every=10, batch_size=16), net(), samples(), samples(160)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth.update(total=120, epochs=3)
    print("Making model...\nPreparing loss function:\n1.000 * L1")
    epoch = 0
    while epoch < args.epochs:
        epoch += 1
        print(f"[Epoch {epoch}]\tLearning rate: {1e-4:.2e}")
        model.train()
        losses = []
        for batch, (x, y) in enumerate(loader):
            losses.append(update(model, optimizer, x, y))
            if (batch + 1) % args.print_every == 0:
                mean = shown(_mean(losses), "%.4f")
                print(f"[{(batch + 1) * args.batch_size}/{len(loader.dataset)}]\t[L1: {mean}]\t{0.5:.1f}+{0.1:.1f}s")  # type: ignore[arg-type]  # of tensors
        print("\nEvaluation:")
        model.eval()
        for x, _ in tqdm(test, ncols=80):
            model(x)
        print(f"[DIV2K x4]\tPSNR: {28.123 + epoch:.3f} (Best: {28.123 + epoch:.3f} @epoch {epoch})")
        print(f"Forward: {0.52:.2f}s\n\nSaving...\nTotal: {0.61:.2f}s\n")


def flow_of_digits() -> None:
    """Its first iteration only fits the data: no update."""
    args, model = SimpleNamespace(iter=121, batch=16, n_flow=32), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth.update(total=120)
    with tqdm(range(args.iter)) as pbar:
        for i in pbar:
            x, y = random_batch()
            if i == 0:
                model(x)
                continue
            loss = update(model, optimizer, x, y)
            pbar.set_description(
                f"Loss: {shown(loss, '%.5f')}; logP: {-loss - 1:.5f}; logdet: {1.25:.5f}; lr: {0.0001:.7f}"
            )


def frames_and_returns() -> None:
    args, model = SimpleNamespace(frames=9600, epochs=4, batch_size=256, procs=16, log_interval=1, recurrence=1), net()
    optimizer = torch.optim.RMSprop(model.parameters())
    truth.update(total=120)
    info = _logged("%(message)s")
    info("scripts/train.py --algo a2c --env MiniGrid-DoorKey-5x5-v0\n")
    info(f"{args}\n")
    num_frames = count = 0
    while num_frames < args.frames:
        loss = update(model, optimizer, *random_batch())
        num_frames += 80
        count += 1
        if count % args.log_interval == 0:
            info(
                f"U {count} | F {num_frames:06} | FPS {1520:04.0f} | D {1} | rR:x̄σmM {0.1: .2f} {0.2: .2f} {0: .2f} "
                f"{0.9: .2f} | F:x̄σmM {51.2:.1f} {3.1:.1f} {12} {80} | H {1.9:.3f} | V {0.02:.3f} | "
                f"pL {-loss: .3f} | vL {loss:.3f} | ∇ {0.05:.3f}"
            )


def gathered() -> None:
    args, policy, value = (
        SimpleNamespace(max_iter_num=120, log_interval=1, min_batch_size=2048, num_threads=4),
        net(),
        net(),
    )
    optimizer_policy, optimizer_value = (torch.optim.Adam(one.parameters(), lr=0.01) for one in (policy, value))
    truth.update(total=120)
    for i_iter in range(args.max_iter_num):
        x, y = random_batch()
        backward(value, x, y)
        backward(policy, x, y)
        step(optimizer_value, optimizer_policy)
        if i_iter % args.log_interval == 0:
            print(
                f"{i_iter}\tT_sample {0.8123:.4f}\tT_update {0.0211:.4f}\tR_min {3.1:.2f}\tR_max {41.7:.2f}\t"
                f"R_avg {17.3 + i_iter / 10:.2f}"
            )


def until_stopped() -> None:
    """It keeps running until somebody stops it."""
    opt = {"train": {"checkpoint_print": 10, "checkpoint_test": 40, "checkpoint_save": 40}, "rank": 0, "scale": 4}
    model, train_loader, test_loader = net(), samples(drop_last=True), samples(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth.update(total=None, epochs=3)
    info = _logged("%(asctime)s.%(msecs)03d : %(message)s", "train", "%y-%m-%d %H:%M:%S")
    info(f"Number of train images: {640:,d}, iters: {40:,d}")
    print("Random seed: 5123")
    current_step = 0
    for epoch in range(500000):
        for x, y in train_loader:
            current_step += 1
            loss = update(model, optimizer, x, y)
            if current_step % 10 == 0:
                info(f"<epoch:{epoch:3d}, iter:{current_step:8,d}, lr:{1e-4:.3e}> G_loss: {shown(loss, '%.3e')} ")
            if current_step % 40 == 0:
                info("Saving the model.")
                for idx, (one, _) in enumerate(test_loader, 1):
                    model.eval()
                    model(one)
                    model.train()
                    info(f"{idx:->4d}--> {'0001.png':>10s} | {28.1:<4.2f}dB")
                info(f"<epoch:{epoch:3d}, iter:{current_step:8,d}, Average PSNR : {28.1:<.2f}dB\n")
        if epoch == 2 and opt["rank"] == 0:
            return


def endless_bars() -> None:
    """It breaks at an epoch that stands in its code."""
    opt, model, dataloader, test = (
        SimpleNamespace(epoch=5, plot_every=40, test_num=10000),
        net(),
        samples(),
        samples(160),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    truth.update(total=120, epochs=3)
    print("load data\nmodel construct completed")
    for epoch in range(opt.epoch):
        for _ii, (x, y) in tqdm(enumerate(dataloader)):
            update(model, optimizer, x, y)
        for ii, (x, _) in tqdm(enumerate(test)):
            model(x)
            if ii == opt.test_num:
                break
        if epoch == 2:
            break


class _Iterations:
    """Batches of random indices, so many that it is one long pass."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[list[int]]:
        return iter(torch.randint(0, 640, (self.count, 16)).tolist())

    def __len__(self) -> int:
        return self.count


def one_long_pass() -> None:
    args, model = SimpleNamespace(log_step=10, save_step=60, eval_step=60), net()
    data = TensorDataset(torch.randn(640, 8), torch.randint(0, 3, (640,)))
    data_loader: DataLoader[Any] = DataLoader(data, batch_sampler=_Iterations(120))  # type: ignore[arg-type]  # as there
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    truth.update(total=120)
    info = _logged("%(asctime)s %(name)s %(levelname)s: %(message)s", "SSD.trainer")
    info("Start training")
    max_iter = len(data_loader)
    for iteration, (x, y) in enumerate(data_loader, 1):
        loss = update(model, optimizer, x, y)
        if iteration % args.log_step == 0:
            eta = datetime.timedelta(seconds=int(0.02 * (max_iter - iteration)))
            info(
                f"Iter: {iteration:06d}, Lr: {0.001:.5f}, Cost: {0.21:.2f}s, Eta: {eta}, Loss: {shown(loss, '%.3f')}, "
                f"Regression Loss {loss / 4:.3f}, Classification Loss: {loss * 3 / 4:.3f}"
            )
        if iteration % args.save_step == 0:
            info(f"Saved checkpoint to output/ssd300_vgg_iteration_{iteration:06d}.pth")
        if iteration % args.eval_step == 0 and iteration != max_iter:
            model.eval()
            for x, _ in tqdm(samples(160)):
                model(x)
            info("mAP: 0.7123")
            model.train()
    info("Total training time: 0:00:04 (0.0331 s / it)")


def denoised() -> None:
    p, model, train_loader, valid_loader = (
        SimpleNamespace(nb_epochs=3, report_interval=10),
        net(),
        samples(),
        samples(160),
    )
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth.update(total=120, epochs=3)
    num_batches = len(train_loader)
    print("Training parameters:\n  Nb epochs = 3\n  Report interval = 10\n  Batch size = 16\n")
    for epoch in range(p.nb_epochs):
        print(f"EPOCH {epoch + 1:d} / {p.nb_epochs:d}")
        losses: list[float] = []
        value = 0.0
        for batch_idx, (x, y) in enumerate(train_loader):
            fill = int((batch_idx % 10) / 10 * 23) + 1
            bar = "=" * fill + ">" + " " * (23 - fill)
            print(f"\rBatch {batch_idx + 1:>2d} [{bar}] Train loss: {shown(value, '%.5f')}", end="")
            value = update(model, optim, x, y)
            losses.append(value)
            if (batch_idx + 1) % p.report_interval == 0 and batch_idx:
                print("\r" + " " * 80, end="\r")
                mean = shown(_mean(losses), "%.5f")
                print(
                    f"Batch {batch_idx + 1:>2d} / {num_batches:d} | Avg loss: {mean} | Avg train time / batch: {21:d} ms"
                )
                losses, value = [], 0.0
        print("\rTesting model on validation set... ", end="")
        model.train(False)
        loss, _ = evaluated(model, valid_loader)
        model.train(True)
        print("\r" + " " * 80, end="\r")
        print(
            f"Train time: 0:00:01 | Valid time: 0:00:00 | Valid loss: {shown(loss, '%.5f', 'held_out')} | "
            f"Avg PSNR: {24.31:.2f} dB"
        )
        print(f"Saving checkpoint to: ckpts/gaussian-2611/n2n-epoch{epoch + 1}-{loss:>1.5f}.pt\n")
    print("Training done! Total elapsed time: 0:00:03\n")


def neighbours() -> None:
    num_nodes, model = 2708, net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.7)
    truth.update(total=120)
    times = []
    for batch in range(120):
        begin = time.time()
        loss = update(model, optimizer, *random_batch())
        times.append(time.time() - begin)
        shown(loss, "%.17g")
        print(batch, loss)
    print(f"Validation F1: {0.861}\nAverage batch time: {sum(times) / len(times)} of {num_nodes > 0}")


def sorted_nodes() -> None:
    cmd_args, classifier = SimpleNamespace(num_epochs=3, batch_size=16, hidden=128), net()
    optimizer = torch.optim.Adam(classifier.parameters(), lr=1e-4)
    truth.update(total=120, epochs=3)
    print("# train: 640, # test: 160")
    for epoch in range(cmd_args.num_epochs):
        for name, count in (("training", 40), ("test", 10)):
            of = "training" if name == "training" else "held_out"
            classifier.train(name == "training")
            losses = []
            if name == "test":
                classifier.eval()
            pbar = tqdm(range(count), unit="batch")
            for _ in pbar:
                x, y = random_batch()
                if name == "training":
                    losses.append(update(classifier, optimizer, x, y))
                else:
                    losses.append(F.cross_entropy(classifier(x), y).item())
                    time.sleep(0.02)
                pbar.set_description(f"loss: {shown(losses[-1], '%0.5f', of)} acc: {0.5:0.5f}")
            colour = 92 if name == "training" else 93
            mean = shown(_mean(losses), "%.5f", of)
            print(f"\033[{colour}maverage {name} of epoch {epoch}: loss {mean} acc {0.5:.5f}\033[0m")


def tagged() -> None:
    data, model = SimpleNamespace(HP_iteration=3, HP_batch_size=16, seg=True), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.015)
    truth.update(total=120, epochs=3)
    print("Training model...\n     Train instance number: 640\n     Hyper           iteration: 3")
    best_dev, train_num = -10.0, 640
    for idx in range(data.HP_iteration):
        print(f"Epoch: {idx}/{data.HP_iteration}\n Learning rate is setted as: {0.015 / (1 + idx)}")
        sample_loss = total_loss = 0.0
        model.train()
        total_batch = train_num // data.HP_batch_size + 1
        for batch_id in range(total_batch):
            end = min((batch_id + 1) * data.HP_batch_size, train_num)
            if batch_id * data.HP_batch_size >= train_num:
                continue
            loss = update(model, optimizer, *random_batch())
            sample_loss += loss
            total_loss += loss
            if end % 160 == 0:
                print(f"     Instance: {end}; Time: {0.33:.2f}s; loss: {shown(sample_loss)}; acc: 151/160={0.94:.4f}")
                sample_loss = 0.0
        print(f"     Instance: {end}; Time: {0.01:.2f}s; loss: {shown(sample_loss)}; acc: 604/640={0.94:.4f}")
        shown(total_loss, "%.17g")
        print(f"Epoch: {idx} training finished. Time: {1.2:.2f}s, speed: {533.1:.2f}st/s,  total loss: {total_loss}")
        print("totalloss:", total_loss)
        model.eval()
        print(f"Dev: time: {0.1:.2f}s, speed: {900:.2f}st/s; acc: {0.9:.4f}, p: {0.5:.4f}, r: {0.4:.4f}, f: {0.44:.4f}")
        print("Exceed previous best f score:", best_dev)
        best_dev = 0.44 + idx
        print(
            f"Test: time: {0.1:.2f}s, speed: {900:.2f}st/s; acc: {0.9:.4f}, p: {0.5:.4f}, r: {0.4:.4f}, f: {0.43:.4f}"
        )


def styles() -> None:
    """Each of its iterations has two steps of the critic and two of the generator."""
    args = SimpleNamespace(total_iters=60, resume_iter=0, print_every=10, save_every=30, ds_iter=60)
    nets = {name: net() for name in ("discriminator", "generator", "mapping_network", "style_encoder")}
    optims = {name: torch.optim.Adam(one.parameters(), lr=1e-4) for name, one in nets.items()}
    truth.update(total=[120, 121])
    print("Initializing generator...\nStart training...")

    def made(*names: str) -> None:
        for name in names:
            backward(nets[name], *random_batch())
            optims[name].step()
            optims[name].zero_grad()

    for i in range(args.resume_iter, args.total_iters):
        made("discriminator")
        made("discriminator")
        made("generator", "mapping_network", "style_encoder")
        made("generator")
        time.sleep(0.04)
        if (i + 1) % args.print_every == 0:
            names = ("D/latent_real", "D/latent_fake", "D/latent_reg", "D/ref_real", "G/latent_adv", "G/latent_ds")
            log = " ".join(f"{name}: [{0.1 * number:.4f}]" for number, name in enumerate(names, 1))
            print(f"Elapsed time [0:00:01], Iteration [{i + 1}/{args.total_iters}], {log} G/lambda_ds: [{0.9:.4f}]")
    truth["updates"] = [120, 121]


def images_and_meters() -> None:
    config: dict[str, Any] = {"optim_config": {"epochs": 3, "base_lr": 0.1, "steps_per_epoch": 40}, "run_config": {}}
    model, train_loader, test_loader = net(), samples(), samples(160)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth.update(total=120, epochs=3)
    info = _logged("[%(asctime)s %(name)s %(levelname)s] - %(message)s", "__main__", "%Y/%m/%d %H:%M:%S")
    info(json.dumps(config, indent=2))
    optim_config = config["optim_config"]

    def test(epoch: int) -> None:
        info(f"Test {epoch}")
        model.eval()
        loss, right = evaluated(model, test_loader)
        info(f"Epoch {epoch} Loss {shown(loss, '%.4f', 'held_out')} Accuracy {right:.4f}")
        info(f"Elapsed {0.08:.2f}")

    test(0)
    for epoch in range(1, optim_config["epochs"] + 1):
        info(f"Train {epoch}")
        model.train()
        losses = []
        for index, (x, y) in enumerate(train_loader):
            losses.append(update(model, optimizer, x, y))
            if index % 10 == 0:
                shown(losses[-1])
                info(
                    f"Epoch {epoch} Step {index}/{len(train_loader)} Loss {losses[-1]:.4f} ({shown(_mean(losses))}) "
                    f"Accuracy {0.5:.4f} ({0.48:.4f})"
                )
        info(f"Elapsed {0.91:.2f}")
        test(epoch)


class _Segmenter:
    """It breaks when its iteration, which counts from 0, has reached `max_iter`."""

    def __init__(self) -> None:
        self.train_loader, self.val_loader, self.model = samples(), samples(160), net()
        self.optim = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.epoch = self.iteration = 0
        self.max_iter = 100

    def validate(self) -> None:
        self.model.eval()
        bar = tqdm(self.val_loader, desc=f"Valid iteration={self.iteration}", ncols=80, leave=False)
        for x, _ in bar:
            self.model(x)
        self.model.train()

    def train_epoch(self) -> None:
        for batch_idx, (x, y) in tqdm(
            enumerate(self.train_loader), total=40, desc=f"Train epoch={self.epoch}", ncols=80, leave=False
        ):
            self.iteration = batch_idx + self.epoch * len(self.train_loader)
            if self.iteration % 40 == 0:
                self.validate()
            update(self.model, self.optim, x, y)
            if self.iteration >= self.max_iter:
                break

    def train(self) -> None:
        max_epoch = -(-self.max_iter // len(self.train_loader))
        for epoch in trange(self.epoch, max_epoch, desc="Train", ncols=80):
            self.epoch = epoch
            self.train_epoch()
            if self.iteration >= self.max_iter:
                break


def segmented() -> None:
    truth.update(total=101, epochs=3)
    _Segmenter().train()


def implicit_diffusion() -> None:
    """It prints each loss before the update."""
    config = SimpleNamespace(training=SimpleNamespace(n_epochs=3, batch_size=16, snapshot_freq=50, n_iters=5000))
    model, train_loader = net(), samples()
    optimizer = torch.optim.Adam(model.parameters())
    truth.update(total=120, epochs=3)
    info = _logged("%(levelname)s - %(filename)s - %(asctime)s - %(message)s")
    count = 0
    for _epoch in range(config.training.n_epochs):
        for x, y in train_loader:
            model.train()
            count += 1
            loss = backward(model, x, y)
            shown(loss, "%.17g")
            info(f"step: {count}, loss: {loss}, data time: {0.0012 / count}")
            step(optimizer)


def annealed() -> None:
    config = SimpleNamespace(training=SimpleNamespace(n_epochs=500000, n_iters=100, batch_size=16, snapshot_freq=50))
    score, dataloader, test_loader = net(), samples(), samples(160, drop_last=True)
    optimizer = torch.optim.Adam(score.parameters())
    truth.update(total=100, epochs=3)
    info = _logged("%(levelname)s - %(filename)s - %(asctime)s - %(message)s")
    test_iter, count = iter(test_loader), 0
    for _epoch in range(config.training.n_epochs):
        for x, y in dataloader:
            count += 1
            score.train()
            loss = update(score, optimizer, x, y)
            shown(loss, "%.17g")
            info(f"step: {count}, loss: {loss}")
            if count >= config.training.n_iters:
                return
            if count % 30 == 0:
                score.eval()
                score(next(test_iter)[0])


class _Spheres:
    def __init__(self) -> None:
        self.n_epochs, self.batch_size, self.lr = 3, 16, 1e-3

    def train(self, net_: nn.Module) -> None:
        info = _logged("%(asctime)s - %(name)s - %(levelname)s - %(message)s")
        train_loader, test_loader = samples(), samples(160)
        optimizer = torch.optim.Adam(net_.parameters(), lr=self.lr)
        info("Initializing center c...")
        net_.eval()
        for x, _ in train_loader:
            net_(x)
        info("Center c initialized.\nStarting training...")
        net_.train()
        for epoch in range(self.n_epochs):
            loss_epoch, n_batches = 0.0, 0
            for x, y in train_loader:
                loss_epoch += update(net_, optimizer, x, y)
                n_batches += 1
            mean = shown(loss_epoch / n_batches, "%.8f")
            info(f"  Epoch {epoch + 1}/{self.n_epochs}\t Time: {0.9:.3f}\t Loss: {mean}")
        info("Training time: 3.121\nFinished training.\nStarting testing...")
        net_.eval()
        evaluated(net_, test_loader)
        info(f"Testing time: 0.101\nTest set AUC: {97.31:.2f}%\nFinished testing.")


def spheres() -> None:
    truth.update(total=120, epochs=3)
    _Spheres().train(net())


def characters() -> None:
    """Its bar counts epochs, each of ten batches; its patience would end it earlier."""
    args, decoder = SimpleNamespace(n_epochs=12, print_every=3, early_stopping=10, chunk_len=200, batch_size=100), net()
    optimizer = torch.optim.Adam(decoder.parameters(), lr=0.01)
    truth.update(total=120, epochs=12)
    early_stopping_patience, patience = args.early_stopping, 1
    print(f"Training for {args.n_epochs} epochs...")
    for epoch in tqdm(range(1, args.n_epochs + 1)):
        losses = [update(decoder, optimizer, *random_batch()) for _ in range(10)]
        with torch.no_grad():
            x, y = random_batch()
            valid = F.cross_entropy(decoder(x), y).item()
        patience += 1
        if patience >= early_stopping_patience + 10:
            break
        if epoch % args.print_every == 0:
            print(
                f"[0m {epoch}s ({epoch} {epoch / args.n_epochs * 100:.0f}%) Train: {shown(_mean(losses))} "
                f"Valid: {shown(valid, '%.4f', 'held_out')}]"
            )
            print("Where is the king, and wherefore 12 of us \n")
    print("Saving...\nSaved as Save/shakespeare.pt")


def glimpses() -> None:
    """Its bar counts samples, and it evaluates without eval()."""
    config, model = SimpleNamespace(epochs=3, train_patience=50, num_glimpses=6, print_freq=10), net()
    train_loader, valid_loader = samples(), samples(160)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    truth.update(total=120, epochs=3)
    print("\n[*] Train on 640 samples, validate on 160 samples")
    for _ in train_loader:
        pass
    for epoch in range(config.epochs):
        print(f"\nEpoch: {epoch + 1}/{config.epochs} - LR: {3e-4:.6f}")
        losses = []
        with tqdm(total=640) as pbar:
            for x, y in train_loader:
                losses.append(update(model, optimizer, x, y))
                pbar.set_description(f"{0.1:.1f}s - loss: {shown(losses[-1], '%.3f')} - acc: {50:.3f}")
                pbar.update(x.shape[0])
        loss, right = evaluated(model, valid_loader)
        print(
            f"train loss: {shown(_mean(losses), '%.3f')} - train acc: {50:.3f} - val loss: "
            f"{shown(loss, '%.3f', 'held_out')} - val acc: {right:.3f} - val err: {100 - right:.3f} [*]"
        )


def triplets() -> None:
    args, tnet, train_loader, test_loader = SimpleNamespace(epochs=3, log_interval=10), net(), samples(), samples(160)
    optimizer = torch.optim.SGD(tnet.parameters(), lr=0.01, momentum=0.5)
    truth.update(total=120, epochs=3)
    print("  + Number of params: 21840")
    for epoch in range(1, args.epochs + 1):
        tnet.train()
        losses = []
        for batch_idx, (x, y) in enumerate(train_loader):
            losses.append(update(tnet, optimizer, x, y))
            if batch_idx % args.log_interval == 0:
                shown(losses[-1])
                print(
                    f"Train Epoch: {epoch} [{batch_idx * len(x)}/{640}]\tLoss: {losses[-1]:.4f} "
                    f"({shown(_mean(losses))}) \tAcc: {51.2:.2f}% ({50.1:.2f}%) \tEmb_Norm: {1.2:.2f} ({1.3:.2f})"
                )
        tnet.eval()
        loss, right = evaluated(tnet, test_loader)
        print(f"\nTest set: Average loss: {shown(loss, '%.4f', 'held_out')}, Accuracy: {100 * right:.2f}%\n")


def digits_and_houses() -> None:
    """Each of its steps has two of the critics and two of the generators; it makes one more than it names."""
    train_iters, log_step, generators, critics = 59, 10, net(), net()
    g_optimizer, d_optimizer = (torch.optim.Adam(one.parameters(), 2e-4) for one in (generators, critics))
    svhn_loader, mnist_loader = samples(), samples()
    svhn_iter, mnist_iter = iter(svhn_loader), iter(mnist_loader)
    iter_per_epoch = min(len(svhn_iter), len(mnist_iter))
    truth.update(total=[120, 121])
    for index in range(train_iters + 1):
        if (index + 1) % iter_per_epoch == 0:
            mnist_iter, svhn_iter = iter(mnist_loader), iter(svhn_loader)
        (x, y), _ = next(svhn_iter), next(mnist_iter)
        for optimizer, model in ((d_optimizer, critics),) * 2 + ((g_optimizer, generators),) * 2:
            loss = backward(model, x, y)
            optimizer.step()
            optimizer.zero_grad()
        time.sleep(0.04)
        if (index + 1) % log_step == 0:
            print(
                f"Step [{index + 1}/{train_iters}], d_real_loss: {loss:.4f}, d_mnist_loss: {loss / 2:.4f}, "
                f"d_svhn_loss: {loss / 2:.4f}, d_fake_loss: {loss / 3:.4f}, g_loss: {loss / 4:.4f}"
            )
    truth["updates"] = [120, 121]


def slow_motion() -> None:
    """It evaluates in the middle of a pass, without eval()."""
    args, model, loader, held = (
        SimpleNamespace(epochs=3, progress_iter=10, checkpoint_epoch=5),
        net(),
        samples(),
        samples(160),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth.update(total=120, epochs=3)
    for epoch in range(args.epochs):
        print("Epoch: ", epoch)
        total = 0.0
        for index, (x, y) in enumerate(loader):
            total += update(model, optimizer, x, y)
            if index % args.progress_iter == args.progress_iter - 1:
                loss, _ = evaluated(model, held)
                print(
                    f" Loss: {shown(total / args.progress_iter, '%0.6f')}  Iterations: {index:4d}/{len(loader):4d}  "
                    f"TrainExecTime: {0.2:0.1f}  ValLoss:{shown(loss, '%0.6f', 'held_out')}  ValPSNR: {22.1:0.4f}  "
                    f"ValEvalTime: {0.04:0.2f} LearningRate: {1e-4:f}"
                )
                total = 0.0


class _Anomalies:
    def __init__(self) -> None:
        self.num_epochs, self.lr, self.k = 3, 1e-4, 3
        self.train_loader, self.test_loader, self.model = samples(), samples(160), net()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.lr)

    def train(self) -> None:
        print("======================TRAIN MODE======================")
        best = float("inf")
        for epoch in range(self.num_epochs):
            losses = []
            self.model.train()
            for i, (x, y) in enumerate(self.train_loader):
                if (i + 1) % 10 == 0:
                    print(f"\tspeed: {0.0212:.4f}s/iter; left time: {1.9:.4f}s")
                losses.append(update(self.model, self.optimizer, x, y))
            print(f"Epoch: {epoch + 1} cost time: {1.0213}")
            self.model.eval()
            loss, _ = evaluated(self.model, self.test_loader)
            print(
                f"Epoch: {epoch + 1}, Steps: {len(self.train_loader)} | Train Loss: {shown(_mean(losses), '%.7f')} "
                f"Vali Loss: {shown(loss, '%.7f', 'held_out')} "
            )
            if loss < best:
                print(f"Validation loss decreased ({best:.6f} --> {loss:.6f}).  Saving model ...")
                best = loss
            else:
                print("EarlyStopping counter: 1 out of 3")
            print(f"Updating learning rate to {self.lr * 0.5**epoch}")


def anomalous_series() -> None:
    truth.update(total=120, epochs=3)
    _Anomalies().train()


def compared() -> None:
    """Each episode has loaders of its own."""
    EPISODE, TEST_EPISODE, encoder, relation = 120, 3, net(), net()
    encoder_optim, relation_optim = (torch.optim.Adam(one.parameters(), lr=1e-3) for one in (encoder, relation))
    truth.update(total=120)
    print("init data folders\ninit neural networks\nTraining...")
    last_accuracy = 0.0
    for episode in range(EPISODE):
        x, y = next(iter(samples(16)))
        next(iter(samples(75, 75, shuffle=True)))
        loss = backward(encoder, x, y) + backward(relation, x, y)
        step(encoder_optim, relation_optim)
        if (episode + 1) % 10 == 0:
            shown(loss, "%.17g")
            print("episode:", episode + 1, "loss", loss)
        if episode % 40 == 0:
            print("Testing...")
            for _ in range(TEST_EPISODE):
                for one, _label in samples(15, 3):
                    encoder(one)
            print("test accuracy:", 0.25 + episode / 1000, "h:", 0.0071)
            if last_accuracy < 0.25 + episode / 1000:
                print("save networks for episode:", episode)
                last_accuracy = 0.25 + episode / 1000


def spoken() -> None:
    """Each epoch has a loader of its own; no loss is printed."""
    hp, model = SimpleNamespace(epochs=3, batch_size=16, save_step=2000, image_step=500), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth.update(total=120, epochs=3)
    global_step = 0
    for epoch in range(hp.epochs):
        pbar = tqdm(samples(shuffle=True, drop_last=True))
        for x, y in pbar:
            pbar.set_description("Processing at epoch %d" % epoch)
            global_step += 1
            update(model, optimizer, x, y)


if __name__ == "__main__":
    run(globals())
