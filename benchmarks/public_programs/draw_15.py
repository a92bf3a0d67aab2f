"""Thirty programs of projects that no draw before had: loops and lines by their source, which was read first."""

from __future__ import annotations

import logging
import math
import time
from types import SimpleNamespace
from typing import Any

import torch
from account import shown, truth
from toy import backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm, trange


class _Meter:
    def __init__(self) -> None:
        self.val = self.sum = self.avg = 0.0
        self.count = 0

    def update(self, value: float) -> None:
        self.val, self.sum, self.count = value, self.sum + value, self.count + 1
        self.avg = self.sum / self.count


def _right(model: Any, loader: Any) -> float:
    model.eval()
    return evaluated(model, loader)[1]


def resnets_for_cifar() -> None:
    args, loader, held_out, model = (
        SimpleNamespace(epochs=3, start_epoch=0, print_freq=10),
        samples(),
        samples(160),
        net(),
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    truth.update(total=[120, None], epochs=3)
    for epoch in range(args.start_epoch, args.epochs):
        print(f"current lr {0.1:.5e}")
        losses, top1 = _Meter(), _Meter()
        model.train()
        for i, (x, y) in enumerate(loader):
            losses.update(update(model, optimizer, x, y))
            top1.update(30.0 + i)
            if i % args.print_freq == 0:
                shown(losses.val)
                print(
                    f"Epoch: [{epoch}][{i}/{len(loader)}]\tTime {0.021:.3f} ({0.022:.3f})\tData {0.001:.3f} ({0.001:.3f})\t"
                    f"Loss {losses.val:.4f} ({shown(losses.avg)})\tPrec@1 {top1.val:.3f} ({top1.avg:.3f})"
                )
        model.eval()
        for i, (x, y) in enumerate(held_out):
            with torch.no_grad():
                loss = torch.nn.functional.cross_entropy(model(x), y).item()
            if i % args.print_freq == 0:
                print(
                    f"Test: [{i}/{len(held_out)}]\tTime 0.001 (0.001)\tLoss {loss:.4f} ({loss:.4f})\tPrec@1 {31.25:.3f} ({31.25:.3f})"
                )
        print(f" * Prec@1 {100 * _right(model, held_out):.3f}")


def cut_out() -> None:
    args, train_loader, test_loader, cnn = SimpleNamespace(epochs=3), samples(), samples(160), net()
    cnn_optimizer = torch.optim.SGD(cnn.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    truth.update(total=[120, None], epochs=3)
    for epoch in range(args.epochs):
        xentropy_loss_avg = 0.0
        progress_bar = tqdm(train_loader)
        for i, (x, y) in enumerate(progress_bar):
            progress_bar.set_description("Epoch " + str(epoch))
            xentropy_loss_avg += update(cnn, cnn_optimizer, x, y)
            progress_bar.set_postfix(xentropy=shown(xentropy_loss_avg / (i + 1), "%.3f"), acc=f"{0.3 + i / 1000:.3f}")
        test_acc = _right(cnn, test_loader)
        cnn.train()
        tqdm.write(f"test_acc: {test_acc:.3f}")


def attention_in_a_graph() -> None:
    args, model, (x, y) = SimpleNamespace(epochs=100, patience=100, fastmode=False), net(), random_batch(200)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    truth.update(total=[100, None], epochs=100)
    best_epoch = 0
    for epoch in range(args.epochs):
        model.train()
        loss = update(model, optimizer, x, y)
        model.eval()
        val = torch.nn.functional.cross_entropy(model(x), y).item()
        print(
            f"Epoch: {epoch + 1:04d} loss_train: {shown(loss)} acc_train: {0.31:.4f} loss_val: {val:.4f} acc_val: {0.29:.4f} time: {0.0201:.4f}s"
        )
        best_epoch = epoch if epoch < 60 else best_epoch
    print("Optimization Finished!\nTotal time elapsed: 2.1000s")
    print(f"Loading {best_epoch}th epoch")
    print(f"Test set results: loss= {1.0912:.4f} accuracy= {0.3300:.4f}")


def structured_worlds() -> None:
    args, train_loader, model = SimpleNamespace(epochs=3, log_interval=10), samples(), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    truth.update(total=[120, None], epochs=3)
    print("Starting model training...")
    for epoch in range(1, args.epochs + 1):
        model.train()
        train_loss = 0.0
        for batch_idx, (x, y) in enumerate(train_loader):
            loss = update(model, optimizer, x, y)
            train_loss += loss
            if batch_idx % args.log_interval == 0:
                print(
                    f"Epoch: {epoch} [{batch_idx * len(x)}/640 ({100.0 * batch_idx / len(train_loader):.0f}%)]\tLoss: {shown(loss / len(x), '%.6f')}"
                )
        print(f"====> Epoch: {epoch} Average loss: {shown(train_loss / 640, '%.6f')}")


def small_super_resolution() -> None:
    args, loader, held_out, model = SimpleNamespace(num_epochs=3, batch_size=16), samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth.update(total=[120, None], epochs=3)
    best_epoch, best_psnr = 0, 0.0
    for epoch in range(args.num_epochs):
        model.train()
        epoch_losses = _Meter()
        with tqdm(total=640) as t:
            t.set_description(f"epoch: {epoch}/{args.num_epochs - 1}")
            for x, y in loader:
                epoch_losses.update(update(model, optimizer, x, y))
                t.set_postfix(loss=shown(epoch_losses.avg, "%.6f"))
                t.update(len(x))
        psnr = 20 + _right(model, held_out)
        print(f"eval psnr: {psnr:.2f}")
        if psnr > best_psnr:
            best_epoch, best_psnr = min(epoch, 1), psnr
    print(f"best epoch: {best_epoch}, psnr: {best_psnr:.2f}")


def quantized_twice() -> None:
    args, loader, model = SimpleNamespace(epoch=3, lr=3e-4, sched=None), samples(), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    truth.update(total=[120, None], epochs=3)
    print(args)
    for epoch in range(args.epoch):
        bar, mse_sum = tqdm(loader), 0.0
        for i, (x, y) in enumerate(bar):
            mse = update(model, optimizer, x, y)
            mse_sum += mse
            truth["training"] += [float(f"{mse:.5f}"), float(f"{mse_sum / (i + 1):.5f}")]
            bar.set_description(
                f"epoch: {epoch + 1}; mse: {mse:.5f}; latent: {mse / 9:.3f}; avg mse: {mse_sum / (i + 1):.5f}; lr: {args.lr:.5f}"
            )
            if i % 100 == 0:
                model.eval()
                with torch.no_grad():
                    model(x)
                model.train()


def earth_mover() -> None:
    opt, dataloader, netD, netG = SimpleNamespace(niter=3, Diters=5), samples(), net(), net()
    d, g = torch.optim.RMSprop(netD.parameters(), lr=5e-5), torch.optim.RMSprop(netG.parameters(), lr=5e-5)
    # Five steps of the critic and one of the generator: an update is a step of the critic, as its own loop counts batches.
    truth.update(total=[120, 24, None], epochs=3)
    gen_iterations = 0
    for epoch in range(opt.niter):
        data_iter, i = iter(dataloader), 0
        while i < len(dataloader):
            j = 0
            while j < opt.Diters and i < len(dataloader):
                j += 1
                x, y = next(data_iter)
                i += 1
                loss_d = update(netD, d, x, y)
            loss_g = backward(netG, x, y)
            g.step()
            g.zero_grad()
            gen_iterations += 1
            print(
                f"[{epoch}/{opt.niter}][{i}/{len(dataloader)}][{gen_iterations}] Loss_D: {loss_d:f} Loss_G: {loss_g:f} Loss_D_real: {loss_d / 2:f} Loss_D_fake {loss_d / 3:f}"
            )
    truth["updates"] = [120, 24]


def chinese_texts() -> None:
    config, train_iter, dev_iter, model = (
        SimpleNamespace(num_epochs=3, require_improvement=1000),
        samples(),
        samples(160),
        net(),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth.update(total=[120, None], epochs=3)
    model.train()
    total_batch = 0
    for epoch in range(config.num_epochs):
        print(f"Epoch [{epoch + 1}/{config.num_epochs}]")
        for x, y in train_iter:
            loss = update(model, optimizer, x, y)
            if total_batch % 10 == 0:
                model.eval()
                val, right = evaluated(model, dev_iter)
                # As its format says: two significant digits.
                truth["training"].append(float(f"{loss:>5.2}"))
                print(
                    f"Iter: {total_batch:>6},  Train Loss: {loss:>5.2},  Train Acc: {0.3125:>6.2%},  Val Loss: {val:>5.2},  Val Acc: {right:>6.2%},  Time: 0:00:01 *"
                )
                model.train()
            total_batch += 1
    model.eval()
    val, right = evaluated(model, dev_iter)
    print(f"Test Loss: {val:>5.2},  Test Acc: {right:>6.2%}\nPrecision, Recall and F1-Score...")
    print(
        "              precision    recall  f1-score   support\n\n     finance     0.9120    0.8980    0.9049      1000"
    )
    print("    accuracy                         0.9077     10000\nTime usage: 0:00:01")


def visual_questions() -> None:
    num_epochs, train_loader, eval_loader, model = 3, samples(), samples(160), net()
    optim = torch.optim.Adamax(model.parameters())
    truth.update(total=[120, None], epochs=3)
    for epoch in range(num_epochs):
        mean = sum(update(model, optim, x, y) for x, y in train_loader) / len(train_loader)
        model.train(False)
        right = evaluated(model, eval_loader)[1]
        model.train(True)
        print(f"epoch {epoch}, time: {0.85:.2f}")
        print(f"\ttrain_loss: {shown(mean, '%.2f')}, score: {34.2:.2f}")
        print(f"\teval score: {100 * right:.2f} ({92.32:.2f})")


def long_and_short() -> None:
    """Its batches are cut from tensors, without a loader; test figures come each fifth epoch."""
    args, model = SimpleNamespace(epochs=5, batch_size=128), net()
    optim = torch.optim.Adam(model.parameters(), lr=0.001)
    truth.update(total=[100, None], epochs=5)
    print("* number of parameters: 43104\nbegin training")
    for epoch in range(1, args.epochs + 1):
        model.train()
        mean = sum(update(model, optim, *random_batch()) for _ in range(20)) / 20
        model.eval()
        print(
            f"| end of epoch {epoch:3d} | time: {0.45:5.2f}s | train_loss {shown(mean)} | valid rse {0.9:5.4f} | valid rae {0.8:5.4f} | valid corr  {0.7:5.4f}"
        )
        if epoch % 5 == 0:
            print(f"test rse {0.91:5.4f} | test rae {0.81:5.4f} | test corr {0.71:5.4f}")
    print(f"test rse {0.91:5.4f} | test rae {0.81:5.4f} | test corr {0.71:5.4f}")


def sequences_of_items() -> None:
    args, model, num_batch = SimpleNamespace(num_epochs=3), net(), 30
    adam_optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth.update(total=[90, None], epochs=3)
    print("user num 6040\nitem num 3416\naverage sequence length: 163.50")
    for epoch in range(1, args.num_epochs + 1):
        for step_ in range(num_batch):
            loss = update(model, adam_optimizer, *random_batch())
            print(f"loss in epoch {epoch} iteration {step_}: {shown(loss, '%.16f')}")
        model.eval()
        print("Evaluating", end="")
        print(
            f"epoch:{epoch}, time: {1.2:f}(s), valid (Rcall@10: {0.5:.4f}, MRR@10 {0.2:.4f}, HR@10: {0.8:.4f}), test (NDCG@10: {0.5:.4f}, MRR@10 {0.2:.4f}, HR@10: {0.8:.4f})"
        )
        model.train()
    print("Done")


def fixed_and_matched() -> None:
    args = SimpleNamespace(epochs=3, iteration=20, total_steps=60, start_epoch=0)
    labeled, unlabeled, test_loader, model = samples(320), samples(640), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, nesterov=True, momentum=0.9)
    truth.update(total=[60, None], epochs=3)
    logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s -   %(message)s", level=logging.INFO)
    logger = logging.getLogger("__main__")
    logger.info("***** Running training *****")
    logger.info(f"  Num Epochs = {args.epochs}")
    logger.info(f"  Total optimization steps = {args.total_steps}")
    for epoch in range(args.start_epoch, args.epochs):
        p_bar, losses = tqdm(range(args.iteration)), _Meter()
        model.train()
        for batch_idx, ((x, y), _) in enumerate(zip(labeled, unlabeled)):
            losses.update(update(model, optimizer, x, y))
            p_bar.set_description(
                f"Train Epoch: {epoch + 1}/{args.epochs:4}. Iter: {batch_idx + 1:4}/{args.iteration:4}. LR: {0.03:.6f}. Data: {0.01:.3f}s. Batch: {0.02:.3f}s. Loss: {shown(losses.avg)}. Loss_x: {losses.avg / 2:.4f}. Loss_u: {losses.avg / 3:.4f}. Mask: {0.5:.4f}. "
            )
            p_bar.update()
        p_bar.close()
        test_bar = tqdm(test_loader)
        for batch_idx, (x, y) in enumerate(test_bar):
            model.eval()
            with torch.no_grad():
                loss = torch.nn.functional.cross_entropy(model(x), y).item()
            test_bar.set_description(
                f"Test Iter: {batch_idx + 1:4}/{len(test_loader):4}. Data: {0.01:.3f}s. Batch: {0.02:.3f}s. Loss: {loss:.4f}. top1: {33.0:.2f}. top5: {90.0:.2f}. "
            )
        test_bar.close()
        logger.info(f"top-1 acc: {33.0:.2f}")
        logger.info(f"top-5 acc: {90.0:.2f}")
        logger.info(f"Best top-1 acc: {33.0:.2f}")
        logger.info(f"Mean top-1 acc: {33.0:.2f}\n")


def factorized() -> None:
    """It prints the sum of the losses since the last line, divided, under a bar without a name."""
    epoch, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(params=model.parameters(), lr=0.001)
    truth.update(total=[120, None], epochs=3)
    for epoch_i in range(epoch):
        model.train()
        total_loss = 0.0
        for i, (x, y) in enumerate(tqdm(loader, smoothing=0, mininterval=1.0)):
            total_loss += update(model, optimizer, x, y)
            if (i + 1) % 20 == 0:
                print("    - loss:", shown(total_loss / 20, "%.16f"))
                total_loss = 0.0
        model.eval()
        for _ in tqdm(held_out, smoothing=0, mininterval=1.0):
            pass
        print("epoch:", epoch_i, "validation: auc:", 0.7012345)
    print("test auc:", 0.7011111)


def pairs_and_triplets() -> None:
    n_epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth.update(total=[120, None], epochs=3)
    for epoch in range(n_epochs):
        model.train()
        losses, total = [], 0.0
        for batch_idx, (x, y) in enumerate(loader):
            losses.append(update(model, optimizer, x, y))
            total += losses[-1]
            if batch_idx % 10 == 0:
                mean = sum(losses) / len(losses)
                print(
                    f"Train: [{batch_idx * len(x)}/640 ({100.0 * batch_idx / len(loader):.0f}%)]\tLoss: {shown(mean, '%.6f')}\tAverage nonzero triplets: {12.5}"
                )
                losses = []
        model.eval()
        val = evaluated(model, held_out)[0]
        message = (
            f"Epoch: {epoch + 1}/{n_epochs}. Train set: Average loss: {shown(total / len(loader))}\tAccuracy: {34.375}"
        )
        message += f"\nEpoch: {epoch + 1}/{n_epochs}. Validation set: Average loss: {shown(val, of='held_out')}\tAccuracy: {31.25}"
        print(message)


def proximal() -> None:
    """Four epochs of updates after each 40 of its time steps."""
    max_training_timesteps, update_timestep, K_epochs, policy = 400, 40, 4, net()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    truth.update(total=[40, None])
    time_step = i_episode = 0
    while time_step < max_training_timesteps:
        for _ in range(20):
            time_step += 1
            time.sleep(0.004)
            if time_step % update_timestep == 0:
                for _ in range(K_epochs):
                    update(policy, optimizer, *random_batch())
            if time_step % 80 == 0:
                print(
                    f"Episode : {i_episode} \t\t Timestep : {time_step} \t\t Average Reward : {round(20.5 + i_episode, 2)}"
                )
            if time_step % 200 == 0:
                print("-" * 92 + "\nsaving model at : PPO_preTrained/CartPole-v1/PPO_CartPole-v1_0_0.pth\nmodel saved")
                print("Elapsed Time  :  0:00:02\n" + "-" * 92)
        i_episode += 1
    print("=" * 92 + "\nStarted training at (GMT) :  2026-11-27 10:00:00\nTotal training time  :  0:00:04\n" + "=" * 92)


def minimal_dqn() -> None:
    q, print_interval, filled = net(), 20, 0
    optimizer = torch.optim.Adam(q.parameters(), lr=0.0005)
    truth.update(total=[100, None])
    for n_epi in range(110):
        filled += 21
        if filled > 2000:
            for _ in range(10):
                update(q, optimizer, *random_batch())
        if n_epi % print_interval == 0 and n_epi != 0:
            print(f"n_episode :{n_epi}, score : {21.0:.1f}, n_buffer : {filled}, eps : {8.0:.1f}%")
    truth["total"] = [truth["updates"], None]


def ode_of_digits() -> None:
    """One model for each integration time, which a fork trains one after the other."""
    args = SimpleNamespace(nepochs=2, lr=0.1)
    truth.update(total=[160, None], epochs=2)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    logger = logging.getLogger(__name__)
    for integration_time in ((0, 0.05), (0, 1)):
        model, loader, test_loader = net(), samples(), samples(160)
        logger.info(f"Integration time: {integration_time[1]}")
        batches_per_epoch, optimizer = len(loader), torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
        batches = iter(loader)
        for itr in range(args.nepochs * batches_per_epoch):
            try:
                x, y = next(batches)
            except StopIteration:
                batches = iter(loader)
                x, y = next(batches)
            update(model, optimizer, x, y)
            if itr % batches_per_epoch == 0:
                val_acc = evaluated(model, test_loader)[1]
                logger.info(
                    f"Epoch {itr // batches_per_epoch:04d} | Time {0.02:.3f} ({0.021:.3f}) | NFE-F {20.0:.1f} | NFE-B {26.0:.1f} | Train Acc {0.34:.4f} | Test Acc {val_acc:.4f}"
                )
        logger.info(f"Integration time: {integration_time[1]} :: Average test loss: {0.33}")


def sines() -> None:
    epochs, steps_til_summary, model, train_dataloader = 60, 20, net(), samples(32, 16)
    optim = torch.optim.Adam(lr=1e-4, params=model.parameters())
    truth.update(total=120, epochs=60)
    total_steps = 0
    with tqdm(total=len(train_dataloader) * epochs) as pbar:
        for epoch in range(epochs):
            for x, y in train_dataloader:
                loss = update(model, optim, x, y)
                pbar.update(1)
                if not total_steps % steps_til_summary:
                    tqdm.write(f"Epoch {epoch}, Total loss {shown(loss, '%0.6f')}, iteration time {0.02:0.6f}")
                total_steps += 1


def monocular() -> None:
    opt, loader, model = SimpleNamespace(num_epochs=3, log_frequency=10, batch_size=16), samples(drop_last=True), net()
    val_loader = samples(160)
    val_iter, optimizer = iter(val_loader), torch.optim.Adam(model.parameters(), 1e-4)
    truth.update(total=[120, None], epochs=3)
    print("Using split:\n   eigen_zhou\nThere are 640 training items and 160 validation items\n")
    step_ = 0
    for epoch in range(opt.num_epochs):
        print("Training")
        model.train()
        for batch_idx, (x, y) in enumerate(loader):
            loss = update(model, optimizer, x, y)
            if batch_idx % opt.log_frequency == 0:
                print(
                    f"epoch {epoch:>3} | batch {batch_idx:>6} | examples/s: {812.5:5.1f} | loss: {shown(loss, '%.5f')} | time elapsed: 00h00m01s | time left: 00h00m02s"
                )
                model.eval()
                try:
                    next(val_iter)
                except StopIteration:
                    val_iter = iter(val_loader)
                    next(val_iter)
                model.train()
            step_ += 1


def extra_long() -> None:
    args, model = SimpleNamespace(log_interval=10, eval_interval=40, max_tokens=120 * 512), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.00025)
    truth.update(total=[120, None], epochs=1)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    logger = logging.getLogger(__name__)
    train_loss, tokens = 0.0, 0
    for batch in range(120):
        train_loss += update(model, optimizer, *random_batch())
        tokens += 512
        train_step = batch + 1
        if train_step % args.log_interval == 0:
            cur_loss = train_loss / args.log_interval
            logger.info(
                f"| epoch {1:3d} step {train_step:>8d} | {batch + 1:>6d} batches | lr {0.00025:.3g} | ms/batch {21.5:5.2f} | loss {shown(cur_loss, '%5.2f')} | bpc {cur_loss / math.log(2):9.5f}"
            )
            train_loss = 0.0
        if train_step % args.eval_interval == 0:
            model.eval()
            bar = tqdm(range(10), leave=False, desc="Eval")
            for _ in bar:
                bar.set_description(f"Eval loss {1.09:.2f}")
            model.train()


def equivariant() -> None:
    """The same function trains and evaluates; what it prints of an evaluation has a prefix."""
    args, model = SimpleNamespace(epochs=3, log_interval=10, test_interval=1), net()
    loaders = {"train": samples(), "valid": samples(160), "test": samples(160)}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth.update(total=[120, None], epochs=3)

    def train(epoch: int, loader: Any, partition: str = "train") -> float:
        losses = []
        for i, (x, y) in enumerate(loader):
            if partition == "train":
                model.train()
                losses.append(update(model, optimizer, x, y))
            else:
                model.eval()
                losses.append(torch.nn.functional.cross_entropy(model(x), y).item())
            prefix = "" if partition == "train" else f">> {partition} \t"
            if i % args.log_interval == 0:
                mean = sum(losses[-10:]) / len(losses[-10:])
                print(
                    f"{prefix}Epoch {epoch} \t Iteration {i} \t loss {shown(mean, of='training' if partition == 'train' else 'held_out')}"
                )
        return sum(losses) / len(losses)

    best = (1e10, 1e10, 0)
    for epoch in range(args.epochs):
        train(epoch, loaders["train"])
        if epoch % args.test_interval == 0:
            val, test = train(epoch, loaders["valid"], "valid"), train(epoch, loaders["test"], "test")
            best = min(best, (val, test, epoch))
            print(f"Val loss: {val:.4f} \t test loss: {test:.4f} \t epoch {epoch}")
            print(f"Best: val loss: {best[0]:.4f} \t test loss: {best[1]:.4f} \t epoch {best[2]}")


def voice_encoder() -> None:
    """Its data never ends; what it prints counts the steps at which it saves."""
    model, init_step, save_every, backup_every = net(), 1, 50, 100
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth.update(total=None)
    print('No model "my_run" found, starting training from scratch.')
    for step_ in range(init_step, init_step + 150):
        update(model, optimizer, *random_batch())
        if step_ % save_every == 0:
            print(f"Saving the model (step {step_})")
        if step_ % backup_every == 0:
            print(f"Making a backup (step {step_})")


def voice_conversion() -> None:
    num_iters, log_step, data_loader, model = 120, 10, samples(320), net()
    g_optimizer = torch.optim.Adam(model.parameters(), 0.0001)
    truth.update(total=[120, None])
    print("Start training...")
    data_iter = iter(data_loader)
    for i in range(num_iters):
        try:
            x, y = next(data_iter)
        except StopIteration:
            data_iter = iter(data_loader)
            x, y = next(data_iter)
        model = model.train()
        loss = update(model, g_optimizer, x, y)
        if (i + 1) % log_step == 0:
            print(
                f"Elapsed [0:00:01], Iteration [{i + 1}/{num_iters}], G/loss_id: {loss / 2:.4f}, G/loss_id_psnt: {loss / 3:.4f}, G/loss_cd: {loss / 6:.4f}"
            )


def segmented_images() -> None:
    num_epochs, num_epochs_decay, loader, held_out, unet = 3, 1, samples(), samples(160), net()
    optimizer = torch.optim.Adam(unet.parameters(), 0.0002)
    truth.update(total=[120, None], epochs=3)
    for epoch in range(num_epochs):
        unet.train(True)
        epoch_loss = sum(update(unet, optimizer, x, y) for x, y in loader)
        print(
            f"Epoch [{epoch + 1}/{num_epochs}], Loss: {shown(epoch_loss)}, \n[Training] Acc: {0.33:.4f}, SE: {0.5:.4f}, SP: {0.5:.4f}, PC: {0.5:.4f}, F1: {0.5:.4f}, JS: {0.3:.4f}, DC: {0.4:.4f}"
        )
        if epoch + 1 > num_epochs - num_epochs_decay:
            print("Decay learning rate to lr: 0.0001.")
        unet.train(False)
        unet.eval()
        evaluated(unet, held_out)
        print(
            f"[Validation] Acc: {0.31:.4f}, SE: {0.5:.4f}, SP: {0.5:.4f}, PC: {0.5:.4f}, F1: {0.5:.4f}, JS: {0.3:.4f}, DC: {0.4:.4f}"
        )
        if epoch < 2:
            print(f"Best U_Net model score : {0.7:.4f}")


def joint_bert() -> None:
    args = SimpleNamespace(num_train_epochs=3.0, max_steps=-1, gradient_accumulation_steps=2, logging_steps=20)
    model, train_dataloader, eval_dataset = net(), samples(), samples(160)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    truth.update(total=[60, None], epochs=3)
    logging.basicConfig(
        format="%(asctime)s - %(levelname)s - %(name)s -   %(message)s", datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO
    )
    logger, global_step = logging.getLogger("trainer"), 0
    logger.info("***** Running training *****")
    logger.info("  Num examples = %d", 640)
    logger.info("  Num Epochs = %d", args.num_train_epochs)
    logger.info("  Total train batch size = %d", 16)
    logger.info("  Gradient Accumulation steps = %d", args.gradient_accumulation_steps)
    logger.info("  Total optimization steps = %d", 60)
    for _ in trange(int(args.num_train_epochs), desc="Epoch"):
        for at, (x, y) in enumerate(tqdm(train_dataloader, desc="Iteration")):
            model.train()
            backward(model, x, y, 0.5)
            if (at + 1) % args.gradient_accumulation_steps == 0:
                step(optimizer)
                global_step += 1
                if global_step % args.logging_steps == 0:
                    logger.info("***** Running evaluation on %s dataset *****", "dev")
                    logger.info("  Num examples = %d", 160)
                    logger.info("  Batch size = %d", 64)
                    model.eval()
                    loss = 0.0
                    for x, y in tqdm(eval_dataset, desc="Evaluating"):
                        with torch.no_grad():
                            loss += torch.nn.functional.cross_entropy(model(x), y).item() / len(eval_dataset)
                    logger.info("***** Eval results *****")
                    results = {"intent_acc": 0.91, "loss": loss, "sementic_frame_acc": 0.71, "slot_f1": 0.88}
                    for key in sorted(results):
                        logger.info("  %s = %s", key, str(results[key]))


def words_to_words() -> None:
    args, model = SimpleNamespace(epochs=3, patience=5, grad_clip=10.0), net()
    train_iter, val_iter, test_iter = samples(), samples(160), samples(160)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth.update(total=[120, None], epochs=3)
    print(f"[!] device: cpu\n[!] preparing dataset...\n[TRAIN]:{len(train_iter)}\t[TEST]:{len(test_iter)}")
    print("[DE_vocab]:7855 [EN_vocab]:5893\n[!] Instantiating models...")
    for e in range(1, args.epochs + 1):
        model.train()
        total_loss = 0.0
        for b, (x, y) in enumerate(train_iter):
            total_loss += update(model, optimizer, x, y)
            if b % 10 == 0 and b != 0:
                mean = total_loss / 10
                print(f"[{b}][loss:{shown(mean, '%5.2f')}][pp:{math.exp(mean):5.2f}]")
                total_loss = 0.0
        model.eval()
        val = evaluated(model, val_iter)[0]
        print(f"[Epoch:{e}] val_loss:{shown(val, '%5.3f', 'held_out')} | val_pp:{math.exp(val):5.2f}")
        print("[!] saving model...")
    print(f"[TEST] loss:{evaluated(model, test_iter)[0]:5.2f}")


def light_graphs() -> None:
    """Batches are cut from shuffled tensors, and the loss stands behind its word without a space."""
    world, model, total_batch = SimpleNamespace(TRAIN_epochs=6), net(), 20
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    truth.update(total=[120, None], epochs=6)
    print(">>SEED: 2020\n\x1b[0;30;43m[TEST]\x1b[0m")
    for epoch in range(world.TRAIN_epochs):
        if epoch % 3 == 0:
            model = model.eval()
            print("{'precision': array([0.0005]), 'recall': array([0.0012]), 'ndcg': array([0.001])}\nc_ratio: 0.10001")
        model.train()
        aver_loss = sum(update(model, optimizer, *random_batch()) for _ in range(total_batch)) / total_batch
        print(f"EPOCH[{epoch + 1}/{world.TRAIN_epochs}] loss{shown(aver_loss, '%.3f')}-|Sample:5.62|")


def digits_of_a_gan() -> None:
    train_epoch, train_loader, G, D = 3, samples(), net(), net()
    G_optimizer, D_optimizer = (torch.optim.Adam(one.parameters(), lr=0.0002) for one in (G, D))
    truth.update(total=[120, None], epochs=3)
    print("training start!")
    for epoch in range(train_epoch):
        for x, y in train_loader:
            loss_d = backward(D, x, y)
            D_optimizer.step()
            D_optimizer.zero_grad()
            loss_g = backward(G, x, y)
            step(G_optimizer)
        print(f"[{epoch + 1}/{train_epoch}] - ptime: {1.02:.2f}, loss_d: {loss_d:.3f}, loss_g: {loss_g:.3f}")
    print(f"Avg per epoch ptime: {1.02:.2f}, total {train_epoch} epochs ptime: {3.10:.2f}")
    print("Training finish!... save training results")


def noise() -> None:
    """A bar of steps over a loader without an end; it samples and evaluates in between."""
    FLAGS, dataloader, net_model = SimpleNamespace(total_steps=120, sample_step=40, eval_step=60), samples(), net()
    optim = torch.optim.Adam(net_model.parameters(), lr=2e-4)
    truth.update(total=120)
    next(iter(dataloader))

    def infinite() -> Any:
        while True:
            yield from iter(dataloader)

    looper = infinite()
    print(f"Model params: {34.1:.2f} M")
    with trange(FLAGS.total_steps, dynamic_ncols=True) as pbar:
        for at in pbar:
            x, y = next(looper)
            pbar.set_postfix(loss=shown(update(net_model, optim, x, y), "%.3f"))
            if at % FLAGS.sample_step == 0:
                net_model.eval()
                net_model(x)
                net_model.train()
            if FLAGS.eval_step > 0 and at % FLAGS.eval_step == 0:
                pbar.write(
                    f"{at}/{FLAGS.total_steps} IS:{2.1:.3f}, IS_std:{0.1:.3f}, FID:{301.2:.3f}, IS_EMA:{1.1:.3f}, IS_std_EMA:{0.1:.3f}, FID_EMA:{402.1:.3f}"
                )


def xception() -> None:
    """The loss of an evaluation has a line of its own that reads like that of the training."""
    args, loader, held_out, model = (
        SimpleNamespace(epochs=3, start_epoch=0, batch_size=16, eval_interval=1),
        samples(),
        samples(160),
        net(),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.007, momentum=0.9)
    truth.update(total=[120, None], epochs=3)
    print(args)
    print("Starting Epoch:", args.start_epoch)
    print("Total Epoches:", args.epochs)
    for epoch in range(args.start_epoch, args.epochs):
        train_loss = 0.0
        model.train()
        tbar = tqdm(loader)
        for i, (x, y) in enumerate(tbar):
            train_loss += update(model, optimizer, x, y)
            tbar.set_description(f"Train loss: {shown(train_loss / (i + 1), '%.3f')}")
        print(f"[Epoch: {epoch}, numImages: {640:5d}]")
        print(f"Loss: {shown(train_loss, '%.3f')}")
        model.eval()
        tbar, test_loss = tqdm(held_out, desc="\r"), 0.0
        for i, (x, y) in enumerate(tbar):
            with torch.no_grad():
                test_loss += torch.nn.functional.cross_entropy(model(x), y).item()
            tbar.set_description(f"Test loss: {test_loss / (i + 1):.3f}")
        print("Validation:")
        print(f"[Epoch: {epoch}, numImages: {160:5d}]")
        print(f"Acc:{0.3312}, Acc_class:{0.3288}, mIoU:{0.2011}, fwIoU: {0.2101}")
        print(f"Loss: {shown(test_loss, '%.3f', 'held_out')}")


if __name__ == "__main__":
    run(globals())
