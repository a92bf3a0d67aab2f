"""Twelve more, of projects that no draw had either, drawn after what the thirty before had shown was mended."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import torch
import torch.nn.functional as F
from account import judge_accuracies, shown, truth
from toy import backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm

judge_accuracies()


def recommender_suite() -> None:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)-15s %(levelname)s  %(message)s")
    config = {"epochs": 3, "train_batch_size": 16, "stopping_step": 10, "eval_step": 1}
    loader, held_out, model = samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth.update(total=[120, None], epochs=3)
    logging.info("Trainable parameters: 107")
    for epoch_idx in range(config["epochs"]):
        model.train()
        total = sum(update(model, optimizer, x, y) for x, y in loader)
        logging.info(f"epoch {epoch_idx} training [time: {0.84:.2f}s, train loss: {shown(total)}]")
        model.eval()
        evaluated(model, held_out)
        logging.info(f"epoch {epoch_idx} evaluating [time: {0.1:.2f}s, valid_score: {0.012:.6f}]")
        logging.info("valid result: \nrecall@10 : 0.0121    mrr@10 : 0.0512    ndcg@10 : 0.0211    hit@10 : 0.0912")
        logging.info("Saving current: saved/BPR-Nov-27-2026.pth")
    logging.info("best valid : OrderedDict({'recall@10': 0.0121, 'mrr@10': 0.0512})")


def high_resolution() -> None:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)-15s %(message)s")
    num_epoch, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    truth.update(total=[120, None], epochs=3)
    for epoch in range(num_epoch):
        model.train()
        total = 0.0
        for i_iter, (x, y) in enumerate(loader):
            total += update(model, optimizer, x, y)
            if i_iter % 10 == 0:
                loss = shown(total / (i_iter + 1), "%.6f")
                logging.info(
                    f"Epoch: [{epoch}/{num_epoch}] Iter:[{i_iter}/{len(loader)}], Time: {0.02:.2f}, lr: [0.01], Loss: {loss}"
                )
        model.eval()
        for at, (x, y) in enumerate(held_out):
            with torch.no_grad():
                F.cross_entropy(model(x), y)
            if at % 10 == 0:
                print(at)
        mean = shown(evaluated(model, held_out)[0], "%.3f", "held_out")
        logging.info("=> saving checkpoint to output/checkpoint.pth.tar")
        logging.info(f"Loss: {mean}, MeanIU: {0.3123: 4.4f}, Best_mIoU: {0.3123: 4.4f}")


def persons() -> None:
    max_epoch, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    truth.update(total=[120, None], epochs=3)
    print("=> Start training")
    for epoch in range(max_epoch):
        model.train()
        total = 0.0
        for at, (x, y) in enumerate(loader, 1):
            loss = update(model, optimizer, x, y)
            total += loss
            if at % 10 == 0:
                one, mean = shown(loss), shown(total / at)
                acc = shown(37.5, "%.3f", "training_accuracy")
                print(
                    f"epoch: [{epoch + 1}/{max_epoch}][{at}/{len(loader)}]\ttime {0.021:.3f} ({0.021:.3f})\tdata {0.001:.3f} ({0.001:.3f})\teta 0:00:02\tloss {one} ({mean})\tacc {acc} ({acc})\tlr {3e-4:.6f}"
                )
    print("=> Final test\n##### Evaluating market1501 (source) #####\nExtracting features from query set ...")
    model.eval()
    evaluated(model, held_out)
    print(
        "Done, obtained 160-by-3 matrix\nSpeed: 0.0012 sec/batch\nComputing CMC and mAP ...\n** Results **\nmAP: 12.3%\nCMC curve"
    )
    print("Rank-1  : 33.1%\nRank-5  : 61.2%\nElapsed 0:00:03")


def tables() -> None:
    n_epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    truth.update(total=[120, None], epochs=3)
    report_frequency = len(loader) // 5
    for epoch in range(1, n_epochs + 1):
        for iteration, (x, y) in enumerate(loader):
            model.train()
            loss = update(model, optimizer, x, y)
            if iteration % report_frequency == 0:
                print(f"(epoch) {epoch} (batch) {iteration} (loss) {shown(loss)}")
        model.eval()
        score = evaluated(model, held_out)[1]
        print(f"Epoch {epoch:03d} | Validation score: {score:.4f} | Test score: {score:.4f}", end="")
        print(" <<< BEST VALIDATION EPOCH" if epoch == 1 else "")


def tab_net() -> None:
    max_epochs, patience, loader, held_out, model = 4, 15, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    truth.update(total=[160, None], epochs=4)
    for epoch in range(max_epochs):
        model.train()
        total = sum(update(model, optimizer, x, y) for x, y in loader) / len(loader)
        model.eval()
        right = shown(evaluated(model, held_out)[1], "%.5f", "held_out_accuracy")
        print(f"epoch {epoch:<3}| loss: {shown(total, '%.5f'):<8}| valid_accuracy: {right:<8}|  0:00:0{epoch}s")
    print(
        f"Stop training because you reached max_epochs = {max_epochs} with best_epoch = 2 and best_valid_accuracy = {right}"
    )
    assert patience


def scikit() -> None:
    max_epochs, loader, held_out, model = 4, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth.update(total=[160, None], epochs=4)
    print(
        "  epoch    train_loss    valid_acc    valid_loss     dur\n-------  ------------  -----------  ------------  ------"
    )
    for epoch in range(1, max_epochs + 1):
        model.train()
        total = sum(update(model, optimizer, x, y) for x, y in loader) / len(loader)
        model.eval()
        loss, right = evaluated(model, held_out)
        acc, mean = shown(right, "%.4f", "held_out_accuracy"), shown(loss, of="held_out")
        print(
            f"{epoch:>7}  \033[36m{shown(total):>12}\033[0m  \033[32m{acc:>11}\033[0m  \033[35m{mean:>12}\033[0m  {0.8412:.4f}"
        )


def twins() -> None:
    epochs, loader, model = 3, samples(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    truth.update(total=[120, None], epochs=3)
    print(" ".join(sys.argv[:1]))
    for epoch in range(epochs):
        for at, (x, y) in enumerate(loader, start=epoch * len(loader)):
            loss = update(model, optimizer, x, y)
            if at % 10 == 0:
                rates = {"learning_rate_weights": 0.2, "learning_rate_biases": 0.0048}
                print(
                    json.dumps(
                        {"epoch": epoch, "step": at, **rates, "loss": float(shown(loss, "%.16f")), "time": at // 50}
                    )
                )


def centers() -> None:
    num_epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.25e-4)
    truth.update(total=[120, None], epochs=3)

    def run_epoch(phase: str, epoch: int, data: Any) -> None:
        model.train(phase == "train")
        total = 0.0
        for at, (x, y) in enumerate(data):
            loss = update(model, optimizer, x, y) if phase == "train" else F.cross_entropy(model(x), y).item()
            total += loss
            mean = shown(total / (at + 1), of="training" if phase == "train" else "held_out")
            print(
                f"ctdet/default| {phase}: [{epoch}][{at}/{len(data)}]|Tot: 0:00:00 |ETA: 0:00:01 |loss {mean} |hm_loss {loss / 2:.4f} |wh_loss {loss / 4:.4f} |off_loss {loss / 4:.4f} |Data {0.001:.3f}s({0.001:.3f}s) |Net {0.021:.3f}s"
            )

    print("Creating model...\nSetting up data...\nStarting training...")
    for epoch in range(1, num_epochs + 1):
        run_epoch("train", epoch, loader)
        if epoch % 2 == 0:
            with torch.no_grad():
                run_epoch("val", epoch, held_out)


def voices_end_to_end() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s\t%(name)s\t%(levelname)s\t%(message)s")
    hps, loader, one, two, global_step = (
        {"train": {"epochs": 3, "log_interval": 10, "batch_size": 16}},
        samples(),
        net(),
        net(),
        0,
    )
    optim_g, optim_d = torch.optim.AdamW(one.parameters(), 2e-4), torch.optim.AdamW(two.parameters(), 2e-4)
    truth.update(total=[120, None], epochs=3)
    logging.info(hps)
    for epoch in range(1, hps["train"]["epochs"] + 1):
        for at, (x, y) in enumerate(loader):
            d = backward(two, x, y)
            optim_d.step()
            optim_d.zero_grad()
            g = backward(one, x, y)
            step(optim_g)
            if global_step % hps["train"]["log_interval"] == 0:
                logging.info(f"Train Epoch: {epoch} [{100.0 * at / len(loader):.0f}%]")
                logging.info([d, g, g / 2, g / 3, 1.7, 2.1, global_step, 2e-4])
            global_step += 1
        logging.info(f"====> Epoch: {epoch}")


def policies() -> None:
    max_epoch, step_per_epoch, step_per_collect, update_per_step, model = 3, 500, 10, 0.1, net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth.update(total=[150, None], epochs=3)
    for epoch in range(1, 1 + max_epoch):
        with tqdm(total=step_per_epoch, desc=f"Epoch #{epoch}", dynamic_ncols=True, ascii=True) as t:
            while t.n < t.total:
                t.update(step_per_collect)
                for _ in range(round(update_per_step * step_per_collect)):
                    loss = update(model, optimizer, *random_batch())
                t.set_postfix(
                    env_step=str(t.n + (epoch - 1) * step_per_epoch), len="10", loss=shown(loss, "%.3f"), rew="9.40"
                )
        print(
            f"Epoch #{epoch}: test_reward: {20.1:.6f} ± {3.2:.6f}, best_reward: {20.1:.6f} ± {3.2:.6f} in #{epoch}",
            flush=True,
        )


def composed() -> None:
    max_batches, loader, held_out, model = 100, samples(1600), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
    truth["total"] = [100, None]
    for at, (x, y) in enumerate(loader, 1):
        loss = update(model, optimizer, x, y)
        if at % 10 == 0:
            print(
                f"[batch={at}/{max_batches}]:\n\t Train time/batch: {at - 1}\n\t Train time/sample: {16 * (at - 1)}\n\t Train time/token: {32768 * (at - 1)}\n\t Train loss/train/total: {shown(loss)}\n\t Train throughput/batches_per_sec: 0.4312\n\t Train lr-DecoupledAdamW/group0: 0.0006",
                file=sys.stderr,
            )
        if at % 50 == 0:
            model.eval()
            for each in range(1, len(held_out) + 1):
                print(f"[Eval batch={each}/{len(held_out)}] Eval on eval data", file=sys.stderr)
            mean = evaluated(model, held_out)[0]
            model.train()
            print(f"\t Eval metrics/eval/LanguageCrossEntropy: {shown(mean, of='held_out')}", file=sys.stderr)


if __name__ == "__main__":
    run(globals())
