"""The cost of a training step on a stand-in GPU beside the CPU, in one process: python benchmarks/gpus.py."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SCRIPT = """
import time, torch
torch.set_num_threads(1)
nn = torch.nn
MODELS = {
    "six layers of 256 x 256": (lambda: nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)]), (64, 256)),
    "a small convolutional net": (
        lambda: nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.Flatten(), nn.Linear(25088, 10)),
        (16, 3, 32, 32),
    ),
    "a transformer layer of 256": (lambda: nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), (8, 64, 256)),
}

def prepared(make, shape, device):
    torch.manual_seed(0)
    model = make().to(device)
    optimizer, inputs = torch.optim.AdamW(model.parameters()), torch.randn(*shape).to(device)
    def step():
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    return step

for name, (make, shape) in MODELS.items():
    steps = {device: prepared(make, shape, device) for device in ("cpu", "cuda")}
    seconds = {device: [] for device in steps}
    for turn in range(40):  # in turns, so that a busy machine disturbs both alike
        for device, step in steps.items():
            began = time.perf_counter()
            step()
            seconds[device].append(time.perf_counter() - began)
    print(name, min(seconds["cpu"]) * 1e3, min(seconds["cuda"]) * 1e3, sep="\\t")
"""


def main() -> None:
    """Print one line a model: milliseconds on the CPU, on a stand-in GPU, and their ratio."""
    from tests.support.gpu_scripts import environment

    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment(Path(folder)), stdout=subprocess.PIPE, text=True, check=True
        )
    ratios = []
    for line in ended.stdout.splitlines():
        name, on_cpu, on_gpu = line.split("\t")
        ratios.append(float(on_gpu) / float(on_cpu))
        sys.stdout.write(f"{name:28} {float(on_cpu):8.2f} ms {float(on_gpu):8.2f} ms {ratios[-1]:6.2f} x\n")
    sys.stdout.write(f"{'median':28} {statistics.median(ratios):31.2f} x\n")


if __name__ == "__main__":
    main()
