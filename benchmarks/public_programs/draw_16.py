"""Fifteen more by their source, run after what the thirty before had shown was mended."""

from __future__ import annotations

import json
import logging
import sys
import time
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from account import shown, truth
from toy import evaluated, net, random_batch, run, samples, update
from tqdm import tqdm, trange


def _loss(model: Any, x: Any, y: Any) -> float:
    with torch.no_grad():
        return F.cross_entropy(model(x), y).item()


def rays() -> None:
    model, N_iters, i_print, i_weights = net(), 121, 10, 40
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    truth.update(total=[120, None])
    print("Begin\nTRAIN views are [0 1 2]\nTEST views are [3]\nVAL views are [3]")
    for i in trange(1, N_iters):
        loss = update(model, optimizer, *random_batch())
        if i % i_weights == 0:
            print("Saved checkpoints at", f"./logs/fern/{i:06d}.tar")
        if i % i_print == 0:
            tqdm.write(f"[TRAIN] Iter: {i} Loss: {shown(loss, '%.16f')}  PSNR: {20.123456}")


def occupied() -> None:
    """It would go on until a limit of time; its epochs and iterations count from 0."""
    model, train_loader, val_loader = net(), samples(), samples(160)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth.update(total=None, epochs=3)
    print("Current best validation metric (iou): -inf\nTotal number of parameters: 13414465")
    epoch_it = it = -1
    while epoch_it < 2:
        epoch_it += 1
        for x, y in train_loader:
            it += 1
            model.train()
            loss = update(model, optimizer, x, y)
            if it % 10 == 0:
                print(f"[Epoch {epoch_it:02d}] it={it:03d}, loss={shown(loss)}")
            if it % 50 == 0:
                print("Saving checkpoint")
            if it % 40 == 0:
                model.eval()
                evaluated(model, val_loader)
                print(f"Validation metric (iou): {0.4 + it / 1000:.4f}")
                print(f"New best model (loss {0.4 + it / 1000:.4f})")
    print("Time limit reached. Exiting.")


def documents() -> None:
    args, model = SimpleNamespace(epochs=3, log_per_updates=3), net()
    optimizer = torch.optim.Adamax(model.parameters())
    truth.update(total=[120, None], epochs=3)
    log = logging.getLogger(__name__)
    log.setLevel(logging.DEBUG)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(fmt="%(asctime)s %(message)s", datefmt="%m/%d/%Y %I:%M:%S"))
    log.addHandler(handler)
    log.info("[program starts.]")
    log.info("[Data loaded.]")
    updates, mean = 0, 0.0
    for epoch in range(1, 1 + args.epochs):
        log.warning(f"Epoch {epoch}")
        for i in range(40):
            model.train()
            loss = update(model, optimizer, *random_batch())
            updates += 1
            mean = loss if updates == 1 else 0.99 * mean + 0.01 * loss
            if i % args.log_per_updates == 0:
                log.info(f"epoch [{epoch:2}] updates[{updates:6}] train loss[{shown(mean, '%.5f')}] remaining[0:00:01]")
        model.eval()
        log.warning(f"dev EM: {60.5 + epoch} F1: {70.25 + epoch}")
        log.info("[new best model saved.]")


def inferred_sentences() -> None:
    """Its first number is that of a sample; words come behind the figure that they name."""
    params, model = SimpleNamespace(n_epochs=3, batch_size=16), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth.update(total=[120, None], epochs=3)
    epoch = 1
    while epoch <= params.n_epochs:
        print(f"\nTRAINING : Epoch {epoch}")
        model.train()
        print(f"Learning rate : {0.1}")
        costs: list[float] = []
        for stidx in range(0, 640, params.batch_size):
            costs.append(update(model, optimizer, *random_batch()))
            if len(costs) == 10:
                mean = sum(costs) / 10
                print(
                    f"{stidx} ; loss {shown(mean, '%.2f')} ; sentence/s {760} ; words/s {9100} ; accuracy train : {33.4}"
                )
                costs = []
        print(f"results : epoch {epoch} ; mean accuracy train : {33.6}")
        model.eval()
        print(f"\nVALIDATION : Epoch {epoch}")
        print(f"togrep : results : epoch {epoch} ; mean accuracy valid : {31.2}")
        print(f"saving model at epoch {epoch}")
        epoch += 1
    print(f"\nTEST : Epoch {epoch}")
    print(f"finalgrep : accuracy valid : {31.2}\nfinalgrep : accuracy test : {31.4}")


