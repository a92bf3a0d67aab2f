"""The cost of a training step on a stand-in GPU beside the CPU, and of operators in 16 bits beside float32.

python benchmarks/gpus.py, in one process each. The bar for 16 bits is three times float32.
"""

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

IN_16_BITS = """
import time, torch
from torch.nn import functional as F
torch.set_num_threads(1)
OPERATORS = {
    "conv2d": ((4, 64, 32, 32), (64, 64, 3, 3), lambda x, w: F.conv2d(x, w, padding=1)),
    "conv2d, one group a channel": ((4, 64, 32, 32), (64, 1, 3, 3), lambda x, w: F.conv2d(x, w, padding=1, groups=64)),
    "conv1d": ((4, 64, 256), (64, 64, 3), lambda x, w: F.conv1d(x, w, padding=1)),
    "conv3d": ((1, 16, 8, 16, 16), (16, 16, 3, 3, 3), lambda x, w: F.conv3d(x, w, padding=1)),
    "conv_transpose2d": ((4, 64, 16, 16), (64, 64, 4, 4), lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1)),
    "linear": ((256, 512), (512, 512), F.linear),
    "bmm": ((16, 128, 64), (16, 64, 128), torch.bmm),
    "attention": ((2, 8, 256, 64), (2, 8, 256, 64), lambda q, k: F.scaled_dot_product_attention(q, k, k)),
    "group_norm": ((4, 64, 32, 32), (1,), lambda x, w: F.group_norm(x, 8) * w),
    "layer_norm": ((512, 512), (1,), lambda x, w: F.layer_norm(x, (512,)) * w),
    "softmax": ((512, 512), (1,), lambda x, w: F.softmax(x, -1) * w),
    "unfold": ((4, 64, 32, 32), (1,), lambda x, w: F.unfold(x, 3, padding=1) * w),
}

def fastest(one, two, call, dtype):
    x, w = (torch.randn(shape).to("cuda", dtype).requires_grad_() for shape in (one, two))
    seconds = []
    for turn in range(5):
        began = time.perf_counter()
        call(x, w).sum().backward()
        seconds.append(time.perf_counter() - began)
    return min(seconds)

for name, row in OPERATORS.items():
    wide = fastest(*row, torch.float32)
    print(name, *(fastest(*row, dtype) / wide for dtype in (torch.float16, torch.bfloat16)), sep="\\t")
"""


def main() -> None:
    """Print one line a model: milliseconds on the CPU, on a stand-in GPU, and their ratio; and one an operator."""
    from tests.support.gpu_scripts import environment

    with tempfile.TemporaryDirectory() as folder:
        ended, in_16_bits = (
            subprocess.run(
                [sys.executable, "-c", script],
                env=environment(Path(folder)),
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            for script in (SCRIPT, IN_16_BITS)
        )
    ratios = []
    for line in ended.stdout.splitlines():
        name, on_cpu, on_gpu = line.split("\t")
        ratios.append(float(on_gpu) / float(on_cpu))
        sys.stdout.write(f"{name:28} {float(on_cpu):8.2f} ms {float(on_gpu):8.2f} ms {ratios[-1]:6.2f} x\n")
    sys.stdout.write(f"{'median':28} {statistics.median(ratios):31.2f} x\n\n")
    for line in in_16_bits.stdout.splitlines():
        name, half, bfloat = line.split("\t")
        sys.stdout.write(f"{name:28} float16 {float(half):6.2f} x float32, bfloat16 {float(bfloat):6.2f} x\n")


if __name__ == "__main__":
    main()
