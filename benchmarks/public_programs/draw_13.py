"""Fifteen more, of other projects again, drawn by a search and written down before anything read them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import torch
from account import judge_accuracies, shown, truth
from toy import backward, evaluated, net, random_batch, run, samples, step, update
from tqdm import tqdm, trange

judge_accuracies()


def mean_of_epoch() -> None:
    num_epochs, trainloader, model = 4, samples(), net()
    optimizer = torch.optim.Adam(model.parameters())
    truth.update(total=[160, None], epochs=4)
    for epoch in range(num_epochs):
        running = sum(update(model, optimizer, x, y) for x, y in trainloader)
        print(f"Epoch {epoch + 1}/{num_epochs}, Loss: {shown(running / len(trainloader), '%.16f')}")


def emotions() -> None:
    num_epochs, loader, model = 4, samples(), net()
    optimizer = torch.optim.Adam(model.parameters())
    truth.update(total=[160, None], epochs=4)
    for epoch in range(num_epochs):
        losses = [update(model, optimizer, x, y) for x, y in loader]
        acc, mean = 0.34 + epoch / 100, sum(losses) / len(losses)
        print(f"epoch: {epoch}: acc:", shown(acc, "%.16f", "training_accuracy"), "loss: ", shown(mean, "%.16f"))


def bare_numbers() -> None:
    loader, model = samples(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    truth.update(total=[120, None], epochs=3)
    losses: list[float] = []
    for epoch in range(3):
        for i, (x, y) in enumerate(loader):
            losses.append(update(model, optimizer, x, y))
            if i % 10 == 0:
                print(epoch, i, sum(losses[-10:]) / 10)


def perturbations() -> None:
    epochs, loader, generator, judge = 3, samples(), net(), net()
    both = [torch.optim.Adam(one.parameters()) for one in (generator, judge)]
    truth.update(total=[120, None], epochs=3)
    print("CUDA Available:  False\ntraining image examples:  640\nStarting training")
    for epoch in range(1, epochs + 1):
        print("Start ep num ", epoch)
        for x, y in loader:
            a, b = backward(generator, x, y), backward(judge, x, y)
            step(*both)
        print(
            f"epoch {epoch}:\nloss_D: {a:.3f}, loss_G_fake: {b:.3f},             \nloss_perturb: {a:.3f}, loss_adv: {b:.3f}, \n"
        )


def bar_and_lines() -> None:
    param = {"epochs": 3, "running_loss": 0.0, "loader": samples(), "model": net()}
    optimizer = torch.optim.Adam(param["model"].parameters())
    truth.update(total=[120, None], epochs=3)
    for _ in range(param["epochs"]):
        param["running_loss"] = 0.0
        for i, (x, y) in enumerate(tqdm(param["loader"])):
            param["running_loss"] += update(param["model"], optimizer, x, y)
            if i % 10 == 1:
                print("Loss is: ", shown(param["running_loss"] / i, "%.16f"))


def token_classification() -> None:
    num_train_epochs, loader, held_out, model = 3, samples(), samples(160), net()
    num_training_steps = num_train_epochs * len(loader)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    truth.update(total=[120, None], epochs=3)
    progress_bar = tqdm(range(num_training_steps))
    for epoch in range(num_train_epochs):
        model.train()
        for x, y in loader:
            update(model, optimizer, x, y)
            progress_bar.update(1)
        model.eval()
        right = float(shown(evaluated(model, held_out)[1], "%.16f", "held_out_accuracy"))
        print(f"epoch {epoch}:", {"precision": 0.31, "recall": 0.32, "f1": 0.33, "accuracy": right})


def dungeons() -> None:
    num_epochs, loader, model = 3, samples(), net()
    num_training_steps = num_epochs * len(loader)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    truth.update(total=[120, None], epochs=3)
    progress_bar = tqdm(range(num_training_steps))
    progress_bar = tqdm(range(num_training_steps))
    for epoch in range(num_epochs):
        for x, y in loader:
            loss = update(model, optimizer, x, y)
            progress_bar.update(1)
        print({"epoch": epoch, "loss": float(shown(loss, "%.16f"))})


def bar_of_epochs() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters())
    truth.update(total=[60, None], epochs=3)
    for _ in tqdm(range(epochs), desc="Epoch"):
        for at, (x, y) in enumerate(loader):
            backward(model, x, y, 0.5)
            if (at + 1) % 2 == 0:
                step(optimizer)
        model.eval()
        evaluated(model, held_out)
        model.train()


def stops_early() -> None:
    args = SimpleNamespace(num_steps=300, num_steps_stop=120)
    model, judge = net(), net()
    both = [torch.optim.SGD(one.parameters(), lr=0.01) for one in (model, judge)]
    truth["total"] = [120, None]
    for i_iter in range(args.num_steps):
        loss = backward(model, *random_batch())
        loss_d = backward(judge, *random_batch())
        step(*both)
        print(
            f"iter = {i_iter:8d}/{args.num_steps:8d}, loss_seg1 = {loss:.3f} loss_seg2 = {loss / 2:.3f} loss_adv1 = {loss_d:.3f}, loss_adv2 = {loss_d:.3f} loss_D1 = {loss_d:.3f} loss_D2 = {loss_d:.3f}"
        )
        if i_iter >= args.num_steps_stop - 1:
            print("save model ...")
            break


def sentences() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    truth.update(total=120, epochs=3)
    for epoch_i in range(epochs):
        print(f"\n======== Epoch {epoch_i + 1} / {epochs} ========\nTraining...")
        total, _ = 0.0, model.train()
        for at, (x, y) in enumerate(loader):
            if at % 10 == 0 and at:
                print(f"  Batch {at:>5,}  of  {len(loader):>5,}.    Elapsed: 0:00:0{at // 10}.")
            total += update(model, optimizer, x, y)
        print(f"\n  Average training loss: {shown(total / len(loader), '%.2f')}\n  Training epcoh took: 0:00:02")
        print("\nRunning Validation...")
        model.eval()
        mean, right = evaluated(model, held_out)
        print(f"  Accuracy: {shown(right, '%.2f', 'held_out_accuracy')}")
        print(f"  Validation Loss: {shown(mean, '%.2f', 'held_out')}\n  Validation took: 0:00:00")
    print("\nTraining complete!")


def boxes_with_steps() -> None:
    loader, held_out, model = samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    truth.update(total=[120, None], epochs=3)
    for epoch in range(3):
        total, _ = 0.0, model.train()
        for i, (x, y) in enumerate(loader):
            total += update(model, optimizer, x, y)
            if i and i % 10 == 0:
                mean, total = total / 10, 0.0
                print(
                    f"Epoch: {epoch}, Step: {i}, Average Loss: {shown(mean)}, Average Regression Loss {mean / 3:.4f}, Average Classification Loss: {mean / 1.5:.4f}"
                )
        model.eval()
        mean = evaluated(model, held_out)[0]
        print(
            f"Epoch: {epoch}, Validation Loss: {shown(mean, of='held_out')}, Validation Regression Loss {mean / 3:.4f}, Validation Classification Loss: {mean / 1.5:.4f}"
        )


def cats_and_dogs() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-5)
    truth.update(total=[120, None], epochs=3)
    for epoch in range(epochs):
        mean = 0.0
        for x, y in tqdm(loader):
            mean += update(model, optimizer, x, y) / len(loader)
        with torch.no_grad():
            val, right = evaluated(model, held_out)
        acc = shown(0.35 + epoch / 100, "%.4f", "training_accuracy")
        print(
            f"Epoch : {epoch + 1} - loss : {shown(mean)} - acc: {acc} - val_loss : {shown(val, of='held_out')} - val_acc: {shown(right, of='held_out_accuracy')}\n"
        )


def videos() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    truth.update(total=120, epochs=3)
    for epoch in range(1, epochs + 1):
        print(f"train at epoch {epoch}")
        losses, _ = [], model.train()
        for i, (x, y) in enumerate(loader):
            losses.append(update(model, optimizer, x, y))
            truth["training"].append(round(losses[-1], 4))
            acc, mean = shown(0.3, "%.3f", "training_accuracy"), shown(sum(losses) / len(losses))
            print(
                f"Epoch: [{epoch}][{i + 1}/{len(loader)}]\tTime 0.020 (0.020)\tData 0.001 (0.001)\tLoss {losses[-1]:.4f} ({mean})\tAcc 0.313 ({acc})"
            )
        print(f"validation at epoch {epoch}")
        total, _ = 0.0, model.eval()
        for i, (x, y) in enumerate(held_out):
            with torch.no_grad():
                loss = torch.nn.functional.cross_entropy(model(x), y).item()
            total += loss
            truth["held_out"].append(round(loss, 4))
            print(
                f"Epoch: [{epoch}][{i + 1}/{len(held_out)}]\tTime 0.010 (0.010)\tData 0.001 (0.001)\tLoss {loss:.4f} ({shown(total / (i + 1), of='held_out')})\tAcc 0.250 ({shown(0.27, '%.3f', 'held_out_accuracy')})"
            )


def collaborative() -> None:
    epochs, loader, held_out, model = 3, samples(), samples(160), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth.update(total=[120, None], epochs=3)
    best = 0.0
    for epoch in range(epochs):
        model.train()
        for x, y in loader:
            update(model, optimizer, x, y)
        model.eval()
        hits = evaluated(model, held_out)[1]
        print(f"The time elapse of epoch {epoch:03d} is: 00: 00: 01")
        print(f"HR: {hits:.3f}\tNDCG: {hits / 2:.3f}")
        best = max(best, hits)
    print(f"End. Best epoch {0:03d}: HR = {best:.3f}, NDCG = {best / 2:.3f}")


def rewards_in_a_bar() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    truth["total"] = 120
    bar = trange(120, desc="Average return: 0.0", file=sys.stdout)
    for at in bar:
        for _ in range(4):  # episodes, of which one update learns
            backward(model, *random_batch(), 0.25)
        step(optimizer)
        bar.set_description(f"Average return: {10 + at / 10:.1f}")


if __name__ == "__main__":
    run(globals())