def self_distilled() -> None:
    args, loader, student = SimpleNamespace(epochs=3, output_dir="."), samples(drop_last=True), net()
    optimizer = torch.optim.AdamW(student.parameters())
    truth.update(total=[120, None], epochs=3)
    print("Loss, optimizer and schedulers ready.\nStarting DINO training !")
    for epoch in range(args.epochs):
        losses = []
        for it, (x, y) in enumerate(loader):
            losses.append(update(student, optimizer, x, y))
            last = sorted(losses[-20:])
            if it % 10 == 0 or it == len(loader) - 1:
                shown(last[(len(last) - 1) // 2], "%.6f")
                print(
                    f"Epoch: [{epoch}/{args.epochs}]  [{it:2d}/{len(loader)}]  eta: 0:00:01  loss: {last[(len(last) - 1) // 2]:.6f} ({shown(sum(losses) / len(losses), '%.6f')})  lr: 0.000001 (0.000001)  wd: 0.040000 (0.040000)  time: 0.021000  data: 0.001000"
                )
        mean = sum(losses) / len(losses)
        print(f"Epoch: [{epoch}/{args.epochs}] Total time: 0:00:01 (0.021000 s / it)")
        print(
            f"Averaged stats: loss: {last[(len(last) - 1) // 2]:.6f} ({shown(mean, '%.6f')})  lr: 0.000001 (0.000001)  wd: 0.040000 (0.040000)"
        )
        truth["training"].append(mean)
        with open("log.txt", "a") as stream:
            stream.write(json.dumps({"train_loss": mean, "train_lr": 1e-6, "train_wd": 0.04, "epoch": epoch}) + "\n")


class _Scheduled:
    """An optimizer within an object that changes its rate."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self.step_num = optimizer, 0

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def step(self) -> None:
        self.step_num += 1
        self.optimizer.step()


def faces_with_margins() -> None:
    args, loader, model = SimpleNamespace(end_epoch=3), samples(), net()
    optimizer = _Scheduled(torch.optim.SGD(model.parameters(), lr=0.1))
    truth.update(total=[120, None], epochs=3)
    logging.basicConfig(format="%(asctime)s %(levelname)s \t%(message)s", level=logging.INFO)
    logger = logging.getLogger()
    for epoch in range(args.end_epoch):
        model.train()
        losses = []
        for i, (x, y) in enumerate(loader):
            losses.append(update(model, optimizer, x, y))
            if i % 10 == 0:
                shown(losses[-1])
                logger.info(
                    f"Epoch: [{epoch}][{i}/{len(loader)}]\tLoss {losses[-1]:.4f} ({shown(sum(losses) / len(losses))})\tTop5 Accuracy {90.625:.3f} ({91.0:.3f})"
                )
        model.eval()
        if epoch:
            print(f"\nEpochs since last improvement: {epoch}\n")


def perceptual_upscaling() -> None:
    opt, loader, model = SimpleNamespace(nEpochs=3, start_epoch=1), samples(), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth.update(total=[120, None], epochs=3)
    print("===> Building model\n===> Setting GPU\n===> Setting Optimizer\n===> Training")
    for epoch in range(opt.start_epoch, opt.nEpochs + 1):
        print(f"Epoch={epoch}, lr={0.0001}")
        model.train()
        for iteration, (x, y) in enumerate(loader, 1):
            loss = update(model, optimizer, x, y)
            if iteration % 10 == 0:
                truth["training"].append(float(f"{loss:.5}"))
                print(f"===> Epoch[{epoch}]({iteration}/{len(loader)}): Loss: {loss:.5}")
        print(f"Checkpoint saved to checkpoint/model_epoch_{epoch}.pth")


def traffic() -> None:
    args, train_iter, val_iter, model = SimpleNamespace(epochs=3, patience=10), samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    truth.update(total=[120, None], epochs=3)
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for x, y in tqdm(train_iter):
            total += update(model, optimizer, x, y)
        model.eval()
        val = evaluated(model, val_iter)[0]
        print(
            f"Epoch: {epoch + 1:03d} | Lr: {0.001:.20f} |Train loss: {shown(total / 40, '%.6f')} | Val loss: {shown(val, '%.6f', 'held_out')} | GPU occupy: {0:.6f} MiB"
        )
    model.eval()
    print(f"Dataset metr-la | Test loss {val:.6f} | MAE {3.012345:.6f} | RMSE {6.012345:.6f} | WMAPE {0.07:.8f}")


def rainbow() -> None:
    """A bar of steps of its world, of which each fourth makes an update once enough have been made."""
    args, model = SimpleNamespace(T_max=400, learn_start=80, replay_frequency=4, evaluation_interval=100), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-5)
    truth.update(total=[81, None])
    model.train()
    for T in trange(1, args.T_max + 1):
        time.sleep(0.003)
        if args.learn_start <= T:
            if T % args.replay_frequency == 0:
                update(model, optimizer, *random_batch())
            if T % args.evaluation_interval == 0:
                model.eval()
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
                print(f"[{stamp}] T = {T} / {args.T_max} | Avg. reward: {12.5} | Avg. Q: {0.0123}")
                model.train()


def short_reviews() -> None:
    """Each epoch has an optimizer of its own."""
    train_iter = [random_batch() for _ in range(40)]
    valid_iter, model = [random_batch() for _ in range(10)], net()
    truth.update(total=[120, None], epochs=3)
    for epoch in range(3):
        optim = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()))
        model.train()
        total, steps = 0.0, 0
        for idx, (x, y) in enumerate(train_iter):
            loss = update(model, optim, x, y)
            steps, total = steps + 1, total + loss
            if steps % 10 == 0:
                print(
                    f"Epoch: {epoch + 1}, Idx: {idx + 1}, Training Loss: {shown(loss)}, Training Accuracy: {34.38: .2f}%"
                )
        model.eval()
        val = sum(_loss(model, x, y) for x, y in valid_iter) / 10
        print(
            f"Epoch: {epoch + 1:02}, Train Loss: {shown(total / 40, '%.3f')}, Train Acc: {34.1:.2f}%, Val. Loss: {val:3f}, Val. Acc: {31.25:.2f}%"
        )
    print(f"Test Loss: {val:.3f}, Test Acc: {31.25:.2f}%")


def fourier() -> None:
    epochs, train_loader, test_loader, model = 4, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, weight_decay=1e-4)
    truth.update(total=[160, None], epochs=4)
    print(1188353)
    for ep in range(epochs):
        model.train()
        total = sum(update(model, optimizer, x, y) for x, y in train_loader)
        model.eval()
        print(ep, 0.8512345, float(shown(total / 640, "%.16f")), evaluated(model, test_loader)[0])


def anchors() -> None:
    start_epoch, trainloader, testloader, model = 0, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    truth.update(total=[120, None], epochs=3)
    for epoch in range(start_epoch, start_epoch + 3):
        print(f"\nEpoch: {epoch}")
        model.train()
        total = 0.0
        for at, (x, y) in enumerate(trainloader):
            loss = update(model, optimizer, x, y)
            total += loss
            print(f"train_loss: {shown(loss, '%.3f')} | avg_loss: {shown(total / (at + 1), '%.3f')}")
        print("\nTest")
        model.eval()
        total = 0.0
        for at, (x, y) in enumerate(testloader):
            loss = _loss(model, x, y)
            total += loss
            print(f"test_loss: {loss:.3f} | avg_loss: {total / (at + 1):.3f}")
        print("Saving..")


def disentangled() -> None:
    max_iter, loader, model = 120, samples(), net()
    optim = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth.update(total=[120, None])
    global_iter, out = 0, False
    pbar = tqdm(total=max_iter)
    while not out:
        for x, y in loader:
            global_iter += 1
            pbar.update(1)
            loss = update(model, optim, x, y)
            if global_iter % 20 == 0:
                pbar.write(f"[{global_iter}] recon_loss:{loss:.3f} total_kld:{0.012:.3f} mean_kld:{0.001:.3f}")
                truth["training"].append(float(f"{loss:.3f}"))
                pbar.write("".join(f"var{j + 1}:{0.9 + j / 100:.4f} " for j in range(5)))
            if global_iter >= max_iter:
                out = True
                break
    pbar.write("[Training Finished]")
    pbar.close()


def many_series() -> None:
    """Two trainings, one after the other, each with a model of its own."""
    args = SimpleNamespace(epochs=3, runs=2, print_every=10)
    truth.update(total=[120, None], epochs=3)
    for _ in range(args.runs):
        model, his_loss = net(), []
        optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
        print("The recpetive field size is 19\nNumber of model parameters is 405452\nstart training...", flush=True)
        for i in range(1, args.epochs + 1):
            losses = []
            for at in range(20):
                model.train()
                losses.append(update(model, optimizer, *random_batch()))
                if at % args.print_every == 0:
                    print(
                        f"Iter: {at:03d}, Train Loss: {shown(losses[-1])}, Train MAPE: {0.2:.4f}, Train RMSE: {6.0:.4f}",
                        flush=True,
                    )
            model.eval()
            his_loss.append(_loss(model, *random_batch()))
            print(f"Epoch: {i:03d}, Inference Time: {0.1:.4f} secs")
            mean = sum(losses) / len(losses)
            print(
                f"Epoch: {i:03d}, Train Loss: {shown(mean)}, Train MAPE: {0.2:.4f}, Train RMSE: {6.0:.4f}, Valid Loss: {his_loss[-1]:.4f}, Valid MAPE: {0.2:.4f}, Valid RMSE: {6.1:.4f}, Training Time: {0.9:.4f}/epoch",
                flush=True,
            )
        print("Average Training Time: 0.9000 secs/epoch\nAverage Inference Time: 0.1000 secs\nTraining finished")
        print("The valid loss on best model is", str(round(min(his_loss), 4)))
        for i in range(3):
            print(
                f"Evaluate best model on test data for horizon {i + 1:d}, Test MAE: {3.0:.4f}, Test MAPE: {0.2:.4f}, Test RMSE: {6.2:.4f}"
            )
    print(
        "\n\nResults for 10 runs\n\n\nvalid\tMAE\tRMSE\tMAPE\nmean:\t2.9000\t5.9000\t0.1900\nstd:\t0.0100\t0.0200\t0.0010"
    )


def mixed_and_matched() -> None:
    """Without a terminal its bars draw nothing, and it evaluates on the loader of its training as well."""
    args, model = SimpleNamespace(epochs=3, val_iteration=30, start_epoch=0), net()
    labeled, unlabeled, val_loader = samples(160), samples(320), samples(160)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    truth.update(total=[90, None], epochs=3)
    print("==> Preparing cifar10\n==> creating WRN-28-2\n    Total params: 1.47M")
    for epoch in range(args.start_epoch, args.epochs):
        print(f"\nEpoch: [{epoch + 1} | {args.epochs}] LR: {0.002:f}")
        one, two = iter(labeled), iter(unlabeled)
        model.train()
        for _ in range(args.val_iteration):
            try:
                x, y = next(one)
            except StopIteration:
                one = iter(labeled)
                x, y = next(one)
            try:
                next(two)
            except StopIteration:
                two = iter(unlabeled)
                next(two)
            update(model, optimizer, x, y)
        model.eval()
        for loader in (labeled, val_loader, val_loader):
            evaluated(model, loader)
    print("Best acc:\n33.125\nMean acc:\n32.5")


if __name__ == "__main__":
    run(globals())
