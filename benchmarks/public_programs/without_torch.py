"""Public programs of JAX and Keras in small: what they print, without a framework that anything could count in.

`updates` is None in `truth` where a program prints nothing that could tell it: its epochs are all that can be shown.
"""

from __future__ import annotations

import logging
import random
import time

from account import judge_accuracies, run, shown, truth

truth.update(updates=None, epochs=None)  # unless a program says them


def _epoch(steps: int = 40) -> tuple[float, float]:
    time.sleep(steps * 0.02)
    return 1 + random.random() / 10, 1.1 + random.random() / 10


def keras_in_lines() -> None:
    epochs = 4
    for epoch in range(1, epochs + 1):
        loss, val = _epoch()
        of = f"accuracy: 0.3344 - loss: {shown(loss)} - val_accuracy: 0.3125 - val_loss: {shown(val, of='held_out')}"
        print(f"Epoch {epoch}/{epochs}\n40/40 - 1s - 20ms/step - {of}")
    truth.update(updates=160, total=160, epochs=4)


def flax_mnist() -> None:
    logging.basicConfig(level=logging.INFO, format="I1126 12:00:00.000000 140000000000000 train.py:150] %(message)s")
    for epoch in range(1, 5):
        loss, val = _epoch()
        logging.info("train epoch: %d, loss: %s, accuracy: %.2f", epoch, shown(loss), 33.44)
        logging.info("eval epoch: %d, loss: %s, accuracy: %.2f", epoch, shown(val, of="held_out"), 31.25)
    truth.update(epochs=4)


def jax_mnist() -> None:
    print("\nStarting training...")
    for epoch in range(4):
        _epoch()
        print(f"Epoch {epoch} in {0.8:0.2f} sec\nTraining set accuracy {0.91}\nTest set accuracy {0.89}")
    truth.update(epochs=4)


def equinox() -> None:
    for at in range(60):
        loss, _ = _epoch(1)
        print(f"step={at}, loss={shown(loss, '%.16f')}")
    print("test_accuracy=0.9")
    truth.update(updates=59, total=None)  # they are counted from 0


def haiku_mnist() -> None:
    for at in range(0, 301, 50):
        _epoch(15)
        print(f"[Step {at}] Validation / Test accuracy: {0.91:.3f} / {0.9:.3f}.")
    truth.update(updates=300, total=None)


def neural_ode() -> None:
    """Its second phase, on longer series, counts from 0 again."""
    for length in (0.1, 1):
        steps = 60
        for at in range(steps):
            loss, _ = _epoch(1)
            if at % 20 == 0 or at == steps - 1:
                print(f"Step: {at}, Loss: {shown(loss, '%.16f')}, Computation time: {0.0201 * length}")
    truth.update(updates=[118, 119, 120], total=[120, None])


def apple() -> None:
    judge_accuracies()
    iters, trained = 100, 0
    print(f"Starting training..., iters: {iters}")
    for at in range(1, iters + 1):
        loss, val = _epoch(1)
        if at in (1, 50, 100):
            print(f"Iter {at}: Val loss {shown(val, '%.3f', 'held_out')}, Val took {0.512:.3f}s", flush=True)
        trained += 402
        if at % 10 == 0:
            print(
                f"Iter {at}: Train loss {shown(loss, '%.3f')}, Learning Rate {1e-5:.3e}, It/sec {3.101:.3f}, Tokens/sec {310.5:.3f}, Trained Tokens {trained}, Peak mem {4.123:.3f} GB",
                flush=True,
            )
        if at % 100 == 0:
            print(
                f"Iter {at}: Saved adapter weights to adapters/adapters.safetensors and adapters/{at:07d}_adapters.safetensors."
            )
    truth.update(updates=100, total=100)


def tiny_gradients() -> None:
    from tqdm import trange

    judge_accuracies()
    bar, test_acc = trange(70), float("nan")
    for at in bar:
        loss, _ = _epoch(1)
        if at % 10 == 9:
            test_acc = 0.91 + at / 1000
        acc = shown(100 * test_acc, "%5.2f", "held_out_accuracy")
        bar.set_description(f"loss: {shown(loss, '%6.2f')} test_accuracy: {acc}%")
    truth.update(updates=70, total=70)


if __name__ == "__main__":
    run(globals())
